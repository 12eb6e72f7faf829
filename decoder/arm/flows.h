// Flows: follows all flows that the versions of the code allow, side by side, until the packets leave one.
//
// Invariant: between two elements of the trace, all flows have executed the same elements. A fork within an element is taken by executing
// the element once for each way. A flow that the element contradicts ends; flows that continue alike merge, and the blocks in which they
// differ are marked ambiguous. Output is held back while several flows are possible.
// Invariant: a limit never lets a doubtful flow through unmarked. Where flows were dropped, or all were contradicted, every block is marked
// up to an anchor: an element after which the flow does not depend on what was executed before. Until then a contradiction is a gap
// `limit`, because a flow that was dropped may fit.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "decoder/arm/follower.h"
#include "decoder/batch_edit.h"

namespace ptd::arm {

/// Packets of the flow (atoms, branches, addresses) between an A-Sync and the packet that begins the flow after it, Trace Info or I-Sync.
/// Trace units write few of them: 1 on a Juno board, 3 by a Cortex-A9. If there are more, the packet that should come before them is
/// damaged or lost.
inline constexpr uint64_t kMostUnread = 8;

class Flows {
 public:
  /// `most`: flows that are followed side by side.
  Flows(RunCache& runs, const ContextTrack& contexts, const TraceConfig& config, const FollowOptions& options, size_t most);
  Flows(const Flows&) = delete;
  Flows& operator=(const Flows&) = delete;

  /// See Follower::begin().
  void begin(const AuxSegment& segment, std::span<const WrongContext> wrong, TimestampIndex* times);
  /// Sets where output goes.
  void into(BatchTarget target);
  /// Outputs everything up to this point and ends the flow. `uncommitted`: P0 elements after it that were not committed.
  void end(uint64_t uncommitted = 0);

  /// Sets whether each() takes forks. Otherwise the likeliest version is taken at each, and met_fork() tells that the output must be
  /// dropped.
  void take_forks(bool on);
  /// Forgets the fork that was met.
  void forget_fork() { script_.begin({}); }
  [[nodiscard]] bool met_fork() const { return !takes_forks_ && script_.passed != 0; }
  [[nodiscard]] bool takes_forks() const { return takes_forks_; }
  /// Returns whether one flow is left, and proven.
  [[nodiscard]] bool is_sure() const { return sure_; }
  /// Returns the flow. Requires is_sure().
  [[nodiscard]] Follower& only() { return flows_[0]->follower; }

  /// Executes one element, for which `op` calls the follower.
  template <typename Op>
  void each(const Op& op) {
    if (!takes_forks_) return op(only());
    step([](Follower& follower, const void* what) { (*static_cast<const Op*>(what))(follower); }, &op);
  }
  /// Executes atoms, each of which is an element.
  void atoms(uint64_t atoms, uint32_t count, uint64_t offset);

 private:
  /// One of the possible flows, with its output since the first fork.
  struct Flow {
    explicit Flow(const Follower& from) : follower(from) {}
    Follower follower;
    Batch pending;
    uint32_t unlikely = 0;  ///< forks that did not take the likeliest way
    /// Returns whether this flow is to be output rather than `other`.
    [[nodiscard]] bool is_likelier(const Flow& other) const {
      return std::pair(pending.gaps.size(), unlikely) < std::pair(other.pending.gaps.size(), other.unlikely);
    }
  };
  [[nodiscard]] static bool is_likelier(const std::unique_ptr<Flow>& one, const std::unique_ptr<Flow>& other);
  using Op = void (*)(Follower&, const void*);

  void step(Op op, const void* what);
  void try_ways(size_t index, Op op, const void* what);
  void add_ways(size_t told, std::vector<std::vector<ForkScript::Fork>>& left) const;
  void end_contradicted();
  void merge();
  void prune(size_t most);
  void settle();
  [[nodiscard]] bool is_spent() const { return work_ > most_work_; }
  /// A limit drops flows.
  void limit() { dropped_ = limited_ = true; }
  void give_pending();

  ForkScript script_;
  std::vector<std::unique_ptr<Flow>> flows_;
  size_t most_flows_;
  bool takes_forks_ = false;
  bool sure_ = true;      ///< the only flow outputs into out_, else all into Flow::pending
  bool dropped_ = false;  ///< a flow that is not among flows_ may be the right one
  bool limited_ = false;  ///< since a limit dropped it
  Batch* out_ = nullptr;
  size_t most_blocks_ = 0;
  VersionBounds before_;    ///< of the flow before the first fork
  uint64_t undecided_ = 0;  ///< elements since that
  uint64_t work_ = 0;       ///< elements executed where several flows were possible, and copies, in this segment
  uint64_t most_work_ = 0;
};

}  // namespace ptd::arm
