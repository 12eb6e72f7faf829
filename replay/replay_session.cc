// ReplaySession: see replay_session.h.
#include "replay/replay_session.h"

#include <algorithm>
#include <cstring>

namespace ptd::replay {

ReplaySession::ReplaySession(const Recording& recording, const ReplayFilter& filter)
    : recording_(&recording), store_(recording), cursor_(store_, filter), run_(cursor_), memory_(recording), threads_(recording, filter) {
  (void)seek(filter.time.first);
}

void ReplaySession::set_current(ThreadKey thread) {
  current_ = thread;
  if (const auto place = place_of(thread)) threads_.see(*place);
}

// Before a gap, the next instruction is already the one after it: a move backward from there passes the gap, too.
void ReplaySession::pass_gaps() {
  constexpr int kMostItems = 4096;
  ReplayCursor ahead(cursor_);
  for (int i = 0; i < kMostItems && ahead.enter_next() && ahead.item().kind != FlowItem::blocks; ++i) {
    const bool is_gap = ahead.item().kind == FlowItem::gap;
    ahead.leave_forward();
    if (is_gap) cursor_ = ahead;
  }
}

bool ReplaySession::seek(TimeNs time) {
  cursor_.seek(time);
  pass_gaps();
  moved();
  auto place = cursor_.next_place();
  if (!place) {  // after the last instruction: before it
    RunRequest request;
    run_.begin(request);
    current_ = run_.go_on().thread;
    moved();
    place = cursor_.next_place();
  }
  if (!place) return false;
  set_current(place->thread);
  return true;
}

// A thread that runs later on another cpu, or much later, is looked for where the context switches say.
std::optional<ReplayPlace> ReplaySession::find_place(ThreadKey thread) {
  if (auto place = cursor_.next_place(thread)) return place;
  const auto known = threads_.all().find(thread);
  if (known != threads_.all().end() && thread < kIdleThreads) {
    const TimeNs now = cursor_.time();
    TimeNs next = kTimeMax;
    for (const StreamInfo& stream : recording_->streams()) {
      if (stream.cpu < 0) continue;
      const auto& switches = recording_->contexts().switches(stream.cpu);
      auto at = std::upper_bound(switches.begin(), switches.end(), now,
                                 [](TimeNs time, const ContextTrack::Switch& to) { return time < to.time; });
      at = std::find_if(at, switches.end(), [&](const ContextTrack::Switch& to) { return to.to.tid == known->second.tid; });
      if (at != switches.end()) next = std::min(next, at->time);
    }
    if (next != kTimeMax) {
      ReplayCursor there(cursor_);
      there.seek(next);
      if (auto place = there.next_place(thread)) return place;
    }
  }
  return cursor_.previous_place(thread);
}

std::optional<ReplayPlace> ReplaySession::place_of(ThreadKey thread) {
  const auto [at, is_new] = places_.try_emplace(thread);
  if (is_new) at->second = find_place(thread);
  return at->second;
}

TimeNs ReplaySession::code_time(const ReplayPlace& place) {
  if (dated_ && dated_->block == place.block && dated_->space == place.space && dated_->time == place.time) return code_time_;
  dated_ = place;
  return code_time_ = memory_.time_of(place.space, *place.block, place.time);
}

size_t ReplaySession::read(ThreadKey thread, Ip ip, std::span<std::byte> out) {
  const auto place = place_of(thread);
  if (!place) return memory_.read(kKernelSpace, ip, cursor_.time(), out);
  const BlockInfo& block = *place->block;
  const TimeNs when = code_time(*place);
  size_t done = 0;
  while (done < out.size()) {
    const Ip at = ip + done;
    const uint64_t into = at - block.ip, left = out.size() - done;
    if (into < block.size_bytes) {
      const size_t size = std::min<uint64_t>(left, block.size_bytes - into);
      std::memcpy(out.data() + done, block.first_byte + into, size);
      done += size;
      continue;
    }
    const size_t wanted = at < block.ip ? std::min<uint64_t>(left, block.ip - at) : left;
    const size_t size = memory_.read(place->space, at, when, out.subspan(done, wanted));
    done += size;
    if (size < wanted) break;
  }
  return done;
}

ProcessImage ReplaySession::image_of(ThreadKey thread) {
  const auto place = place_of(thread);
  if (!place) return {memory_, kNoSpace, cursor_.time(), {}};
  return image_at(*place);
}

ProcessImage ReplaySession::image_at(const ReplayPlace& place) {
  return {memory_, place.space, code_time(place), recording_->comm_at(place.pid, place.time)};
}

Interval ReplaySession::span() const {
  Interval all{kTimeMax, kTimeMin};
  for (const StreamInfo& stream : recording_->streams()) all = hull(all, stream.time);
  if (all.last == kTimeMax) {
    for (const StreamInfo& stream : recording_->streams()) {
      if (stream.time.last != kTimeMax) all.last = std::max(all.first, stream.time.last);
    }
  }
  return intersect(all, cursor_.filter().time);
}

}  // namespace ptd::replay
