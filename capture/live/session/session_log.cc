// SessionLog: see session_log.h.
#include "capture/live/session/session_log.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>

#include "capture/live/session/state_fold.h"
#include "image/base/system_error.h"

namespace ptd::live {
namespace {

struct EntryHead {
  uint32_t size_bytes = 0;  // with this head, a multiple of 8
  uint32_t payload_bytes = 0;
  uint16_t kind = 0, ring = 0;
  uint32_t unused = 0;
  uint64_t position = 0;
};
static_assert(sizeof(EntryHead) == 24);

size_t head_words(size_t rings) { return 6 + 2 * rings; }

/// When a record was written. An entry without a time is as old as the entry before it.
uint64_t time_of(const LogEntry& entry, uint64_t before) {
  if (entry.kind == EntryKind::announcement && entry.bytes.size() >= sizeof(AnnouncementHead)) {
    AnnouncementHead head;
    std::memcpy(&head, entry.bytes.data(), sizeof(head));
    return head.time == 0 ? before : head.time;
  }
  const uint64_t time = entry.kind == EntryKind::program ? 0 : trailer_time(entry.bytes);
  return time == 0 ? before : time;
}

}  // namespace

uint64_t trailer_time(Bytes record) {
  uint64_t time = 0;
  if (record.size() >= sizeof(uint64_t) + kTrailerBytes)
    std::memcpy(&time, record.data() + record.size() - kTrailerBytes + sizeof(uint64_t), sizeof(time));
  return time;
}

Result<std::unique_ptr<SessionLog>> SessionLog::create(size_t capacity_bytes, size_t rings) {
  const size_t capacity = capacity_bytes / 8 * 8;
  const size_t bytes = head_words(rings) * sizeof(uint64_t) + 2 * capacity;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return system_error("shared memory");
  return std::unique_ptr<SessionLog>(new SessionLog(static_cast<std::byte*>(memory), capacity, rings));
}

SessionLog::~SessionLog() { munmap(memory_, head_words(rings_) * sizeof(uint64_t) + 2 * capacity_); }

size_t SessionLog::active() const { return std::atomic_ref<uint64_t>(words()[0]).load(std::memory_order_acquire) % 2; }

std::byte* SessionLog::area(size_t which) const { return memory_ + head_words(rings_) * sizeof(uint64_t) + which * capacity_; }

bool SessionLog::put(size_t which, const LogEntry& entry) {
  std::atomic_ref<uint64_t> end(*used(which));
  const uint64_t at = end.load(std::memory_order_relaxed);
  EntryHead head;
  head.payload_bytes = static_cast<uint32_t>(entry.bytes.size());
  head.size_bytes = static_cast<uint32_t>(sizeof(head) + (entry.bytes.size() + 7) / 8 * 8);
  head.kind = static_cast<uint16_t>(entry.kind);
  head.ring = entry.ring;
  head.position = entry.position;
  if (head.size_bytes > capacity_ - at) return false;
  std::memcpy(area(which) + at, &head, sizeof(head));
  if (!entry.bytes.empty()) std::memcpy(area(which) + at + sizeof(head), entry.bytes.data(), entry.bytes.size());
  end.store(at + head.size_bytes, std::memory_order_release);
  return true;
}

void SessionLog::each_of(size_t which, const std::function<void(const LogEntry&)>& on_entry) const {
  const uint64_t end = std::atomic_ref<uint64_t>(*used(which)).load(std::memory_order_acquire);
  for (uint64_t at = 0; at + sizeof(EntryHead) <= end;) {
    EntryHead head;
    std::memcpy(&head, area(which) + at, sizeof(head));
    if (head.size_bytes < sizeof(head) || head.size_bytes > end - at || head.payload_bytes > head.size_bytes - sizeof(head)) break;
    on_entry({static_cast<EntryKind>(head.kind), head.ring, head.position, {area(which) + at + sizeof(head), head.payload_bytes}});
    at += head.size_bytes;
  }
}

void SessionLog::each(const std::function<void(const LogEntry&)>& on_entry) const { each_of(active(), on_entry); }

void SessionLog::append(const LogEntry& entry) {
  if (put(active(), entry)) return;
  fold();
  if (put(active(), entry)) return;
  std::atomic_ref<uint64_t>(words()[1]).fetch_add(1, std::memory_order_relaxed);
}

/// Returns the entries after the state, in order of time: rings are read one after the other, and the records of a process are in those of
/// several cpus.
std::vector<SessionLog::Dated> SessionLog::by_time(size_t which) const {
  std::vector<Dated> entries;
  uint64_t at = 0, time = 0;
  each_of(which, [&](const LogEntry& entry) {
    at += sizeof(EntryHead) + (entry.bytes.size() + 7) / 8 * 8;
    if (at <= *state(which)) return;
    time = time_of(entry, time);
    entries.push_back({time, entry});
  });
  std::stable_sort(entries.begin(), entries.end(), [](const Dated& a, const Dated& b) { return a.time < b.time; });
  return entries;
}

/// Folds the older three quarters into the state, in the other area; its own area stays as it is until the change-over. The state takes
/// half an area at most, the rest a quarter: so there is space afterwards.
void SessionLog::fold() {
  const size_t from = active(), to = 1 - from;
  const uint64_t older = *used(from) / 4 * 3;
  *used(to) = 0;
  std::copy_n(reached(from), rings_, reached(to));
  StateFold folded;
  uint64_t at = 0, left_out = 0;
  each_of(from, [&](const LogEntry& entry) {
    if (entry.ring < rings_) reached(to)[entry.ring] = std::max(reached(to)[entry.ring], entry.position);
    at += sizeof(EntryHead) + (entry.bytes.size() + 7) / 8 * 8;
    if (at <= *state(from)) folded.take(entry);
  });
  const std::vector<Dated> entries = by_time(from);
  at = *state(from);
  size_t next = 0;
  for (; next < entries.size() && at < older; ++next) {
    at += sizeof(EntryHead) + (entries[next].entry.bytes.size() + 7) / 8 * 8;
    folded.take(entries[next].entry);
  }
  if (lives_) {
    std::set<int32_t> named;
    for (size_t i = next; i < entries.size(); ++i) named.insert(StateFold::process_of(entries[i].entry));
    folded.forget([&](int32_t pid) { return !named.contains(pid) && !lives_(pid); });
  }
  folded.each([&](const LogEntry& entry) {
    if (*used(to) > capacity_ / 2 || !put(to, entry)) ++left_out;
  });
  *state(to) = *used(to);
  for (; next < entries.size(); ++next) {
    if (!put(to, entries[next].entry)) ++left_out;
  }
  std::atomic_ref<uint64_t>(words()[1]).fetch_add(left_out, std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(words()[0]).fetch_add(1, std::memory_order_release);
}

std::vector<uint64_t> SessionLog::positions() const {
  const size_t which = active();
  std::vector<uint64_t> positions(reached(which), reached(which) + rings_);
  each_of(which, [&](const LogEntry& entry) {
    if (entry.ring < rings_) positions[entry.ring] = std::max(positions[entry.ring], entry.position);
  });
  return positions;
}

uint64_t SessionLog::used_bytes() const { return *used(active()); }
uint64_t SessionLog::folds() const { return std::atomic_ref<uint64_t>(words()[0]).load(); }
uint64_t SessionLog::forgotten() const { return std::atomic_ref<uint64_t>(words()[1]).load(); }

}  // namespace ptd::live
