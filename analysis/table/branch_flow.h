// BranchFlow: the branches of one stream's flow that were taken, and where tracing starts, ends or is interrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ptdecode/flow.h"
#include "ptdecode/insn.h"
#include "ptdecode/stream_cursor.h"

namespace ptd {

inline constexpr NodeId kNoNode = 0xffffffffU;

/// A change of flow.
struct FlowBranch {
  Ip from, to;                ///< valid if has_from, has_to
  NodeId node = kNoNode;      ///< the block that ends in the branch, if it is an instruction of a block
  NodeId to_node = kNoNode;   ///< the block that begins at `to`, if that comes next
  uint32_t instructions = 0;  ///< executed in this stream since the branch before, up to and including this one
  uint16_t block_flags = 0;   ///< of the block that ends in the branch
  uint8_t kind = 0;           ///< see BranchFlow::kind()
  bool has_from : 1 = false, has_to : 1 = false;
};
static_assert(sizeof(FlowBranch) == 32);

/// Branches in the same context, or one gap.
struct BranchRun {
  Mark context;           ///< of the branches; of a gap, the context in which the flow was lost
  TimeNs time{};          ///< likeliest moment, kTimeMin: unknown
  TimeNs order{};         ///< the same, but never less than that of the run before
  std::optional<Gap> gap;
  size_t first = 0, count = 0;  ///< see BranchFlow::branches()
};

/// Takes the items of one stream and returns runs. A branch is complete when its target is known, so runs come later than the items. Not
/// thread-safe.
class BranchFlow {
 public:
  /// Takes the item that `cursor` has come to. Always the same cursor. Invalidates what next() and branches() returned.
  void take(FlowItem item, const StreamCursor& cursor);
  /// The stream is over: the last branch has no known target.
  void finish() { close(std::nullopt, false); }
  /// The next complete run; null: take() must be called first.
  [[nodiscard]] const BranchRun* next() {
    const size_t complete = runs_.size() - (open_ ? 1 : 0);
    return given_ < complete ? &runs_[given_++] : nullptr;
  }
  /// BranchKind::flags of FlowBranch::kind; static.
  [[nodiscard]] const char* kind(uint8_t kind) const { return kinds_[kind]; }
  [[nodiscard]] std::span<const FlowBranch> branches(const BranchRun& run) const {
    return std::span(branches_).subspan(run.first, run.count);
  }

 private:
  /// What a branch needs of its block.
  struct Node {
    Ip ip, from;  ///< of the first and of the last instruction
    uint8_t kind = 0;
    bool known = false;
  };
  void add_node(NodeId id);
  uint8_t index_of(const char* kind);
  [[nodiscard]] Insn last_insn(NodeId id, Ip& ip) const;
  void drop_given();
  BranchRun& run(size_t first);
  void add(const FlowBranch& branch);
  void close(std::optional<Ip> to, bool ends_trace);
  void take_mark(const StreamCursor& cursor);
  void take_blocks(std::span<const Block> blocks);
  void take_event(const Event& event);
  void take_gap(const Gap& gap);

  const BlockTable* table_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<const char*> kinds_;
  std::vector<FlowBranch, RoomFor<FlowBranch>> branches_;
  std::vector<BranchRun> runs_;
  size_t given_ = 0;        // runs that next() returned
  bool open_ = false;       // the last branch's target is not known yet
  bool new_context_ = true; // since the last run
  Mark context_;
  TimeNs time_{}, order_{};
  uint32_t instructions_ = 0;
  bool flowing_ = false;  // the flow goes on from the last block
};

}  // namespace ptd
