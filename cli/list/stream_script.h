// StreamScript: turns the batches of one stream into the lines of `ptdecode script`.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "cli/list/call_stacks.h"
#include "cli/list/line_writer.h"
#include "cli/list/stream_merge.h"
#include "cli/report/missing_report.h"
#include "ptdecode/flow_cursor.h"

namespace ptd::cli {

/// One per stream; not thread-safe.
class StreamScript {
 public:
  StreamScript(const Recording& recording, const ScriptOptions& options, int32_t cpu);

  /// Appends the lines of a batch to `chunk`, which goes to `sink` each time that it is full: a batch may have a thousand times its size in
  /// lines. Batches of one stream come in order, all from one decoder. False: the sink wants no more.
  bool take(const Batch& batch, const BlockTable& blocks, Chunk& chunk, ChunkSink& sink);
  /// The stream is over: lists what is still open.
  void end(Chunk& chunk);

  [[nodiscard]] const GapTally& tally() const { return tally_; }
  /// True once every later line would be after the last --time range.
  [[nodiscard]] bool past_the_end() const;

 private:
  /// A taken branch whose target is not known yet.
  struct Pending {
    Ip from;
    CachedInsn insn;
    std::array<std::byte, 15> bytes{};
    uint16_t flags = 0;
    ExecMode mode = ExecMode::bits64;
    uint64_t mark_number = 0;
    Mark mark;
  };
  void resolve_ahead(FlowItem item, TextBuffer& out);
  void resolve(std::optional<Ip> to, bool ends_trace, TextBuffer& out);
  void take_mark(const Mark& told, Chunk& chunk);
  bool place_wanted(const BranchLine& line);
  void take_event(const Event& event, TextBuffer& out);
  void take_gap(const Gap& gap, TextBuffer& out);
  bool take_blocks(std::span<const Block> blocks, Chunk& chunk, ChunkSink& sink);
  void take_block(const Block& block, TextBuffer& out);
  void sample(const Block& block, std::span<const CachedInsn> insns, TextBuffer& out);
  void list_branch(const BranchLine& line, Ip after, TextBuffer& out);
  void stack_branch(const BranchLine& line, TextBuffer& out);
  void end_stack(TextBuffer& out);
  [[nodiscard]] bool shown(const BranchKind& kind) const;
  [[nodiscard]] bool shown(const Event& event) const;

  const ScriptOptions& options_;
  /// Branches in a line of -F brstack. Each branch is in one line; the flow between the last of one line and the first of the next is not
  /// shown.
  static constexpr size_t kMostStacked = 256;
  const bool addresses_only_, call_tree_, stacks_, follows_branches_;
  LineWriter writer_;
  NodeCache nodes_;
  CallStacks calls_;
  GapTally tally_;
  std::optional<Pending> pending_;
  std::vector<std::pair<Ip, Ip>> stack_;  ///< with -F brstack
  std::vector<Event> deferred_;           ///< events between a branch and its target
  uint64_t mark_number_ = 0;
  uint64_t since_sample_ = 0, next_sample_time_ = 0;
  bool in_ns_ = true;  ///< the times of marks are nanoseconds; otherwise ticks of unknown length, which are not listed
  uint64_t period_ns_ = 0;
  bool sample_due_ = false;
  bool flowing_ = false;  ///< the flow goes on from the last block
  FlowCursor cursor_;
  TimeNs last_time_;  ///< end of the last --time range
};

}  // namespace ptd::cli
