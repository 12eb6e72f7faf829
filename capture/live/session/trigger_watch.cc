// TriggerWatch: see trigger_watch.h.
#include "capture/live/session/trigger_watch.h"

#include <algorithm>

#include "capture/live/kernel/start_scan.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr uint32_t kTriggerRingPages = 4;
constexpr size_t kMostDepth = 1024, kMostThreads = 65536;

}  // namespace

void CallTimer::on_record(Bytes record, const EventAttr& attr, const Probes& returns) {
  const uint32_t type = read_record_header(record).type;
  if (type == kRecordLost) return forget(trailer_of(attr, record).time);
  SampleFields sample;
  if (type != kRecordSample || !parse_sample(attr, record.subspan(kRecordHeaderBytes), sample)) return;
  const auto probe = returns.find(sample.id.id);
  if (probe != returns.end()) add({sample.id.time, sample.id.tid, probe->second, false, sample.id.pid});
}

bool CallTimer::has_news() const {
  return std::any_of(hits_.begin(), hits_.end(), [](const Hit& hit) { return !hit.waited; });
}

void CallTimer::keep(const TargetThreads& target) {
  std::erase_if(hits_, [&](const Hit& hit) { return !hit.waited && !target.contains(hit.pid, hit.tid); });
}

uint64_t CallTimer::count() {
  if (duration_ns_ != 0) {
    std::erase_if(hits_, [this](const Hit& hit) { return hit.time_ns < lost_ns_; });
    std::erase_if(calls_, [this](const auto& calls) { return calls.second.front() < lost_ns_; });
  }
  std::stable_sort(hits_.begin(), hits_.end(), [](const Hit& a, const Hit& b) { return a.time_ns < b.time_ns; });
  uint64_t met = 0;
  std::vector<Hit> later;
  for (const Hit& hit : hits_) {
    if (!hit.returns) {
      met += duration_ns_ == 0 ? 1 : 0;
      if (duration_ns_ == 0 || (calls_.size() >= kMostThreads && !calls_.contains(hit.tid))) continue;
      std::vector<uint64_t>& open = calls_[hit.tid];
      if (open.size() < kMostDepth) open.push_back(hit.time_ns);
      continue;
    }
    const auto open = calls_.find(hit.tid);
    if (open == calls_.end()) {
      if (!hit.waited && later.size() < kMostThreads) later.push_back({hit.time_ns, hit.tid, true, true});
      continue;  // one that waited before began before the probe
    }
    met += hit.time_ns - open->second.back() >= duration_ns_ ? 1 : 0;
    open->second.pop_back();
    if (open->second.empty()) calls_.erase(open);
  }
  hits_ = std::move(later);
  return met;
}

Result<std::unique_ptr<TriggerWatch>> TriggerWatch::open(const TriggerChoice& choice, const TargetChoice& target,
                                                         const std::vector<int32_t>& threads) {
  std::unique_ptr<TriggerWatch> watch(new TriggerWatch(choice, TargetThreads(target, threads)));
  for (const int32_t cpu : online_cpus()) {
    watch->rings_.emplace_back();
    Status status = watch->add(false, cpu);
    if (status.ok() && choice.on_return()) status = watch->add(true, cpu);
    if (!status.ok()) return Error{status.error().code, "record: --trigger: " + choice.text + ": " + status.error().message, 0};
  }
  return watch;
}

Status TriggerWatch::add(bool returns, int32_t cpu) {
  EventSpec spec;
  spec.type = choice_.type;
  spec.config = returns ? choice_.return_bit : 0;
  spec.config1 = reinterpret_cast<uintptr_t>(choice_.path.c_str());  // [perf_event_open(2)] uprobe_path
  spec.config2 = choice_.offset_bytes;
  spec.wake_bytes = 1;
  Result<LiveEvent> event = LiveEvent::open(spec, {-1, cpu});
  if (!event) return event.error();
  if (attr_.raw.empty()) attr_ = file_attr(spec, "uprobe");
  std::vector<LiveEvent>& events = rings_.back().events;
  if (!events.empty()) {
    if (Status status = event->send_to(events.front()); !status) return status;
  }
  returns_[event->id()] = returns;
  events.push_back(std::move(*event));
  return events.size() == 1 ? map_ring(rings_.back()) : Status();  // only to a mapped ring can others send
}

Status TriggerWatch::map_ring(Ring& to) {
  Result<std::unique_ptr<EventRing>> ring = EventRing::map(to.events.front().fd(), kTriggerRingPages);
  if (!ring) return ring.error();
  to.ring = std::move(*ring);
  return {};
}

Status TriggerWatch::map() {
  for (Ring& each : rings_) each.ring.reset();
  for (Ring& each : rings_) {
    if (Status status = map_ring(each); !status) return status;
  }
  return {};
}

void TriggerWatch::take_over() {
  for (const Ring& each : rings_) each.ring->seek(0);  // to what was released last
}

std::vector<int> TriggerWatch::fds() const {
  std::vector<int> fds;
  for (const Ring& each : rings_) fds.push_back(each.events.front().fd());
  return fds;
}

bool TriggerWatch::read() {
  target_.mark_ended();
  for (Ring& each : rings_) {
    (void)each.ring->drain([&](Bytes record) { timer_.on_record(record, attr_, returns_); });
  }
  return timer_.has_news();
}

uint64_t TriggerWatch::count() {
  timer_.keep(target_);
  target_.forget_ended();
  return timer_.count();
}

}  // namespace ptd::live
