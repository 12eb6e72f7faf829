// CallCondenser: removes from a batch the blocks that do not change the call stack.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/branch_code.h"
#include "analysis/function_finder.h"
#include "recording/batch_filter.h"

namespace ptd {

/// Flag of an entry that replaces blocks left out of a condensed batch: `node` is the number of their instructions. The branches between
/// the block before it and the block after it call nothing, return from nothing and stay in one function.
inline constexpr uint16_t kLeftOut = 0x8000;
constexpr bool is_left_out(const Block& block) { return (block.flags & kLeftOut) != 0; }

/// Runs on the decoding threads, so that less output is queued and the single thread that follows the calls has less work. CallFlow
/// gives the same steps for a condensed batch as for the full one.
///
/// It keeps the blocks at both ends of any branch that may be more than a jump within a function, of an instruction that halts the core,
/// and of an event, a gap or a mark that changes more than the time. A jump counts as within a function only if both of its ends belong to
/// that function throughout the segment.
class CallCondenser final : public BatchFilter {
 public:
  /// `tid` of the stream, -1 for a per-cpu stream. `functions` must outlive the condenser; it is used only to compare functions.
  CallCondenser(const Recording& recording, const BlockTable& blocks, FunctionTable& functions, int32_t tid)
      : blocks_(blocks), tid_(tid), finder_(recording.symbolizer(), recording.timeline(), functions) {}
  void apply(Batch& batch, const AuxSegment& segment) override;

 private:
  /// What may follow a block.
  enum class Kind : uint8_t {
    inside = 0,    ///< the flow stays in the function and calls nothing
    jumps = 1,     ///< if its branch is taken (BlockFlag::taken, the same bit), it may leave the function
    halts = 2,     ///< the core halts
    calls = 5,     ///< if it is taken, it calls or returns
    unknown = 10,  ///< not looked up in this epoch (see epoch_time_)
  };
  struct Node {
    FunctionId function = kNoFunction;  ///< kNoFunction: another one in some part of the segment
    Kind kind = Kind::unknown;          ///< whatever functions the two ends of its branch belong to. unknown: the code was not read
    bool bare_return = false;           ///< BranchCode::bare_return
    Ip target;                          ///< BranchCode::target
  };
  const Node& node(NodeId id) {
    if (kinds_[id] == Kind::unknown) [[unlikely]] refresh(id);
    return nodes_[id];
  }
  void refresh(NodeId id);
  void begin_segment(const AuxSegment& segment);
  void condense(const Blocks& blocks, uint32_t first, uint32_t last, bool closes);
  [[nodiscard]] bool ends_here(const Blocks& blocks, uint32_t at);
  [[nodiscard]] bool ends_after_look(const Blocks& blocks, uint32_t at);
  [[nodiscard]] bool is_closed(const Batch& batch, uint32_t at) const;
  /// Whether the flow may go on from `block` in a way that matters.
  [[nodiscard]] static bool may_end(Kind kind, const Block& block) { return (static_cast<uint8_t>(kind) & ((block.flags & 1U) | 2U)) != 0; }
  void flush();

  const BlockTable& blocks_;
  const int32_t tid_;
  FunctionFinder finder_;
  std::vector<Kind> kinds_;  ///< by node, apart from nodes_: the loop over all blocks reads nothing else of a node
  std::vector<Node> nodes_;
  Interval epoch_time_;                ///< moments at which all answers of this epoch are right
  Interval time_{kTimeMax, kTimeMin};  ///< of the segment
  std::optional<uint64_t> segment_;    ///< its offset
  size_t next_mark_ = 0, next_event_ = 0, next_gap_ = 0;
  Blocks kept_;
  size_t kept_count_ = 0;
  uint32_t left_out_ = 0;   ///< instructions since the last entry kept
  bool keep_next_ = false;  ///< the flow came to the next block in a way that matters
};

}  // namespace ptd
