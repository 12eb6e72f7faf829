// AnnounceTap: see announce_tap.h.
#include "capture/live/announce_tap.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "perfio/announce/announce_event.h"

namespace ptd::live {
namespace {

constexpr uint64_t kFirstPauseNs = 5'000'000, kLongestPauseNs = 1'000'000'000;
constexpr size_t kMostProcesses = 1U << 16;

}  // namespace

AnnounceTap::AnnounceTap(const LiveClock& clock, Sink sink, announce::AnnounceSocket* socket, bool continues)
    : clock_(clock),
      sink_(std::move(sink)),
      socket_(socket),
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

// A process is looked at often at first, when its run-times start, then once a second.
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
    turn.pause_ns = std::min(2 * turn.pause_ns, kLongestPauseNs);
    ++at;
  }
  take_offers();
  listener_->look(due);
  return latest_ = listener_->drain();
}

int AnnounceTap::pause_ms(int most) const {
  constexpr uint64_t kMany = 512;
  constexpr int kSoonMs = 1, kListenMs = 20;
  return latest_ > kMany ? kSoonMs : listener_->listening() != 0 ? std::min(most, kListenMs) : most;
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
