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
  /// What the loop over blocks needs of a node. 8 bytes.
  struct Node {
    FunctionId function = kNoFunction;  ///< kNoFunction: another one in some part of the segment
    uint16_t epoch = 0;                 ///< `function` is right as long as epoch_ is this; 0: nothing is known yet
    uint16_t code = 0;                  ///< kPlain and so on
  };
  static constexpr uint16_t kPlain = 1;       ///< Way::none
  static constexpr uint16_t kJump = 2;        ///< Way::jump
  static constexpr uint16_t kBareReturn = 4;  ///< BranchCode::bare_return
  static constexpr uint16_t kHalts = 8;       ///< BranchCode::halts
  /// The table of blocks may have grown since the batch before.
  void make_room() {
    if (nodes_.size() < blocks_.size()) nodes_.resize(std::max(blocks_.size(), nodes_.size() * 2));
  }
  Node node(NodeId id) {
    Node& node = nodes_[id];
    if (node.epoch != epoch_) [[unlikely]] refresh(id, node);
    return node;
  }
  void refresh(NodeId id, Node& node);
  void begin_segment(const AuxSegment& segment);
  void condense(const Blocks& blocks, uint32_t first, uint32_t last, bool closes);
  [[nodiscard]] bool is_closed(const Batch& batch, uint32_t at) const;
  void flush();

  const BlockTable& blocks_;
  const int32_t tid_;
  FunctionFinder finder_;
  std::vector<Node> nodes_;
  uint16_t epoch_ = 1;
  Interval epoch_time_;                   ///< moments at which all answers of this epoch are right
  Interval time_{kTimeMax, kTimeMin};     ///< of the segment
  std::optional<uint64_t> segment_;       ///< its offset
  size_t next_mark_ = 0, next_event_ = 0, next_gap_ = 0;
  Blocks kept_;
  size_t kept_count_ = 0;
  bool keep_ = false;      ///< the next block must be kept
  uint32_t left_out_ = 0;  ///< instructions since the last entry kept
};

}  // namespace ptd
