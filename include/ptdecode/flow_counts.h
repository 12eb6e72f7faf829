// FlowCounts: what a profiler wants of a flow in place of the flow: how often each block ran, each branch went where, which code was
// reached.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/block_sequences.h"
#include "ptdecode/export.h"
#include "ptdecode/flow.h"
#include "ptdecode/path_counts.h"

namespace ptd {

/// One way out of a block that ends in a branch. `to` is where it went; a branch that was not taken goes to the next instruction.
struct EdgeCount {
  NodeId from = 0;
  Ip to;
  uint64_t count = 0;
};

/// How often each way out of a block was taken: open addressing, one line of the cache a look-up.
class PTD_API WayCounts {
 public:
  void add(NodeId from, uint64_t to, uint64_t count);
  [[nodiscard]] const std::vector<EdgeCount>& slots() const { return slots_; }  ///< those with count 0 are empty

 private:
  std::vector<EdgeCount> slots_;
  size_t used_ = 0;
};

/// What a decoder's batches are read with.
struct FlowTables {
  const BlockTable& blocks;
  const BlockSequences& sequences;
};

/// Fed with a decoder's batches in order; keeps no block of them. Quickest with DecoderOptions::counts: the decoder counts on the way, and
/// gives only what joins what it counted; the same with times, DecoderOptions::sequences: what comes again is counted as a whole and taken
/// apart at the end. Belongs to one BlockTable, as node ids do. Grows with the code that ran,
/// not with the trace. Ways out that the block's own bytes tell are counted by block and outcome; only returns and indirect branches are
/// looked up.
class PTD_API FlowCounts {
 public:
  void add(const Batch& batch, const FlowTables& tables);
  /// The flow does not go on from the last batch to the next (another segment).
  void end_segment();
  /// To be called before what was counted is asked for: takes the sequences apart. `paths` is what the decoder counted itself
  /// (Decoder::take_paths()). More batches may follow.
  void finish(const FlowTables& tables, const PathCounts& paths = {});

  /// Runs of each block, by node; shorter than the table if its last nodes never ran.
  [[nodiscard]] const std::vector<uint64_t>& blocks() const { return blocks_; }
  /// Time from the middle of each mark's interval to that of the next, given to the block that ran at the first. By node, in units of the
  /// timeline's clock. Marks without time give nothing.
  [[nodiscard]] const std::vector<uint64_t>& time_ns() const { return time_; }
  /// Every way out that was taken at least once, in order of node and place.
  [[nodiscard]] std::vector<EdgeCount> edges(const BlockTable& table) const;
  [[nodiscard]] uint64_t instructions() const { return instructions_; }

 private:
  /// How a block ends, found when it is first met.
  enum class End : uint8_t { unknown, cut, known, dynamic };
  struct Node {
    uint64_t ways[2] = {};                 ///< known: not taken, taken
    uint64_t last_to = 0, last_count = 0;  ///< dynamic: the last way out, not yet in dynamic_
    End end = End::unknown;
  };
  /// A sequence that was met.
  struct Sequence {
    uint64_t count = 0;  ///< not yet taken apart
    uint64_t first_ip = 0;
    NodeId last = 0;                         ///< its last block
    bool met = false, goes_dynamic = false;  ///< the last block's way out is dynamic
  };
  void make_room(const FlowTables& tables);
  void meet(NodeId node, const BlockTable& table);
  void meet(SequenceId id, const FlowTables& tables);
  void add(const Block& block, const FlowTables& tables);
  void add_sequence(SequenceId id, const FlowTables& tables);
  void go_dynamic(uint64_t to);
  void take_apart(std::span<const Block> blocks, uint64_t count, const FlowTables& tables);
  bool meet(std::span<const Block> blocks, const FlowTables& tables);
  bool meet_run(std::span<const Block> blocks, bool dynamic);
  void tell(const Event& event);
  void count_time(const Mark& mark, NodeId node);

  std::vector<uint64_t> blocks_, time_;
  std::vector<Node> nodes_;
  std::vector<Sequence> sequences_;
  WayCounts dynamic_;
  uint64_t instructions_ = 0;
  NodeId waiting_ = 0;  ///< block whose dynamic way out the next block, or event, tells
  bool waits_ = false;
  uint64_t mark_ns_ = 0;  ///< middle of the last mark
  NodeId mark_node_ = 0;
  bool has_mark_ = false;
};

}  // namespace ptd
