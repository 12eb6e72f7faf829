// CallCondenser: see call_condenser.h.
#include "analysis/call_condenser.h"

#include <algorithm>
#include <utility>


namespace ptd {
namespace {

constexpr uint32_t kMostAtOnce = 1U << 15;  // blocks for one entry, of less than 2^16 instructions each: their sum fits into 32 bits

static_assert(static_cast<uint16_t>(BlockFlag::taken) == 1);  // see CallCondenser::may_end()

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
    node.kind = code.halts ? Kind::halts : code.way == Way::none ? Kind::inside : code.way == Way::jump ? Kind::jumps : Kind::calls;
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
  const bool direct = node.kind == Kind::jumps && node.target.value != 0 && node.function != kNoFunction;
  kinds_[id] = direct && function_at(node.target) == node.function ? Kind::inside : node.kind;
}

void CallCondenser::flush() {
  kept_[kept_count_] = {left_out_, 0, kLeftOut};
  kept_count_ += left_out_ != 0 ? 1 : 0;
  left_out_ = 0;
}

// Whether the flow goes on from this block, for which may_end() holds, in a way that matters.
inline bool CallCondenser::ends_here(const Blocks& blocks, uint32_t at) {
  const Block block = blocks[at];
  const Kind known = kinds_[block.node];
  return known == Kind::calls || known == Kind::halts || ends_after_look(blocks, at);
}
bool CallCondenser::ends_after_look(const Blocks& blocks, uint32_t at) {
  const Block block = blocks[at];
  const Node& here = node(block.node);
  if (here.kind != Kind::jumps) return may_end(here.kind, block);
  if (!may_end(kinds_[block.node], block)) return false;
  const Node& next = node(blocks[at + 1].node);
  return !next.bare_return && (next.function != here.function || here.function == kNoFunction);
}

// Takes [first, last), between which there is no mark, event or gap. `closes`: what follows it is more than a time.
void CallCondenser::condense(const Blocks& blocks, uint32_t first, uint32_t last, bool closes) {
  const Kind* const kinds = kinds_.data();
  const Block* const all = blocks.data();
  const uint32_t open_end = closes ? last - 1 : last;  // blocks up to here are followed by one that the flow went on to
  const auto ends = [&](uint32_t at) { return may_end(kinds[all[at].node], all[at]) && ends_here(blocks, at); };
  Block* out = kept_.data() + kept_count_;
  uint32_t left_out = 0, at = first;
  bool keep = keep_next_;
  for (;;) {
    for (; keep && at < open_end; ++at) {
      keep = ends(at);
      *out++ = all[at];
    }
    for (; at < open_end && !may_end(kinds[all[at].node], all[at]); ++at) left_out += all[at].instructions;
    if (at >= open_end) break;
    keep = ends_here(blocks, at);
    if (keep) {
      *out = {left_out, 0, kLeftOut};
      out += left_out != 0 ? 1 : 0;
      *out++ = all[at];
      left_out = 0;
    } else {
      left_out += all[at].instructions;
    }
    ++at;
  }
  if (closes) {
    *out = {left_out, 0, kLeftOut};
    out += left_out != 0 ? 1 : 0;
    *out++ = all[open_end];
    left_out = 0;
  }
  keep_next_ = keep || closes;
  left_out_ = left_out;
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
  if (kinds_.size() < blocks_.size()) {  // the table of blocks has grown since the batch before
    kinds_.resize(std::max(blocks_.size(), kinds_.size() * 2), Kind::unknown);
    nodes_.resize(kinds_.size());
  }
  // At most each block and an entry in front of it; one more is written without being kept.
  kept_.resize(2 * batch.blocks.size() + 2);
  kept_count_ = 0;
  next_mark_ = next_event_ = next_gap_ = 0;
  left_out_ = 0;
  keep_next_ = true;
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
