// Parallel decoding of segments, with one mutex that is locked once per batch.
//
// The thread that takes the output decodes too: what it decodes when it has its turn is output at once and held nowhere, and no thread is
// woken while all have something to decode.
#include "recording/parallel.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "decoder/event_join.h"

namespace ptd {
namespace {

constexpr unsigned kMaxThreads = 256;
constexpr uint64_t kNone = ~uint64_t{0};  // see ParallelJob::find

size_t bytes_of(const Batch& batch) {
  return batch.blocks.size() * sizeof(Block) + batch.marks.size() * sizeof(Mark) + batch.events.size() * sizeof(Event) +
         batch.gaps.size() * sizeof(Gap);
}

constexpr uint64_t kMostLaneBytes = 1U << 14;      // trace of one lane: what is held of it should stay in the second cache
constexpr uint64_t kLanesGrowBy = 8;               // a lane is no larger than what was taken before it, divided by this
constexpr size_t kMostDeliveredBytes = 1U << 18;   // output that is worth waking for
constexpr size_t kFirstDeliveredBytes = 1U << 12;  // at first, so that the first line comes soon

struct Piece {
  AuxSegment segment;
  std::vector<std::byte> scratch;
};

/// Output that waits for its turn.
struct Held {
  Batch batch;
  const Piece* piece = nullptr;
};

struct Hand;

/// Neighbouring segments that a thread has taken.
struct Lane {
  Hand* hand = nullptr;
  std::deque<Piece> pieces;
  std::vector<Held> held;
  size_t held_bytes = 0;
  bool done = false;
};

/// A thread and what it is at.
struct Hand {
  std::unique_ptr<FlowDecoder> decoder;
  Lane* lane = nullptr;      ///< null: none
  uint64_t next = 0;         ///< where the lane's next segment begins
  uint64_t end = 0;          ///< of the lane
  Piece* piece = nullptr;    ///< being decoded; null: the next one is to be begun
  Piece* given = nullptr;    ///< that `batch` is of
  Batch batch;               ///< decoded last
  std::vector<Batch> spare;  ///< with the memory of those given out
};

}  // namespace

class ParallelDecode::Crew {
 public:
  Crew(ParallelJob job, unsigned threads) : process_(getpid()), job_(std::move(job)), next_(job_.find(job_.first_offset)), hands_(threads) {
    share_bytes_ = std::max<uint64_t>(job_.held_bytes / threads, 1U << 20);
    most_ahead_ = 4 * uint64_t{threads};
    for (Hand& hand : hands_) hand.decoder = job_.make_decoder();
    threads_.reserve(threads - 1);
  }
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// Starts the other threads, fewer if the system gives no more: this thread alone decodes everything too. Separate from the constructor,
  /// so that the destructor ends those that run if it throws.
  void start() {
    try {
      for (size_t i = 1; i < hands_.size(); ++i) threads_.emplace_back([this, i] { run(hands_[i]); });
    } catch (const std::system_error&) {
    }
  }

  /// This process was forked from the one that has the other threads.
  [[nodiscard]] bool is_copy() const { return !threads_.empty() && getpid() != process_; }

  /// Outputs what has its turn; while there is none of that, decodes as the other threads do.
  bool next(DecodedBatch& next) {
    Hand& own = hands_[0];
    if (given_ < taken_.size()) taken_[given_++].batch.clear();
    if (given_ < taken_.size()) return output(taken_[given_].batch, *taken_from_->hand, *taken_[given_].piece, next);
    std::unique_lock lock(mutex_);
    pass();
    for (;;) {
      if (failure_) std::rethrow_exception(failure_);
      Lane* front = lanes_.empty() ? nullptr : lanes_.front().get();
      if (front == nullptr && all_taken()) return false;
      if (front != nullptr && (is_ready(*front) || (front->hand == &own && !front->held.empty()))) {
        take_held(*front);
        if (taken_.empty()) {
          pass();
          continue;
        }
        const bool wake = waiting_ != 0;
        lock.unlock();
        if (wake) room_.notify_all();
        return output(taken_.front().batch, *front->hand, *taken_.front().piece, next);
      }
      if (front != nullptr && front->hand == &own) {  // nothing need be held
        lock.unlock();
        own_ended_ = !decode(own);
        return output(own.batch, own, *own.given, next);
      }
      if (own.lane == nullptr && take(own)) continue;  // its lane may be the front one
      if (own.lane == nullptr || own.lane->held_bytes >= share_bytes_) {
        ready_.wait(lock);
        continue;
      }
      lock.unlock();
      const bool more = decode(own);
      lock.lock();
      hold(own, !more);
    }
  }

 private:
  [[nodiscard]] bool all_taken() const { return next_ >= job_.last_offset || next_ == kNone; }
  [[nodiscard]] bool is_ready(const Lane& lane) const { return lane.done || lane.held_bytes >= enough_bytes_; }

  bool output(Batch& batch, const Hand& hand, const Piece& piece, DecodedBatch& next) {
    join_.apply(batch);
    next = {&batch, hand.decoder.get(), &piece.segment};
    return true;
  }

  // Takes what the front lane holds.
  void take_held(Lane& lane) {
    taken_from_ = &lane;
    taken_is_last_ = lane.done;
    taken_.clear();
    taken_.swap(lane.held);
    given_ = 0;
    lane.held_bytes = 0;
    enough_bytes_ = std::min(2 * enough_bytes_, std::min<size_t>(kMostDeliveredBytes, share_bytes_ / 2));
  }

  // The batches taken from the front lane, or this thread's last one, are done with. The former go back to the thread that filled them,
  // whose caches they are in.
  void pass() {
    if (taken_from_ != nullptr) {
      for (Held& held : taken_) taken_from_->hand->spare.push_back(std::move(held.batch));
      taken_.clear();
      given_ = 0;
      taken_from_ = nullptr;
      if (std::exchange(taken_is_last_, false)) pop_front();
    }
    if (std::exchange(own_ended_, false)) {
      hands_[0].lane = nullptr;
      pop_front();
    }
  }

  void pop_front() {
    lanes_.pop_front();
    if (waiting_ != 0) room_.notify_all();
  }

  template <typename Condition>
  void wait_for_room(std::unique_lock<std::mutex>& lock, Condition&& condition) {
    if (condition()) return;
    ++waiting_;
    room_.wait(lock, condition);
    --waiting_;
  }

  // Selects the next lane. False: there is none now. The lanes are in the order of segments.
  bool take(Hand& hand) {
    if (stopped_ || all_taken() || lanes_.size() >= most_ahead_) return false;
    lanes_.push_back(std::make_unique<Lane>());
    hand.lane = lanes_.back().get();
    hand.lane->hand = &hand;
    hand.next = next_;
    hand.piece = nullptr;
    const uint64_t enough = next_ + std::min(taken_bytes_ / kLanesGrowBy, kMostLaneBytes);
    do {
      next_ = job_.find(next_ + 1);
    } while (next_ < enough && !all_taken());
    hand.end = std::min(next_, job_.last_offset);
    taken_bytes_ += std::min(next_ - hand.next, kMostLaneBytes);
    if (all_taken()) ready_.notify_all();
    return true;
  }

  // The lane's next batch. False: it was the last, and the hand has no lane.
  bool decode(Hand& hand) {
    if (hand.piece == nullptr) {
      hand.piece = &hand.lane->pieces.emplace_back();
      hand.piece->segment = job_.segment(hand.next, hand.piece->scratch);
      hand.decoder->begin(hand.piece->segment);
      hand.next = job_.find(hand.next + 1);
    }
    hand.batch.clear();
    hand.given = hand.piece;
    const bool more = hand.decoder->next(hand.batch, job_.batch_blocks);
    if (more) return true;
    hand.piece = nullptr;
    return hand.next < hand.end && hand.next != kNone;
  }

  // The batch decoded last waits for its turn.
  void hold(Hand& hand, bool done) {
    Lane& lane = *hand.lane;
    lane.held_bytes += bytes_of(hand.batch);
    lane.held.push_back({std::move(hand.batch), hand.given});
    lane.done = done;
    hand.batch = {};
    if (!hand.spare.empty()) {
      hand.batch = std::move(hand.spare.back());
      hand.spare.pop_back();
    }
    if (done) hand.lane = nullptr;
  }

  // An exception (std::bad_alloc, or one of the caller's functions) ends all threads; next() throws it.
  void run(Hand& hand) {
    try {
      work(hand);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stopped_ = true;
      ready_.notify_all();
      room_.notify_all();
    }
  }
  void work(Hand& hand) {
    std::unique_lock lock(mutex_);
    for (;;) {
      wait_for_room(lock, [&] { return stopped_ || all_taken() || lanes_.size() < most_ahead_; });
      if (!take(hand)) return;
      for (bool more = true; more;) {
        lock.unlock();
        more = decode(hand);
        lock.lock();
        wait_for_room(lock, [&] { return stopped_ || hand.lane->held_bytes < share_bytes_; });
        if (stopped_) return;
        const Lane* lane = hand.lane;
        hold(hand, !more);
        if (lanes_.front().get() == lane && is_ready(*lane)) ready_.notify_all();
      }
    }
  }

  const pid_t process_;
  const ParallelJob job_;
  uint64_t share_bytes_ = 0, most_ahead_ = 0;
  std::mutex mutex_;
  std::condition_variable ready_;  // for the thread of next()
  std::condition_variable room_;   // for the others
  uint64_t next_;                  // where the segment begins that is taken next
  uint64_t taken_bytes_ = 0;       // about
  size_t enough_bytes_ = kFirstDeliveredBytes;
  unsigned waiting_ = 0;  // threads, for capacity
  bool stopped_ = false;
  std::exception_ptr failure_;  // that ended a thread
  std::deque<std::unique_ptr<Lane>> lanes_;
  EventJoin join_;
  Lane* taken_from_ = nullptr;  // the front lane, while `taken_` is output
  std::vector<Held> taken_;
  size_t given_ = 0;            // index of the one output last
  bool taken_is_last_ = false;  // the lane has no more
  bool own_ended_ = false;      // the batch output last was the last one of this thread's lane
  std::vector<Hand> hands_;     // the first is of the thread of next()
  std::vector<std::thread> threads_;
};

ParallelDecode::ParallelDecode(ParallelJob job) {
  unsigned threads = 0;  // no more than there are segments
  for (uint64_t at = job.find(job.first_offset); at < job.last_offset && at != kNone && threads < std::min(job.threads, kMaxThreads);
       at = job.find(at + 1))
    ++threads;
  crew_ = std::make_unique<Crew>(std::move(job), std::max(threads, 1U));
  crew_->start();
}

// A copy has mutexes as the threads of the other process left them, and no threads to wait for: its memory is lost.
ParallelDecode::~ParallelDecode() {
  if (crew_->is_copy()) (void)crew_.release();
}

bool ParallelDecode::next(DecodedBatch& next) {
  if (crew_->is_copy())
    throw std::system_error(EPERM, std::generic_category(),
                            "the threads that decode are those of the process that this one was forked from");
  return crew_->next(next);
}

}  // namespace ptd
