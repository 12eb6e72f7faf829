// AnnounceTap: see announce_tap.h.
#include "capture/live/events/announce_tap.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "perfio/announce/announce_event.h"

namespace ptd::live {
namespace {

constexpr uint64_t kFirstPauseNs = 5'000'000;
constexpr size_t kMostProcesses = 1U << 16;

}  // namespace

AnnounceTap::AnnounceTap(const LiveClock& clock, Sink sink, announce::AnnounceSocket* socket, bool continues, int longest_pause_ms)
    : clock_(clock),
      sink_(std::move(sink)),
      socket_(socket),
      longest_pause_ns_(static_cast<uint64_t>(longest_pause_ms) * 1'000'000),
      listener_(std::make_unique<announce::AnnounceListener>([this](const announce::Heard& heard) { pass_on(heard); }, continues)) {}

void AnnounceTap::pass_on(const announce::Heard& heard) {
  const std::vector<std::byte> raw = perfio::announce_sample(heard.tid, heard.record);
  perfio::SampleId id;
  id.pid = heard.pid;
  id.tid = heard.tid;
  id.time = clock_.time_of(heard.when.ticks, heard.when.mono_ns);
  id.has_time = id.time != 0;
  id.cpu = 0;
  id.id = kEventId;
  sink_(perfio::OtherSample{0, raw}, id);
}

void AnnounceTap::add_process(int32_t pid) {
  if (pid > 0 && processes_.size() < kMostProcesses) (void)processes_.try_emplace(pid, Turn{0, kFirstPauseNs});
}

void AnnounceTap::look_soon(int32_t pid) {
  if (const auto known = processes_.find(pid); known != processes_.end()) known->second = {0, kFirstPauseNs};
}

int AnnounceTap::look_ms() const {
  if (processes_.empty()) return -1;
  uint64_t next = ~uint64_t{0};
  for (const auto& [pid, turn] : processes_) next = std::min(next, turn.next_ns);
  const uint64_t now = announce::moment_now().mono_ns, wait = next - std::min(now, next);
  return static_cast<int>(std::min(wait, longest_pause_ns_) / 1'000'000) + 1;
}

// A process is looked at often at first, when its run-times start, then seldom.
uint64_t AnnounceTap::drain() {
  const uint64_t now = announce::moment_now().mono_ns;
  std::vector<int32_t> due;
  for (auto at = processes_.begin(); at != processes_.end();) {
    Turn& turn = at->second;
    if (turn.next_ns > now) {
      ++at;
      continue;
    }
    if (kill(at->first, 0) != 0 && errno == ESRCH) {
      at = processes_.erase(at);
      continue;
    }
    due.push_back(at->first);
    turn.next_ns = now + turn.pause_ns;
    turn.pause_ns = std::min(2 * turn.pause_ns, longest_pause_ns_);
    ++at;
  }
  take_offers();
  listener_->look(due);
  return latest_ = listener_->drain();
}

int AnnounceTap::pause_ms(int most) const {
  constexpr uint64_t kMany = 512;
  constexpr int kSoonMs = 1, kListenMs = 20;
  if (latest_ > kMany) return kSoonMs;
  return listener_->listening() == 0 ? most : most < 0 ? kListenMs : std::min(most, kListenMs);
}

void AnnounceTap::take_offers() {
  if (socket_ != nullptr) socket_->take([this](announce::AnnounceSocket::Offer offer) { listener_->take(std::move(offer)); });
}

// A ring whose process has ended is read to its end.
void AnnounceTap::stop() {
  take_offers();
  listener_->look({});
  listener_->stop();
}

void AnnounceTap::abandon() {
  listener_->abandon();
  processes_.clear();
}

}  // namespace ptd::live
