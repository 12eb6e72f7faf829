// ReplayCursor: see replay_cursor.h.
#include "replay/replay_cursor.h"

#include <algorithm>

#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd::replay {

bool chosen(const std::vector<int32_t>& values, int32_t value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

ThreadKey thread_key(int32_t tid, int32_t cpu, uint32_t stream) {
  if (tid > 0 && tid < kIdleThreads) return tid;
  if (tid == 0 && cpu >= 0 && cpu < 1 << 24) return kIdleThreads + cpu;
  return kUnknownThreads + stream;
}

ReplayCursor::ReplayCursor(PageStore& store, const ReplayFilter& filter)
    : store_(&store), filter_(filter), heads_(store.recording().streams().size()) {
  seek(filter.time.first);
}

// A gap may have lost the records that say whose flow is missing, and the edge of a window concerns several threads.
bool ReplayCursor::wanted(const Stretch& stretch) const {
  if (stretch.is_window || (stretch.kind == FlowItem::gap && stretch.tid == -1)) return true;
  return chosen(filter_.pids, stretch.pid) && chosen(filter_.tids, stretch.tid);
}

ThreadKey ReplayCursor::thread_of(uint32_t stream, const Stretch& stretch) const {
  return thread_key(stretch.tid, store_->recording().streams()[stream].cpu, stream);
}

void ReplayCursor::seek(TimeNs time) {
  const std::vector<StreamInfo>& streams = store_->recording().streams();
  time = std::clamp(time, filter_.time.first, filter_.time.last);
  inside_ = false;
  known_ = Known::nothing;
  for (uint32_t i = 0; i < heads_.size(); ++i) {
    const bool never = !chosen(filter_.cpus, streams[i].cpu) || (streams[i].cpu < 0 && !chosen(filter_.tids, streams[i].tid));
    Head head{never ? nullptr : store_->at(i, time), 0};
    while (head.page) {
      const auto& items = head.page->stretches;
      const auto first = std::partition_point(items.begin(), items.end(), [&](const Stretch& item) { return item.time < time; });
      head.at = static_cast<uint32_t>(first - items.begin());
      if (first != items.end()) break;
      PagePtr next = store_->next(*head.page);
      if (!next) break;
      head = {std::move(next), 0};
    }
    heads_[i] = std::move(head);
  }
}

void ReplayCursor::seek_end() {
  if (filter_.time.last != kTimeMax) return seek(TimeNs{filter_.time.last.value + 1});
  inside_ = false;
  known_ = Known::nothing;
  for (uint32_t i = 0; i < heads_.size(); ++i) {
    if (!heads_[i].page) continue;
    heads_[i].page = store_->last(i);
    heads_[i].at = heads_[i].page ? static_cast<uint32_t>(heads_[i].page->stretches.size()) : 0;
  }
}

const Stretch* ReplayCursor::next_of(Head& head) {
  while (head.page) {
    if (head.at == head.page->stretches.size()) {
      PagePtr next = store_->next(*head.page);
      if (!next) return nullptr;
      head = {std::move(next), 0};
      continue;
    }
    const Stretch& item = head.page->stretches[head.at];
    if (filter_.time.last < item.time) return nullptr;
    if (wanted(item)) return &item;
    ++head.at;
  }
  return nullptr;
}

const Stretch* ReplayCursor::previous_of(Head& head) {
  while (head.page) {
    if (head.at == 0) {
      PagePtr previous = store_->previous(*head.page);
      if (!previous) return nullptr;
      const auto size = static_cast<uint32_t>(previous->stretches.size());
      head = {std::move(previous), size};
      continue;
    }
    const Stretch& item = head.page->stretches[head.at - 1];
    if (item.time < filter_.time.first) return nullptr;
    if (wanted(item)) return &item;
    --head.at;
  }
  return nullptr;
}

bool ReplayCursor::enter_next() {
  if (inside_) return true;
  if (known_ == Known::next) {
    const Stretch* own = next_of(heads_[stream_]);
    if (own != nullptr && (!nearest_ || Key{own->time, stream_} < *nearest_)) {
      block_ = insn_ = 0;
      return inside_ = true;
    }
  }
  std::optional<Key> best, second;
  for (uint32_t i = 0; i < heads_.size(); ++i) {
    const Stretch* item = next_of(heads_[i]);
    if (item == nullptr) continue;
    const Key key{item->time, i};
    if (!best || key < *best) {
      second = best;
      best = key;
    } else if (!second || key < *second) {
      second = key;
    }
  }
  known_ = Known::nothing;
  if (!best) return false;
  stream_ = best->stream;
  nearest_ = second;
  known_ = Known::next;
  block_ = insn_ = 0;
  return inside_ = true;
}

bool ReplayCursor::enter_previous() {
  if (inside_ && (block_ != 0 || insn_ != 0)) return true;
  inside_ = false;
  bool is_own = false;
  if (known_ == Known::previous) {
    const Stretch* own = previous_of(heads_[stream_]);
    is_own = own != nullptr && (!nearest_ || *nearest_ < Key{own->time, stream_});
  }
  if (!is_own) {
    std::optional<Key> best, second;
    for (uint32_t i = 0; i < heads_.size(); ++i) {
      const Stretch* item = previous_of(heads_[i]);
      if (item == nullptr) continue;
      const Key key{item->time, i};
      if (!best || *best < key) {
        second = best;
        best = key;
      } else if (!second || *second < key) {
        second = key;
      }
    }
    known_ = Known::nothing;
    if (!best) return false;
    stream_ = best->stream;
    nearest_ = second;
    known_ = Known::previous;
  }
  --heads_[stream_].at;
  block_ = item().kind == FlowItem::blocks ? item().count : 0;
  insn_ = 0;
  return inside_ = true;
}

void ReplayCursor::leave_forward() {
  ++heads_[stream_].at;
  inside_ = false;
  if (known_ == Known::previous) known_ = Known::nothing;
}

void ReplayCursor::leave_backward() {
  inside_ = false;
  if (known_ == Known::next) known_ = Known::nothing;
}

void ReplayCursor::step_out() {
  if (item().kind == FlowItem::blocks && block_ < item().count) return;
  block_ = insn_ = 0;
  leave_forward();
}

void ReplayCursor::set_forward(uint32_t block, uint32_t insn) {
  block_ = block;
  insn_ = insn;
  if (block_ >= item().count) return leave_forward();
  if (insn_ < info(block_).instructions) return;
  insn_ = 0;
  if (++block_ >= item().count) leave_forward();
}

void ReplayCursor::set_backward(uint32_t block, uint32_t insn) {
  block_ = block;
  insn_ = insn;
  if (block_ == 0 && insn_ == 0) leave_backward();
}

std::span<const uint32_t> ReplayCursor::insn_offsets(const BlockInfo& info) {
  if (offsets_of_ == &info) return offsets_;
  offsets_of_ = &info;
  offsets_.clear();
  const Bytes bytes{info.first_byte, info.size_bytes};
  uint32_t at = 0;
  for (uint32_t i = 0; i < info.instructions; ++i) {
    offsets_.push_back(at);
    if (at >= bytes.size()) continue;
    const Bytes rest = bytes.subspan(at);
    at += is_arm(info.mode) ? classify_arm(rest, info.mode).length_bytes : classify(rest, info.mode).length_bytes;
  }
  return offsets_;
}

ReplayPlace ReplayCursor::place(uint32_t block, uint32_t insn) {
  const Stretch& of = item();
  const BlockInfo& code = info(block);
  const std::span<const uint32_t> offsets = insn_offsets(code);
  const uint32_t offset = insn < offsets.size() ? offsets[insn] : 0;
  return {thread(), stream_, of.pid, of.tid, of.space, of.time, code.ip + offset, &code, this->block(block).flags};
}

std::optional<ReplayPlace> ReplayCursor::next_place(ThreadKey thread, size_t most_items) const {
  ReplayCursor ahead(*this);
  for (size_t i = 0; i < most_items && ahead.enter_next(); ++i) {
    if (ahead.item().kind == FlowItem::blocks && (thread == kNoThread || ahead.thread() == thread))
      return ahead.place(ahead.block_, ahead.insn_);
    ahead.leave_forward();
  }
  return std::nullopt;
}

std::optional<ReplayPlace> ReplayCursor::previous_place(ThreadKey thread, size_t most_items) const {
  ReplayCursor back(*this);
  for (size_t i = 0; i < most_items && back.enter_previous(); ++i) {
    if (back.item().kind == FlowItem::blocks && (thread == kNoThread || back.thread() == thread)) {
      const uint32_t block = back.insn_ != 0 ? back.block_ : back.block_ - 1;
      const uint32_t insn = back.insn_ != 0 ? back.insn_ - 1 : back.info(block).instructions - 1U;
      return back.place(block, insn);
    }
    back.leave_backward();
  }
  return std::nullopt;
}

TimeNs ReplayCursor::time() const {
  if (inside_) return item().time;
  ReplayCursor copy(*this);
  if (copy.enter_next()) return copy.item().time;
  return copy.enter_previous() ? copy.item().time : filter_.time.first;
}

const Stretch* ReplayCursor::event_before() const {
  const Head& head = heads_[stream_];
  for (uint32_t at = head.at; at-- > 0;) {
    const Stretch& before = head.page->stretches[at];
    if (before.kind == FlowItem::blocks) return nullptr;
    if (before.kind == FlowItem::event) return &before;
  }
  return nullptr;
}

}  // namespace ptd::replay
