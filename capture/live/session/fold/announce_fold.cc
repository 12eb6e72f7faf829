// AnnounceFold: see announce_fold.h.
#include "capture/live/session/fold/announce_fold.h"

#include <algorithm>
#include <utility>

namespace ptd::live {
namespace {

constexpr size_t kMostRuntimes = 256;
constexpr uint32_t kNoRuntime = ~uint32_t{0};  // of the record after a loss

Announcement bracket(uint32_t runtime, bool begin) {
  Announcement what;
  what.kind = AnnounceKind::relist;
  what.runtime = runtime;
  what.begin = begin;
  return what;
}

}  // namespace

void AnnounceFold::take(TimeNs time, Bytes record) {
  const auto parsed = parse_announce_record(record);
  if (!parsed.ok()) return;  // its number is missing then
  earliest_ = std::min(earliest_, time);
  latest_ = std::max(latest_, time);
  Instance& instance = instances_[parsed->instance];
  if (parsed->kind == AnnounceKind::attach && !instance.attached) {
    instance.attached = true;
    instance.next = parsed->size_bytes;
    instance.settled = time;
  } else if (parsed->kind == AnnounceKind::attach || parsed->kind == AnnounceKind::detach) {
    if (instance.readers.size() < AnnounceJoiner::kMostReaders) instance.readers.push_back({time, {record.begin(), record.end()}});
  } else if (parsed->seq >= instance.next) {  // else an earlier reader took it too
    size_bytes_ += record.size();
    (void)instance.records.try_emplace(parsed->seq, Raw{time, {record.begin(), record.end()}});
  }
}

// Takes what is in the live code out of the range. What is left of a function on either side stays, without its lines.
void AnnounceFold::cut(uint64_t address, uint64_t size_bytes) {
  if (size_bytes > ~address) return;
  const uint64_t end = address + size_bytes;
  for (auto at = live_.lower_bound(end); at != live_.begin(); at = live_.lower_bound(end)) {
    --at;
    const uint64_t first = at->first, last = first + at->second.size_bytes;
    if (last <= address) return;
    const Announcement old = std::move(at->second);
    live_.erase(at);
    const auto keep = [&](uint64_t from, uint64_t to) {
      Announcement part = old;
      part.address = from;
      part.size_bytes = to - from;
      part.lines.clear();
      if (!old.code.empty()) {
        const auto begin = old.code.begin() + static_cast<std::ptrdiff_t>(from - first);
        part.code.assign(begin, begin + static_cast<std::ptrdiff_t>(to - from));
      }
      live_[from] = std::move(part);
    };
    if (first < address) keep(first, address);
    if (last > end) keep(end, last);
  }
}

// Of a function whose bytes are not known, or a patch without them, what the range overlaps is not known any more.
void AnnounceFold::patch(const Announcement& what) {
  if (what.code.empty()) return cut(what.address, what.size_bytes);
  const uint64_t end = what.address + what.size_bytes;
  auto at = live_.upper_bound(what.address);
  if (at != live_.begin()) --at;
  while (at != live_.end() && at->first < end) {
    const uint64_t first = std::max(at->first, what.address), last = std::min(at->first + at->second.size_bytes, end);
    std::vector<std::byte>& code = at->second.code;
    const uint64_t start = (at++)->first;
    if (first >= last) continue;
    if (code.empty()) {
      cut(first, last - first);
      continue;
    }
    const auto from = what.code.begin() + static_cast<std::ptrdiff_t>(first - what.address);
    std::copy(from, from + static_cast<std::ptrdiff_t>(last - first), code.begin() + static_cast<std::ptrdiff_t>(first - start));
  }
}

void AnnounceFold::change(Announcement& what) {
  if (what.kind == AnnounceKind::patch) return patch(what);
  if (what.kind == AnnounceKind::unload) return cut(what.address, what.size_bytes);
  if (what.kind == AnnounceKind::move) {
    const auto known = live_.find(what.old_address);
    if (known != live_.end() && known->second.size_bytes == what.size_bytes) {
      if (what.code.empty()) what.code = known->second.code;
      if (what.name.empty()) what.name = known->second.name;
      if (what.lines.empty()) std::tie(what.file, what.lines) = std::tie(known->second.file, known->second.lines);
    }
    if (what.old_address != what.address) cut(what.old_address, what.size_bytes);
  }
  cut(what.address, what.size_bytes);
  what.kind = AnnounceKind::load;
  what.relisted = true;
  what.begin = false;
  live_[what.address] = std::move(what);
}

void AnnounceFold::apply(Instance& instance, Announcement& what) {
  const Key key{what.runtime, what.kind, what.address, what.size_bytes};
  const bool relist = what.kind == AnnounceKind::relist;
  if (what.runtime == kNoRuntime) return;
  if ((relist ? !what.begin : !what.relisted) && instance.runtimes.size() < kMostRuntimes) instance.runtimes.insert(what.runtime);
  if (what.begin) {
    (void)instance.begun.try_emplace(key, std::move(what));
    return;
  }
  const bool begun = instance.begun.erase(key) != 0;
  if (!relist) return change(what);
  if (begun) instance.relisted.insert(what.runtime);
  if (std::includes(instance.relisted.begin(), instance.relisted.end(), instance.runtimes.begin(), instance.runtimes.end()))
    instance.lost = false;
}

// Adds the reader so far, and those that others followed. The last one that ended is kept, because nobody may listen since then.
void AnnounceFold::settle_readers(Instance& instance, TimeNs until, AnnounceJoiner& joiner) {
  const auto is_attach = [](const Raw& raw) { return parse_announce_record(raw.bytes)->kind == AnnounceKind::attach; };
  const auto later = std::find_if(instance.readers.begin(), instance.readers.end(), [&](const Raw& raw) { return raw.time > until; });
  const auto kept = std::find_if(std::make_reverse_iterator(later), instance.readers.rend(), is_attach).base();
  const std::vector<std::byte> attach = encode_reader_record(AnnounceKind::attach, 0, instance.next);
  joiner.add(*parse_announce_record(attach), instance.listened_since());
  for (auto at = instance.readers.begin(); at != kept; ++at) {
    joiner.add(*parse_announce_record(at->bytes), at->time);
    instance.settled = std::max(instance.settled, at->time);
  }
  instance.readers.erase(instance.readers.begin(), kept);
}

// Applies the records up to the first that is later than `until`, in order of their numbers.
void AnnounceFold::settle(Instance& instance, TimeNs until) {
  AnnounceJoiner joiner;
  settle_readers(instance, until, joiner);
  auto at = instance.records.begin();
  for (; at != instance.records.end() && at->second.time <= until; ++at) {
    joiner.add(*parse_announce_record(at->second.bytes), at->second.time);
    instance.settled = std::max(instance.settled, at->second.time);
    instance.next = at->first + 1;
  }
  AnnounceHistory history = joiner.finish();
  instance.records.erase(instance.records.begin(), at);
  auto gap = history.gaps.begin();
  const auto lose = [&](uint64_t before) {
    for (; gap != history.gaps.end() && gap->first_seq <= before; ++gap) {
      instance.lost = true;
      instance.relisted.clear();
      instance.begun.clear();
    }
  };
  for (Announcement& what : history.announcements) {
    lose(what.seq);
    apply(instance, what);
  }
  lose(instance.next);
  settled_ = std::max(settled_, instance.settled);
}

void AnnounceFold::each(const std::function<void(TimeNs time, Bytes record)>& on_record) {
  if (instances_.empty()) return;
  const uint64_t span = latest_.value - earliest_.value;
  for (auto& [id, instance] : instances_) settle(instance, TimeNs{latest_.value - std::min(span / 4, kSettleNs)});
  const auto attach = [&](uint64_t id, TimeNs time, uint64_t next) {
    on_record(time, encode_reader_record(AnnounceKind::attach, id, next));
  };
  uint64_t number = 0;
  const auto tell = [&](uint64_t id, TimeNs time, const Announcement& what) {
    Announcement numbered = what;
    numbered.seq = number;
    for (const std::vector<std::byte>& record : encode_announcement(numbered, id)) {
      on_record(time, record);
      ++number;
    }
  };
  if (!live_.empty()) attach(kState, settled_, 0);
  for (const auto& [address, what] : live_) tell(kState, settled_, what);
  for (const auto& [id, instance] : instances_) {
    if (id == kState) continue;
    if (instance.is_unread()) {
      for (const Raw& reader : instance.readers) on_record(reader.time, reader.bytes);
      continue;
    }
    std::vector<Announcement> before;
    for (const uint32_t runtime : instance.runtimes) before.insert(before.end(), {bracket(runtime, true), bracket(runtime, false)});
    uint64_t count = before.size() + (instance.lost ? 2 : 0);
    for (const auto& [key, what] : instance.begun) count += encode_announcement(what, id).size();
    number = instance.next - std::min(instance.next, count);
    attach(id, instance.listened_since(), number);
    for (const Announcement& what : before) tell(id, instance.settled, what);
    if (instance.lost) {  // a number without a record, and one after it
      ++number;
      tell(id, instance.settled, bracket(kNoRuntime, true));
    }
    for (const auto& [key, what] : instance.begun) tell(id, instance.settled, what);
    for (const auto& [seq, raw] : instance.records) on_record(raw.time, raw.bytes);
    for (const Raw& reader : instance.readers) on_record(reader.time, reader.bytes);
  }
}

}  // namespace ptd::live
