// CallCondenser: see call_condenser.h.
#include "analysis/call_condenser.h"

#include <algorithm>
#include <utility>

#include "analysis/look_up_time.h"

namespace ptd {
namespace {

// Blocks that gather() looks at, so that what it finds stays in the first-level cache. Each has less than 2^16 instructions.
constexpr uint32_t kMostAtOnce = 1U << 10;

}  // namespace

void CallCondenser::begin_segment(const AuxSegment& segment) {
  if (std::exchange(segment_, segment.stream_offset_bytes) == segment.stream_offset_bytes) return;
  time_ = look_up_time(segment.time);
  if (epoch_time_.contains(time_)) return;
  epoch_time_ = {};
  std::fill(kinds_.begin(), kinds_.end(), Kind::unknown);
}

void CallCondenser::refresh(NodeId id) {
  const BlockInfo& info = blocks_.info(id);
  Node& node = nodes_[id];
  if (node.kind == Kind::unknown) {
    const BranchCode code = branch_code(info, blocks_.bytes(id));
    node.kind = code.halts ? Kind::halts : code.way == Way::none ? Kind::inside : Kind::branches;
    node.jumps = code.way == Way::jump;
    node.bare_return = code.bare_return;
    node.target = code.target;
  }
  const auto function_at = [&](Ip ip) {
    const FoundFunction found = finder_.find(info.space, ip, time_.first);
    const bool throughout = found.valid.contains(time_);
    epoch_time_ = intersect(epoch_time_, throughout ? found.valid : time_);
    return throughout ? found.id : kNoFunction;
  };
  node.function = function_at(info.ip);
  // A jump has one target if it is direct, so it is known here whether it stays in the function.
  const bool direct = node.kind == Kind::branches && node.target.value != 0 && node.function != kNoFunction;
  kinds_[id] = direct && function_at(node.target) == node.function ? Kind::inside : node.kind;
}

// Finds the blocks of [first, last) that may have to be kept, and counts instructions. The loop has no branch that depends on the blocks: it
// could not be predicted.
void CallCondenser::gather(const Blocks& blocks, uint32_t first, uint32_t last) {
  branching_.resize(kMostAtOnce + 1);
  ran_before_.resize(kMostAtOnce + 1);
  uint32_t* found = branching_.data();
  uint32_t* ran_before = ran_before_.data();
  uint32_t ran = 0;
  for (uint32_t i = first; i < last; ++i) {
    const Block block = blocks[i];
    *ran_before++ = ran;
    ran += block.instructions;
    *found = i;
    found += may_end(block) ? 1 : 0;
  }
  *ran_before = ran;
  *found = ~uint32_t{0};
  gathered_ = given_ = first;
  next_branching_ = 0;
}

// Blocks up to `at` that are not kept.
void CallCondenser::leave_out_before(uint32_t at) {
  const uint32_t ran = ran_before_[at - gathered_] - ran_before_[given_ - gathered_];
  kept_[kept_count_] = {ran, 0, kLeftOut};
  kept_count_ += ran != 0 ? 1 : 0;
  given_ = at;
}

// Whether the flow goes on from this block to the next one in a way that matters.
bool CallCondenser::ends_here(const Blocks& blocks, uint32_t at) {
  const Block block = blocks[at];
  const Node& here = node(block.node);
  if (here.kind == Kind::halts) return true;
  if (!may_end(block)) return false;  // it was looked up just now
  if (!here.jumps) return true;
  const FunctionId function = here.function;
  const Node& next = node(blocks[at + 1].node);
  return !next.bare_return && (next.function != function || function == kNoFunction);
}

// Takes [first, last), between which there is no mark, event or gap. `closes`: what follows it is more than a time.
void CallCondenser::condense(const Blocks& blocks, uint32_t first, uint32_t last, bool closes) {
  if (std::exchange(keep_next_, false)) keep(blocks[first], first);
  for (; branching_[next_branching_] < last; ++next_branching_) {
    const uint32_t at = branching_[next_branching_];
    if ((closes && at + 1 == last) || !ends_here(blocks, at)) continue;
    if (given_ <= at) keep(blocks[at], at);
    keep_next_ = at + 1 == last;
    if (!keep_next_) keep(blocks[at + 1], at + 1);
  }
  if (!closes) return;
  if (given_ < last) keep(blocks[last - 1], last - 1);
  keep_next_ = true;
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
  if (kinds_.size() < blocks_.size()) {  // the table of blocks has grown since the batch before
    kinds_.resize(std::max(blocks_.size(), kinds_.size() * 2), Kind::unknown);
    nodes_.resize(kinds_.size());
  }
  // At most each block and an entry in front of it; one more is written without being kept.
  kept_.resize(2 * batch.blocks.size() + 2);
  kept_count_ = 0;
  next_mark_ = next_event_ = next_gap_ = 0;
  keep_next_ = true;
  const auto count = static_cast<uint32_t>(batch.blocks.size());
  gather(batch.blocks, 0, std::min(count, kMostAtOnce));
  for (uint32_t at = 0;;) {
    leave_out_before(at);
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
    if (at == gathered_ + kMostAtOnce) gather(batch.blocks, at, at + std::min(count - at, kMostAtOnce));
    next = std::min(next, gathered_ + kMostAtOnce);
    condense(batch.blocks, at, next, is_closed(batch, next));
    at = next;
  }
  kept_.resize(kept_count_);
  std::swap(batch.blocks, kept_);
}

}  // namespace ptd
