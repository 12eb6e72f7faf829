// What CallFlow knows of a block's code, and until when.
#include <utility>

#include "analysis/call_flow.h"

namespace ptd {

CallFlow::Key::Key(const Node& node) {
  const Kind kind = node.halts                                                                     ? halts
                    : node.way == Way::none                                                        ? inside
                    : node.way == Way::jump && (!node.bare_jump || (node.flags & kFlowNamed) != 0) ? jumps
                                                                                                   : calls;
  // A number that does not fit is compared where the jump is resolved.
  const bool fits = node.function < (kNoFunction >> kFunctionBit);
  const uint32_t entry = (node.flags & kFlowEntry) != 0 ? kEntry : 0;
  word_ = fits ? node.function << kFunctionBit | entry | kind : ~kKindMask | (kind == jumps ? calls : kind);
}

void CallFlow::refresh(NodeId id) {
  Node& node = nodes_->nodes[id];
  Asked& asked = nodes_->asked[id];
  const bool named = (node.flags & kFlowNamed) != 0;
  const bool same = node.known && asked.valid.contains(when()) && (named || asked.pid == pid_);
  if (!node.known) {
    const BranchCode code = branch_code(blocks_->info(id), blocks_->bytes(id));
    node.ip = code.ip;
    node.size_bytes = blocks_->info(id).size_bytes;
    node.way = code.way;
    node.bare_return = code.bare_return;
    node.bare_jump = code.bare_jump;
    node.halts = code.halts;
    node.indirect = code.indirect;
    node.known = true;
  }
  if (!same) {
    const FoundFunction found = finder_.find(blocks_->info(id).space, node.ip, when());
    node.function = found.id;
    node.module = found.module;
    node.flags = flags_of(found);
    node.part = found.part;
    node.bounded = found.named && !finder_.is_plt_stub(found.id);
    node.thunk = node.bare_return && (!found.named || !found.entry || finder_.is_return_thunk(found.id));
    node.entered = kNoFunction;
    find_landings(node, blocks_->info(id).space);
    asked = {found.valid, pid_};
    if (inlined_code_) find_inlined(id);
  }
  epoch_time_ = intersect(epoch_time_, asked.valid);
  nodes_->keys[id] = Key(node);
  ((node.flags & kFlowNamed) != 0 ? nodes_->named : nodes_->unnamed).push_back(id);
}

// Where exceptions and longjmp go on.
void CallFlow::find_landings(Node& node, SpaceId space) {
  node.saves = (node.flags & kFlowEntry) != 0 && finder_.is_setjmp(node.function);
  node.lands = (node.flags & kFlowEntry) == 0 && finder_.is_landing(space, node.ip, when());
  node.slot = finder_.is_probe_slot(node.function, node.ip);
  node.landing =
      node.way == Way::call || node.way == Way::call_direct ? finder_.landing_of(space, Ip{node.next().value - 1}, node.next(), when()) : 0;
}

void CallFlow::Nodes::forget(std::vector<NodeId>& known) {
  for (const NodeId id : known) keys[id] = Key();
  known.clear();
}

// Forgets the keys that may not be right any more.
void CallFlow::check_keys() {
  if (nodes_ == nullptr) return;
  const bool same_epoch = std::exchange(nodes_->epoch, epoch_) == epoch_;
  if (!same_epoch) nodes_->forget(nodes_->named);
  if (std::exchange(nodes_->pid, pid_) != pid_ || !same_epoch) nodes_->forget(nodes_->unnamed);
}

// It is a moment at which some answer is not surely right.
void CallFlow::begin_epoch() {
  epoch_time_ = {};
  ++epoch_;
  check_keys();
}

}  // namespace ptd
