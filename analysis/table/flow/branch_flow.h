// BranchFlow: the branches of one stream's flow that were taken, and where tracing starts, ends or is interrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ptdecode/flow.h"
#include "ptdecode/insn.h"
#include "ptdecode/stream_cursor.h"

namespace ptd {

inline constexpr NodeId kNoNode = 0xffffffffU;

/// A change of flow.
struct FlowBranch {
  Block block;                ///< ends in the branch; its node is kNoNode if the branch is no instruction of a block
  uint32_t instructions = 0;  ///< executed in this stream since the branch before, up to and including this one
};

/// The two addresses of a branch.
struct BranchEnds {
  Ip from, to;       ///< valid if has_from, has_to
  uint8_t kind = 0;  ///< see BranchFlow::kind()
  bool has_from = true, has_to = true;
};

/// A branch whose ends are not given by its blocks: an interrupt, a start or an end of tracing, an unknown target.
struct SpecialBranch {
  size_t block = 0;  ///< in the blocks of its run
  BranchEnds ends;
};

/// Blocks in the same context, or one gap. A block is a branch if it is special or has BlockFlag::taken: then from its end to the beginning
/// of the block after it. A run that is no gap has a branch at least.
struct BranchRun {
  Mark context;    ///< of the branches; of a gap, the context in which the flow was lost
  TimeNs time{};   ///< likeliest moment, kTimeMin: unknown
  TimeNs order{};  ///< the same, but never less than that of the run before
  std::optional<Gap> gap;
  size_t first = 0, count = 0;                  ///< see BranchFlow::blocks()
  size_t first_special = 0, special_count = 0;  ///< see BranchFlow::specials()
  uint32_t instructions = 0;                    ///< since the last branch before the run
  uint64_t segment = 0;                         ///< stream offset of the segment in which it begins, which it does not leave
};

/// Takes the items of one stream and returns runs. A branch is complete when its target is known, so runs come later than the items. Runs
/// hold blocks, because a branch would be larger than its blocks, and the columns of a table are made from blocks in one pass. Not
/// thread-safe.
class BranchFlow {
 public:
  /// What a branch needs of its block.
  struct Node {
    Ip ip, from;  ///< of the first and of the last instruction
    uint8_t kind = 0;
    bool known = false;
  };

  /// Takes the item that `cursor` has come to. Always the same cursor. Invalidates what next(), blocks() and specials() returned.
  void take(FlowItem item, const StreamCursor& cursor);
  /// The stream is over: the last branch has no known target.
  void finish() { close(std::nullopt, false); }
  /// Whether the last branch has no target yet and is in a segment before the one at `segment`. For StreamCursor::set_past_end().
  [[nodiscard]] bool is_open_before(uint64_t segment) const { return open_ && runs_.back().segment != segment; }
  /// The next complete run; null: take() must be called first.
  [[nodiscard]] const BranchRun* next() {
    const size_t complete = runs_.size() - (open_ ? 1 : 0);
    return given_ < complete ? &runs_[given_++] : nullptr;
  }
  /// BranchKind::flags of BranchEnds::kind; static.
  [[nodiscard]] const char* kind(uint8_t kind) const { return kinds_[kind]; }
  /// The block of a special branch that is no instruction has the node kNoNode. If the last block is a branch and not special, the block
  /// that it goes to follows in memory.
  [[nodiscard]] std::span<const Block> blocks(const BranchRun& run) const { return std::span(blocks_).subspan(run.first, run.count); }
  /// In the order of the blocks.
  [[nodiscard]] std::span<const SpecialBranch> specials(const BranchRun& run) const {
    return std::span(specials_).subspan(run.first_special, run.special_count);
  }
  /// A number above all nodes of the blocks so far.
  [[nodiscard]] size_t node_limit() const { return table_ != nullptr ? table_->size() : 0; }
  /// `id` is a node of a block. Valid until the next call.
  [[nodiscard]] const Node& node(NodeId id) {
    if (id >= nodes_.size() || !nodes_[id].known) add_node(id);
    return nodes_[id];
  }
  /// Calls use(branch, ends) for each branch of a run.
  template <typename Use>
  void each(const BranchRun& run, const Use& use) {
    const std::span<const Block> blocks = this->blocks(run);
    std::span<const SpecialBranch> left = specials(run);
    uint32_t instructions = run.instructions;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block block = blocks[i];
      instructions += block.instructions;
      if (!left.empty() && left.front().block == i) {
        use(FlowBranch{block, std::exchange(instructions, 0)}, left.front().ends);
        left = left.subspan(1);
      } else if (has(block.flags, BlockFlag::taken)) {
        const Node from = node(block.node);
        use(FlowBranch{block, std::exchange(instructions, 0)},
            BranchEnds{from.from, node(blocks_[run.first + i + 1].node).ip, from.kind, true, true});
      }
    }
  }

 private:
  void add_node(NodeId id);
  uint8_t index_of(const char* kind);
  [[nodiscard]] Insn last_insn(NodeId id, Ip& ip) const;
  void drop_given();
  [[nodiscard]] bool in_run() const { return !new_context_ && !runs_.empty() && !runs_.back().gap; }
  BranchRun& run();
  void add_special(const BranchEnds& ends);
  void close(std::optional<Ip> to, bool ends_trace);
  void take_mark(const StreamCursor& cursor);
  void take_blocks(std::span<const Block> blocks);
  void take_event(const Event& event);
  void take_gap(const Gap& gap);

  const BlockTable* table_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<const char*> kinds_;
  std::vector<Block, RoomFor<Block>> blocks_;
  std::vector<SpecialBranch> specials_;
  std::vector<BranchRun> runs_;
  size_t given_ = 0;                 // runs that next() returned
  bool open_ = false;                // the last branch's target is not known yet
  bool new_context_ = true;          // since the last run
  uint64_t segment_ = ~uint64_t{0};  // of the last item
  Mark context_;
  TimeNs time_{}, order_{};
  uint32_t instructions_ = 0;  // since the last branch
  bool flowing_ = false;       // the flow goes on from the last block
};

}  // namespace ptd
