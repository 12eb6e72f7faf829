// How CallFlow and CallTree follow inlined functions.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "analysis/call_flow.h"
#include "analysis/tree/call_tree_state.h"

namespace ptd {
namespace {

constexpr uint32_t kBits = 32;  // of InlinedPiece::begins

}  // namespace

// Finds the inlined functions of a node, whose function is known.
void CallFlow::find_inlined(NodeId id) {
  const Interval valid = inlined_code_->find(blocks_->info(id), {when(), nodes_->nodes[id].function}, found_pieces_);
  nodes_->asked[id].valid = intersect(nodes_->asked[id].valid, valid);
  InlinedNode& node = nodes_->inlined[id];
  const size_t others = found_pieces_.size() - 1;
  if (others > node.count) {
    node.first = static_cast<uint32_t>(nodes_->pieces.size());
    nodes_->pieces.resize(nodes_->pieces.size() + others);
  }
  node.chain = found_pieces_.front().chain;
  node.begins = found_pieces_.front().begins;
  node.count = static_cast<uint32_t>(others);
  std::copy(found_pieces_.begin() + 1, found_pieces_.end(), nodes_->pieces.begin() + node.first);
}

// The flow is in other inlined functions from the next instruction on.
inline void CallFlow::move_inlined(Ip ip, FunctionId function, const InlinedPiece& to) {
  const uint64_t ran = dates_.position() - last_position_;
  const bool held = held_count() != 0;
  const bool same_from = held && (out_.back().from == last_function_ || out_.back().kind == FlowKind::begin);
  if (!same_from || ran > UINT32_MAX) [[unlikely]] {
    FlowStep step;
    step.kind = FlowKind::inlined;
    step.function = function;
    step.to = ip;
    step.inlined = to.chain;
    step.begins = to.begins;
    return push(step);
  }
  chain_ = to.chain;
  ++out_.back().moves;
  moves_.push_back({{}, 0, static_cast<uint32_t>(ran), to.chain, function, to.begins});
  last_position_ = dates_.position();
  dates_.add(false);
  if (dates_.waiting() >= kMaxHeld) [[unlikely]]
    put_out(dates_.anchor_undated(false));
}

// The flow is at this block.
void CallFlow::enter_inlined(const Block& block) {
  const Node& here = node(block.node);
  const InlinedNode inlined = nodes_->inlined[block.node];
  if (inlined.chain != chain_) move_inlined(here.ip, here.function, {0, inlined.chain, inlined.begins});
}

// The flow is at this instruction.
void CallFlow::enter_inlined_at(Ip ip) {
  if (!inlined_code_ || !flowing_) return;
  const FunctionId function = find(ip).id;
  const InlinedPiece piece = inlined_code_->find(space_, ip, {when(), function});
  if (piece.chain != chain_) move_inlined(ip, function, piece);
}

// Passes a block in which the flow enters or leaves inlined functions.
void CallFlow::pass_pieces(const Block& block) {
  enter_inlined(block);
  const Node& here = nodes_->nodes[block.node];
  const InlinedNode inlined = nodes_->inlined[block.node];
  uint32_t ran = 0;
  for (uint32_t i = inlined.first; i < inlined.first + inlined.count && nodes_->pieces[i].instruction < block.instructions; ++i) {
    const InlinedPiece& piece = nodes_->pieces[i];
    dates_.ran(piece.instruction - ran);
    ran = piece.instruction;
    move_inlined(here.ip, here.function, piece);
  }
  dates_.ran(block.instructions - ran);
}

// As pass(), and notes wherever the flow enters or leaves inlined functions.
const Block* CallFlow::pass_inlined(const Block* at, const Block* last) {
  for (uint64_t ran = 0;; ++at) {
    if (!nodes_->keys[at->node].is_known()) [[unlikely]]
      refresh(at->node);
    const InlinedNode& inlined = nodes_->inlined[at->node];
    if (inlined.chain == chain_ && inlined.count == 0) {
      ran += at->instructions;
    } else {
      dates_.ran(std::exchange(ran, 0));
      pass_pieces(*at);
    }
    const Key key = nodes_->keys[at->node];
    if (at != last && (!key.may_end(*at) || key.jumps_inside(nodes_->keys[at[1].node]) || !ends(at))) continue;
    dates_.ran(ran);
    return at;
  }
}

// Enters the innermost function of the chain `wanted`; the others are open.
inline void CallTree::State::enter_one(Now& now, InlineId wanted, uint8_t flags) {
  Stack& stack = now.stack;
  stack.inner.emplace_back(now, (*chains)[wanted].function, flags);
  stack.frames.back().inlined = wanted;
  put_enter(now, stack.inner.back(), FrameKind::inlined);
}

// Enters the functions of the chain `wanted` that are not open in the innermost frame.
void CallTree::State::enter_inlined(Now& now, InlineId wanted, uint32_t begins, uint8_t flags) {
  Stack& stack = now.stack;
  const InlineId open = stack.frames.back().inlined;
  const InlineChains::Chain& innermost = (*chains)[wanted];
  const uint32_t count = innermost.depth - (*chains)[open].depth;
  if (count > kMaxFrames - std::min(kMaxFrames, stack.inner.size())) return;
  const Frame& host = stack.frames.back();
  // The flow has just come to a root.
  const bool began_before = host.kind == FrameKind::root && host.instructions == now.thread.instructions;
  const uint8_t middle = began_before ? kCallNoStart : kCallMiddle;
  if (innermost.outer == open) return enter_one(now, wanted, flags != 0 || (begins & 1U) != 0 ? flags : middle);
  std::array<InlineId, InlineChains::kMaxDepth> chain;
  uint32_t i = 0;
  for (InlineId id = wanted; id != open; id = (*chains)[id].outer) chain[i++] = id;
  while (i-- != 0) {
    enter_one(now, chain[i], flags != 0 || (i < kBits && (begins >> i & 1U) != 0) ? flags : middle);
  }
}

size_t CallTree::State::take(const InlinedRun& moves, std::vector<CallStep>& out) {
  const uint32_t index = thread_of(moves);
  FlowStep by = moves;
  by.kind = FlowKind::inlined;
  Now now{by, index, stacks[index], threads[index], out};
  const size_t before = out.size();
  left_out = moves.taken = 0;
  for (const InlinedMove& move : moves.run) {
    if (moves.last < move.time || out.size() - before + left_out >= moves.limit) break;
    by.time = move.time;
    by.instructions = move.instructions;
    by.cycles = move.cycles;
    by.function = move.function;
    by.inlined = move.chain;
    by.begins = move.begins;
    spend(now);
    if (chains != nullptr) follow_inlined(now);
    ++moves.taken;
  }
  return left_out;
}

}  // namespace ptd
