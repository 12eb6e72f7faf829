// How CallFlow and CallTree follow inlined functions.
#include <algorithm>
#include <array>

#include "analysis/call_flow.h"
#include "analysis/call_tree_state.h"

namespace ptd {
namespace {

constexpr size_t kMaxInlined = 256;  // functions in one chain (SourceLines has fewer)
constexpr uint32_t kBits = 32;       // of InlinedPiece::begins

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

// Enters the functions of the chain `wanted` that are not open in the innermost frame.
void CallTree::State::enter_inlined(Now& now, InlineId wanted, uint32_t begins, uint8_t flags) {
  Stack& stack = now.stack;
  const Frame& host = stack.frames.back();
  const uint32_t count = (*chains)[wanted].depth - (*chains)[host.inlined].depth;
  if (count > kMaxFrames - std::min(kMaxFrames, stack.inner.size())) return;
  std::array<InlineId, kMaxInlined> chain;
  uint32_t i = 0;
  for (InlineId id = wanted; id != host.inlined && i < kMaxInlined; id = (*chains)[id].outer) chain[i++] = id;
  while (i-- != 0) {
    enter_one(now, chain[i], flags != 0 || (i < kBits && (begins >> i & 1U) != 0) ? flags : kCallMiddle);
  }
}

// Enters the innermost function of the chain `wanted`; the others are open.
void CallTree::State::enter_one(Now& now, InlineId wanted, uint8_t flags) {
  Stack& stack = now.stack;
  stack.inner.push_back(new_frame);
  Frame& frame = stack.inner.back();
  frame.function = (*chains)[wanted].function;
  frame.kind = FrameKind::inlined;
  frame.flags = flags;
  stack.frames.back().inlined = wanted;
  put_enter(now, frame, FrameKind::inlined, stack.depth() - 1);
}

}  // namespace ptd
