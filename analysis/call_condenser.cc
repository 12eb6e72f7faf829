// CallCondenser: see call_condenser.h.
#include "analysis/call_condenser.h"

#include <algorithm>
#include <utility>

#include "analysis/look_up_time.h"

namespace ptd {
namespace {

constexpr uint32_t kMostAtOnce = 1U << 15;  // blocks for one entry, of less than 2^16 instructions each: their sum fits into 32 bits

}  // namespace

void CallCondenser::begin_segment(const AuxSegment& segment) {
  if (std::exchange(segment_, segment.stream_offset_bytes) == segment.stream_offset_bytes) return;
  time_ = look_up_time(segment.time);
  if (epoch_time_.contains(time_)) return;
  epoch_time_ = {};
  if (++epoch_ != 0) return;
  nodes_.clear();
  epoch_ = 1;
}

void CallCondenser::refresh(NodeId id, Node& node) {
  const BlockInfo& info = blocks_.info(id);
  if (node.epoch == 0) {
    const BranchCode code = branch_code(info, blocks_.bytes(id));
    node.code = static_cast<uint16_t>((code.way == Way::none ? kPlain : 0) | (code.way == Way::jump ? kJump : 0) |
                                      (code.bare_return ? kBareReturn : 0) | (code.halts ? kHalts : 0));
  }
  const FoundFunction found = finder_.find(info.space, info.ip, time_.first);
  const bool throughout = found.valid.contains(time_);
  node.function = throughout ? found.id : kNoFunction;
  node.epoch = epoch_;
  epoch_time_ = intersect(epoch_time_, throughout ? found.valid : time_);
}

void CallCondenser::flush() {
  kept_[kept_count_] = {left_out_, 0, kLeftOut};
  kept_count_ += left_out_ != 0 ? 1 : 0;
  left_out_ = 0;
}

// Takes [first, last), between which there is no mark, event or gap. `closes`: what follows it is more than a time. The loop has no branch
// that depends on which blocks are kept: it could not be predicted.
void CallCondenser::condense(const Blocks& blocks, uint32_t first, uint32_t last, bool closes) {
  Block* out = kept_.data() + kept_count_;
  Node here = node(blocks[first].node);
  const uint32_t open_end = closes ? last - 1 : last;  // blocks up to here are followed by one that the flow went on to
  uint32_t left_out = left_out_;
  bool keep = keep_;
  const auto give = [&](const Block block, bool ends) {  // ends: the flow goes on in a way that matters
    keep = keep | ends;
    *out = {left_out, 0, kLeftOut};
    out += (left_out != 0) & keep;
    *out = block;
    out += keep;
    left_out = keep ? 0 : left_out + block.instructions;
    keep = ends;
  };
  for (uint32_t i = first; i < open_end; ++i) {
    const Block block = blocks[i];
    const Node next = node(blocks[i + 1].node);
    const bool same = (here.function == next.function) & (here.function != kNoFunction);
    const bool inside = ((next.code & kBareReturn) != 0) | same;
    const bool stays = ((here.code & kPlain) != 0) | (((here.code & kJump) != 0) & inside);
    give(block, (has(block.flags, BlockFlag::taken) & !stays) | ((here.code & kHalts) != 0));
    here = next;
  }
  if (closes) give(blocks[last - 1], true);
  left_out_ = left_out;
  keep_ = keep;
  kept_count_ = static_cast<size_t>(out - kept_.data());
}

// Whether something before block `at` is more than a mark that tells the time.
bool CallCondenser::is_closed(const Batch& batch, uint32_t at) const {
  const auto here = [at](const auto& list, size_t index) { return index < list.size() && list[index].before_block <= at; };
  if (at >= batch.blocks.size() || here(batch.events, next_event_) || here(batch.gaps, next_gap_)) return true;
  for (size_t i = next_mark_; here(batch.marks, i); ++i) {
    const Mark& mark = batch.marks[i];
    if (i == 0 || (mark.tid < 0 && mark.tid != tid_)) return true;
    const Mark& before = batch.marks[i - 1];
    if (mark.tid != before.tid || mark.pid != before.pid || mark.space != before.space) return true;
  }
  return false;
}

void CallCondenser::apply(Batch& batch, const AuxSegment& segment) {
  begin_segment(segment);
  make_room();
  // At most each block and an entry in front of it; one more is written without being kept.
  kept_.resize(2 * batch.blocks.size() + 2);
  kept_count_ = 0;
  left_out_ = 0;
  next_mark_ = next_event_ = next_gap_ = 0;
  keep_ = true;
  const auto count = static_cast<uint32_t>(batch.blocks.size());
  for (uint32_t at = 0;;) {
    flush();
    const auto place = static_cast<uint32_t>(kept_count_);
    uint32_t next = count;
    const auto pass = [&](auto& list, size_t& index) {
      for (; index < list.size() && list[index].before_block <= at; ++index) list[index].before_block = place;
      if (index < list.size()) next = std::min(next, list[index].before_block);
    };
    pass(batch.marks, next_mark_);
    pass(batch.events, next_event_);
    pass(batch.gaps, next_gap_);
    if (at >= count) break;
    next = std::min(std::max(next, at + 1), at + std::min(count - at, kMostAtOnce));
    condense(batch.blocks, at, next, is_closed(batch, next));
    at = next;
  }
  kept_.resize(kept_count_);
  std::swap(batch.blocks, kept_);
}

}  // namespace ptd
