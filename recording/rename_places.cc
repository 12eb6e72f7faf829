// RenamePlaces: see rename_places.h.
#include "recording/rename_places.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "decoder/batch_edit.h"
#include "ptdecode/insn.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {
namespace {

constexpr size_t kMostHeldBlocks = 1U << 20;  // between two timing packets
// Blocks and marks, for all renames of a segment: the names of the others change as the times say.
constexpr uint64_t kMostSearched = 1U << 22;
constexpr size_t kMostWanted = 64;  // places that are kept for renames that follow

int32_t thread_of(const Mark& mark, const AuxSegment& segment) { return mark.tid < 0 ? segment.tid : mark.tid; }

template <typename Told>
void raise_time(Told& told, TimeNs floor) {
  if (!is_dated(told) || !(told.time.first < floor)) return;
  told.time = {floor, std::max(told.time.last, floor)};
}

// How the flow stops before a block, by the events there.
struct Stop {
  bool begins = false;   // tracing starts
  bool leaves = false;   // user code was left, but not by an interrupt
  bool stopped = false;  // for any reason
};

Stop stop_at(const std::vector<Event>& events, size_t& next, uint32_t block) {
  Stop stop;
  for (; next < events.size() && events[next].before_block <= block; ++next) {
    const Event& event = events[next];
    if ((event.flags & kEventStatus) != 0) continue;
    if (event.kind == EventKind::enabled) stop.begins = true;
    const bool unseen = event.kind == EventKind::async_branch && (event.flags & kEventHasTo) == 0;  // Arm: SVC, too
    stop.leaves |= event.kind == EventKind::disabled || unseen;
    stop.stopped |= event.kind == EventKind::disabled || event.kind == EventKind::async_disabled || unseen;
  }
  return stop;
}

enum class Call : uint8_t { unknown, renames, other };

// What a block's system call does, if "mov $NUMBER,%eax" is one of the few instructions before it ([Linux]
// arch/x86/entry/syscalls/syscall_64.tbl).
Call call_at_end(const BlockTable& table, NodeId node) {
  constexpr uint8_t kMovEax = 0xb8;
  constexpr int kFew = 4;
  constexpr std::array<uint32_t, 3> kRenames = {59, 157, 322};           // execve, prctl, execveat
  constexpr std::array<uint32_t, 5> kMayRename = {1, 18, 20, 296, 426};  // what writes files: /proc/self/comm
  if (table.info(node).mode != ExecMode::bits64) return Call::unknown;
  const Bytes bytes = table.bytes(node);
  uint32_t number = 0;
  int since = kFew;
  for (size_t at = 0; at < bytes.size(); ++since) {
    const Insn insn = classify(bytes.subspan(at), ExecMode::bits64);
    if (insn.cls == InsnClass::bad) break;
    if (insn.detail == InsnDetail::syscall && since < kFew) {
      if (std::ranges::find(kRenames, number) != kRenames.end()) return Call::renames;
      return std::ranges::find(kMayRename, number) == kMayRename.end() ? Call::other : Call::unknown;
    }
    if (insn.length_bytes == 5 && std::to_integer<uint8_t>(bytes[at]) == kMovEax) {
      std::memcpy(&number, bytes.data() + at + 1, sizeof number);
      since = 0;
    }
    at += insn.length_bytes;
  }
  return Call::unknown;
}

}  // namespace

std::vector<Rename> renames_of(const RecordingData& data, int32_t tid) {
  std::vector<Rename> renames;
  const auto found = data.comms.find(tid);
  if (found == data.comms.end()) return renames;
  for (size_t i = 1; i < found->second.size(); ++i) {  // the first name is also that before it
    const TimeNs time = found->second[i].first;
    if (!data.given_comms.contains({tid, time})) renames.push_back({time, tid});
  }
  return renames;
}

std::vector<Rename> renames_of(const RecordingData& data) {
  std::vector<Rename> renames;
  for (const auto& [tid, names] : data.comms) {
    const std::vector<Rename> own = renames_of(data, tid);
    renames.insert(renames.end(), own.begin(), own.end());
  }
  std::ranges::stable_sort(renames, {}, &Rename::time);
  return renames;
}

void RenamePlaces::begin(const AuxSegment& segment) {
  decoder_->begin(segment);
  segment_ = segment;
  held_.clear();
  placed_block_ = kNoBlock;
  floor_ = kTimeMin;
  next_ = end_ = 0;
  searched_ = 0;
  if (segment.time.first == kTimeMin) return;  // not dated
  next_ = static_cast<size_t>(std::ranges::lower_bound(renames_, segment.time.first, {}, &Rename::time) - renames_.begin());
  end_ = static_cast<size_t>(std::ranges::upper_bound(renames_, segment.time.last, {}, &Rename::time) - renames_.begin());
  skip_others();
}

// Skips renames of threads that are on other cpus then.
void RenamePlaces::skip_others() {
  for (; next_ < end_; ++next_) {
    const Rename& rename = renames_[next_];
    if (segment_.cpu < 0 ? rename.tid == segment_.tid : contexts_.at_cpu(segment_.cpu, rename.time).tid == rename.tid) return;
  }
}

bool RenamePlaces::fill(Batch& batch, size_t batch_blocks) {
  for (;;) {
    bool more = false;
    if (is_empty(held_)) {
      more = decoder_->next(batch, batch_blocks);
    } else {
      std::swap(batch, held_);
      more = decoder_->next(read_, batch_blocks);
      append_batch(batch, read_);
    }
    raise(batch);
    while (next_ < end_ && place_next(batch, more)) {
      ++next_;
      skip_others();
    }
    if (!more) return false;
    if (next_ < end_) hold_back(batch);
    if (!is_empty(batch)) return true;
  }
}

// Returns false if flow that follows must be known first.
bool RenamePlaces::place_next(Batch& batch, bool more) {
  const Rename& rename = renames_[next_];
  if (searched_ > kMostSearched) return true;
  const auto later =
      std::ranges::find_if(batch.marks, [&](const Mark& mark) { return is_dated(mark) && !(likeliest(mark) < rename.time); });
  const auto end_mark = static_cast<size_t>(later - batch.marks.begin());
  if (end_mark == batch.marks.size() && more) return false;
  const Window window = window_of(batch, end_mark);
  searched_ += window.end_block - window.first_block + window.end_mark - window.first_mark + 1;
  Places places = end_mark == 0 ? Places{} : find_places(batch, window);
  if (!places.has_flow && places.left.empty() && places.renaming.empty() && !places.begun) {  // all of its flow is after it
    if (later == batch.marks.end() || thread_of(*later, segment_) != rename.tid) return true;
    put(batch, window, window.end_block);
    return true;
  }
  if (const std::optional<Place> place = choose(places, window)) put(batch, window, place->block);
  return true;
}

RenamePlaces::Window RenamePlaces::window_of(const Batch& batch, size_t end_mark) const {
  Window window;
  window.end_mark = window.first_mark = end_mark;
  const bool at_end = end_mark == batch.marks.size();
  window.end_block = at_end ? static_cast<uint32_t>(batch.blocks.size()) : batch.marks[end_mark].before_block;
  window.end = at_end ? segment_.time.last : likeliest(batch.marks[end_mark]);
  while (window.first_mark > 0) {
    const Mark& mark = batch.marks[window.first_mark - 1];
    if (is_dated(mark) && window.begin != kTimeMin && likeliest(mark) != window.begin) break;
    if (is_dated(mark)) window.begin = likeliest(mark);
    --window.first_mark;
  }
  if (window.first_mark < end_mark) window.first_block = batch.marks[window.first_mark].before_block;
  return window;
}

RenamePlaces::Places RenamePlaces::find_places(const Batch& batch, const Window& window) const {
  const int32_t tid = renames_[next_].tid;
  Places places;
  size_t mark = window.first_mark, event = place_of(batch, window.first_block).events;
  bool before = false;  // the block before is of the thread
  for (uint32_t block = window.first_block; block <= window.end_block; ++block) {
    while (mark + 1 < batch.marks.size() && batch.marks[mark + 1].before_block <= block) ++mark;
    const bool first = block == window.first_block, here = thread_of(batch.marks[mark], segment_) == tid;
    const Stop stop = stop_at(batch.events, event, block);
    const bool in_kernel = !first && is_kernel_half(blocks().info(batch.blocks[block - 1].node).ip);
    const bool used = block == placed_block_;  // by the rename before
    const Call call = stop.leaves && block != 0 ? call_at_end(blocks(), batch.blocks[block - 1].node) : Call::unknown;
    if (first && stop.begins && !stop.stopped && here) places.begun = Place{block, 0};
    const bool left = (stop.leaves && call != Call::other) || in_kernel;
    if (left && !used && (before || here)) (call == Call::renames ? places.renaming : places.left).push_back({block, places.ran});
    places.has_flow = places.has_flow || before;
    before = here;
    if (block < window.end_block) places.ran += batch.blocks[block].instructions;
  }
  return places;
}

std::optional<RenamePlaces::Place> RenamePlaces::choose(Places& places, const Window& window) const {
  const Rename& rename = renames_[next_];
  size_t wanted = 1;  // places for this one and for those that follow
  for (size_t i = next_ + 1; i < end_ && renames_[i].time < window.end && wanted < kMostWanted; ++i)
    wanted += renames_[i].tid == rename.tid ? 1 : 0;
  if (wanted <= places.renaming.size()) places.left.clear();
  std::vector<Place>& from = places.left;
  from.insert(from.end(), places.renaming.begin(), places.renaming.end());
  std::ranges::sort(from, {}, &Place::block);
  if (from.empty()) return places.begun;  // else another thread wrote the record, whatever this one did then
  const bool ends = window.end != kTimeMax && window.begin < window.end;
  if (!ends && from.size() > 1 && from.back().block == window.end_block) from.pop_back();  // the end of the trace, most likely
  from.resize(from.size() - std::min(wanted, from.size()) + 1);
  const auto passed = static_cast<double>(rename.time.value - window.begin.value),
             all = static_cast<double>(window.end.value - window.begin.value);
  const double ran = static_cast<double>(places.ran) * (ends ? passed / all : 1);
  return *std::ranges::min_element(from, {}, [ran](const Place& place) { return std::abs(static_cast<double>(place.ran) - ran); });
}

// Puts the next rename before a block of the window.
void RenamePlaces::put(Batch& batch, const Window& window, uint32_t block) {
  placed_block_ = block;
  floor_ = renames_[next_].time;
  size_t at = window.first_mark;
  while (at < window.end_mark && batch.marks[at].before_block < block) ++at;
  if (at > window.first_mark) {
    const bool marked = at < window.end_mark && batch.marks[at].before_block == block;
    Mark before = batch.marks[at - 1], after = before;
    before.before_block = after.before_block = block;
    raise_time(before, TimeNs{floor_.value - 1});  // what is dated by this mark keeps the old name
    batch.marks.insert(batch.marks.begin() + static_cast<std::ptrdiff_t>(at++), before);
    if (!marked) batch.marks.insert(batch.marks.begin() + static_cast<std::ptrdiff_t>(at), after);
  }
  for (size_t i = at; i < batch.marks.size(); ++i) raise_time(batch.marks[i], floor_);
  bool begins = false;  // what stopped the flow is before the rename
  for (size_t i = place_of(batch, block).events; i < batch.events.size(); ++i) {
    begins = begins || batch.events[i].before_block > block || batch.events[i].kind == EventKind::enabled;
    if (begins) raise_time(batch.events[i], floor_);
  }
}

// Raises the times of flow that follows the batch with the last rename.
void RenamePlaces::raise(Batch& batch) {
  if (floor_ == kTimeMin || batch.marks.empty()) return;
  if (is_dated(batch.marks.front()) && !(batch.marks.front().time.first < floor_)) {
    floor_ = kTimeMin;
    return;
  }
  for (Mark& mark : batch.marks) raise_time(mark, floor_);
  for (Event& event : batch.events) raise_time(event, floor_);
}

// Holds the flow since the last timing packet.
void RenamePlaces::hold_back(Batch& batch) {
  const Window window = window_of(batch, batch.marks.size());
  const uint32_t placed = std::exchange(placed_block_, kNoBlock);
  if (window.end_block - window.first_block > kMostHeldBlocks || window.first_mark == batch.marks.size()) return;
  const uint32_t first = window.first_block - std::min(window.first_block, 1U);  // with the block that may have left user code
  split(batch, place_of(batch, first), held_);
  if (placed != kNoBlock && placed >= first) placed_block_ = placed - first;
}

}  // namespace ptd
