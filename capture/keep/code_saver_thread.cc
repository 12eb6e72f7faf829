// CodeSaverThread: see code_saver_thread.h.
#include "capture/keep/code_saver_thread.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <system_error>
#include <utility>

#include "image/base/inherited_signals.h"

namespace ptd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookEvery = std::chrono::milliseconds(250);  // also while much waits
constexpr uint64_t kRoundEveryNs = 200'000'000;              // without a mapping
constexpr size_t kMostFailures = 1U << 14;
constexpr const char* kFailed = "out of memory while reading the mapped code";
constexpr const char* kLeftOut = "too many mappings at once to read them all";

}  // namespace

Result<std::unique_ptr<CodeSaverThread>> CodeSaverThread::begin(const std::string& recording, const SaveOptions& options,
                                                                uint64_t queue_bytes) {
  Result<std::unique_ptr<CodeSaver>> saver = CodeSaver::begin(recording, options);
  if (!saver) return saver.error();
  return std::unique_ptr<CodeSaverThread>(new CodeSaverThread(std::move(*saver), queue_bytes));
}

CodeSaverThread::~CodeSaverThread() { stop(); }

uint64_t CodeSaverThread::size_of(const Told& told) {
  return sizeof(Told) + (told.map == nullptr ? 0 : sizeof(perfio::MmapRecord) + told.map->path.size() + told.map->build_id.size());
}

void CodeSaverThread::leave_out(const std::string& path) {
  if (left_out_.size() < kMostFailures || left_out_.contains(path)) {
    left_out_.insert(path);
  } else {
    ++left_out_unnamed_;
  }
}

void CodeSaverThread::on_mapping(const perfio::MmapRecord& map, uint64_t time_ns) {
  if (has_taken_over_) {
    if (heir_ != nullptr) heir_->on_mapping(map, time_ns);
    return;
  }
  const CodeSaver::Interest interest = CodeSaver::interest_in(map);
  if (interest == CodeSaver::Interest::none) return;
  Told told;
  told.cover = {map.pid, map.addr, map.size_bytes, time_ns};
  if (interest == CodeSaver::Interest::bytes) {
    told.what = What::mapping;
    told.map = std::make_unique<const perfio::MmapRecord>(map);
  }
  const uint64_t size_bytes = size_of(told);
  if (is_alone() || waiting_bytes_ + size_bytes > queue_bytes_) {
    left_out_now_ = true;
    if (told.map != nullptr) leave_out(map.path);
    return;
  }
  waiting_bytes_ += size_bytes;
  round_.push_back(std::move(told));
}

void CodeSaverThread::on_lost() { left_out_now_ = true; }

/// Rings are read one after the other: their records are put in order here, as far as they came in one round.
void CodeSaverThread::on_round(const Round& round) {
  latest_begun_ns_ = round.begun_ns;  // also one without a mapping shows that none was made before
  // What was left out may be newer than what another ring tells in the next round.
  const bool left_out = left_out_now_ || left_out_before_;
  if (has_taken_over_) {
    left_out_before_ = std::exchange(left_out_now_, false);
    if (heir_ == nullptr) return;
    if (left_out) heir_->forget_memory();
    return heir_->look(round.now_ns, round.slack_ns);
  }
  if (is_alone()) return;
  if (round_.empty() && !left_out && round.begun_ns < last_round_ns_ + kRoundEveryNs) return;
  last_round_ns_ = round.begun_ns;
  left_out_before_ = std::exchange(left_out_now_, false);
  std::stable_sort(round_.begin(), round_.end(), [](const Told& a, const Told& b) { return a.cover.time_ns < b.cover.time_ns; });
  Told end{What::round, {}, nullptr, round.begun_ns, round.file_bytes, ++rounds_, left_out};
  {
    const std::lock_guard lock(mutex_);
    latest_ = round;
    // Rounds in which nothing fitted into the queue become one: they are not counted against its limit.
    if (round_.empty() && !queue_.empty() && (queue_.back().left_out || !left_out)) {
      end.left_out = queue_.back().left_out;
      queue_.back() = std::move(end);
    } else {
      waiting_bytes_ += size_of(end);
      queue_.insert(queue_.end(), std::make_move_iterator(round_.begin()), std::make_move_iterator(round_.end()));
      queue_.push_back(std::move(end));
    }
  }
  round_.clear();
  told_.notify_one();
  if (!thread_.joinable()) start();
}

void CodeSaverThread::start() {
  const NoSignals none;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    no_thread_ = std::string("cannot start a thread to read it: ") + error.what();
  }
}

bool CodeSaverThread::is_settled() {
  if (has_taken_over_ || !thread_.joinable() || failed_) return true;
  if (asked_ == 0) {
    go_on();
    asked_ = rounds_;
  }
  if (settled_ < asked_) return false;
  asked_ = 0;
  return true;
}

bool CodeSaverThread::pause() {
  if (!thread_.joinable()) return true;
  const std::lock_guard lock(mutex_);
  is_to_rest_ = true;
  return rests_;
}

void CodeSaverThread::go_on() {
  {
    const std::lock_guard lock(mutex_);
    is_to_rest_ = false;
  }
  told_.notify_one();
}

/// The parent's own saver stays as it is: its descriptors hold the lock that protects what it has flushed.
void CodeSaverThread::take_over() {
  has_taken_over_ = true;
  if (Result<std::unique_ptr<CodeSaver>> heir = saver_->heir(); heir) heir_ = std::move(*heir);
}

/// On the thread. False: it is to end, and all is worked through.
bool CodeSaverThread::take(Round& latest) {
  std::unique_lock lock(mutex_);
  rests_ = true;
  told_.wait(lock, [&] { return !is_to_rest_ && (stop_ || !queue_.empty() || !work_.empty()); });
  rests_ = false;
  if (queue_.empty() && work_.empty()) return false;
  work_.insert(work_.end(), std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
  queue_.clear();
  latest = latest_;
  return true;
}

void CodeSaverThread::handle(const Told& told) {
  switch (told.what) {
    case What::cover:
      return saver_->on_cover(told.cover);
    case What::mapping:
      return saver_->on_mapping(*told.map, told.cover.time_ns);
    case What::round:
      if (told.left_out) saver_->forget_memory();
      saver_->told_until(told.begun_ns);
      return saver_->on_written(told.file_bytes);
  }
}

void CodeSaverThread::work_through() {
  Round latest;
  uint64_t reached = 0;
  while (take(latest)) {
    const Clock::time_point next_look = Clock::now() + kLookEvery;
    while (!work_.empty() && Clock::now() < next_look) {
      handle(work_.front());
      reached = std::max(reached, work_.front().number);
      waiting_bytes_ -= size_of(work_.front());
      work_.pop_front();
    }
    saver_->look(latest.now_ns, latest.slack_ns);
    settled_ = reached;
  }
}

/// Who records goes on, whatever happens here.
void CodeSaverThread::work() {
  try {
    work_through();
  } catch (const std::exception&) {  // std::bad_alloc
    failed_ = true;
  }
  const std::lock_guard lock(mutex_);
  rests_ = true;
}

void CodeSaverThread::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    is_to_rest_ = false;
  }
  told_.notify_one();
  thread_.join();
}

Result<SaveReport> CodeSaverThread::finish() {
  if (has_taken_over_) {
    if (heir_ == nullptr) return Error{ErrorCode::start_failed, "cannot continue with the code saved so far", 0};
    if (left_out_now_) heir_->forget_memory();
    return heir_->finish(latest_begun_ns_);
  }
  stop();
  const auto leave = [this](const Told& told) {
    if (told.map != nullptr) leave_out(told.map->path);
  };
  if (is_alone()) {  // work left over
    std::for_each(work_.begin(), work_.end(), leave);
    std::for_each(queue_.begin(), queue_.end(), leave);
    std::for_each(round_.begin(), round_.end(), leave);
  }
  if (is_alone() || left_out_now_) saver_->forget_memory();
  Result<SaveReport> report = saver_->finish(latest_begun_ns_);
  if (!report) return report;
  std::erase_if(report->skipped, [this](const SaveReport::Skipped& skipped) { return left_out_.contains(skipped.path); });
  for (const std::string& path : left_out_)
    report->skipped.push_back({path, failed_ ? kFailed : no_thread_.empty() ? kLeftOut : no_thread_});
  report->unnamed += left_out_unnamed_;
  return report;
}

}  // namespace ptd
