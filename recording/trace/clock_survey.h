// ClockSurvey: learns the clock of each stream from a sample of its PSBs. Private to recording.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ptdecode/finding.h"
#include "ptdecode/pt/config.h"
#include "recording/trace/segments.h"
#include "recording/trace/streams.h"

namespace ptd {

/// Determines the phase (see ClockRatio) of each stream's TSCs.
///
/// Damage shows as phases that few PSBs have. If many have one and many another, the TSC was moved once for all: then AUX records and other
/// streams decide. Nothing is checked if something else explains what is found:
/// - a stream whose phase drifts, as with a ratio that is not exact;
/// - a thread that moves between sockets, whose crystal clocks differ: of the PSBs of all threads, several have one phase and several
///   another, or a PSB has another phase than all others and no single wrong byte of its TSC or TMA explains it;
/// - a stream with PSBs of a guest, whose TSC is another clock;
/// - many PSBs with another phase, if MTC packets do not count on through the change: the crystal clock of a virtual machine that migrates
///   changes, its TSC does not;
/// - AUX records that agree with the TSCs: the clock of the records moved with them.
///
/// A TSC that nothing else checks is wrong if AUX records contradict it and agree with nearly all others.
/// In a stream with fewer than eight PSBs, all but one must agree; with two PSBs, one of them must agree with another stream.
///
/// A PSB+ without a TSC packet is reported if it has a TMA, or if most PSB+ of all streams have a TSC, and others of its own stream, if it
/// has others.
///
/// Limitation: a stream with one PSB is only checked against AUX records, to 1 ms, if threads have fewer than eight PSBs or several phases.
/// In traces of which only a sample is surveyed, a thread may move. Streams with PSBs of a VMX guest are not checked. A TSC moved
/// by a multiple of 65,536 crystal ticks is wrong if it is before or after all AUX records or 2^32 ticks from its place among them or among
/// the other TSCs; else order_findings() finds it. If all later TSCs of a thread moved forward where MTC packets do not count on, and none
/// past the time of its last AUX record, this is not found. If nothing else decides, the phase of most PSBs counts as right.
class ClockSurvey {
 public:
  /// `is_sample`: not all PSBs will be added.
  ClockSurvey(const pt::Config& config, size_t streams, bool is_sample) : config_(&config), streams_(streams), is_sample_(is_sample) {}
  void add(size_t i, const AuxStream& stream, const PsbEntry& psb);
  /// Returns the clock of stream `i`, which is `stream`. `index` has no clock yet.
  [[nodiscard]] StreamClock clock_of(size_t i, const AuxStream& stream, const SegmentIndex& index) const;

 private:
  /// PSBs with about the same phase.
  struct Cluster {
    uint64_t phase = 0;
    size_t members = 0, contradicted = 0;  ///< PSBs, those of them that AUX records contradict
    size_t sharers = 0;                    ///< other streams with this phase
    PsbEntry first;
  };
  using Clusters = std::vector<Cluster>;
  struct StreamSamples {
    std::vector<PsbEntry> psbs;
    size_t timed = 0, backward = 0;  ///< PSBs with a TSC, those with an earlier one than the PSB before
    size_t untimed = 0;              ///< PSBs that lack a TSC
    uint64_t before = 0;
    bool in_guest = false, of_thread = false;
  };
  [[nodiscard]] ClockRatio ratio() const { return {config_->tsc_ctc_ratio_n, config_->tsc_ctc_ratio_d}; }
  [[nodiscard]] Clusters clusters_of(size_t i) const;
  [[nodiscard]] std::optional<uint64_t> find_thread_phase() const;
  [[nodiscard]] bool needs_tsc(const StreamSamples& stream) const;
  [[nodiscard]] bool contradicts(const AuxStream& stream, const PsbEntry& psb) const;
  [[nodiscard]] bool is_damage(size_t i, const AuxStream& stream, const Cluster& cluster, const Cluster& best,
                               const StreamClock& clock) const;
  void compare(size_t i, const AuxStream& stream, Clusters& clusters) const;
  void drop_disproven(size_t i, const AuxStream& stream, StreamClock& clock) const;
  void find_shifts(size_t i, const AuxStream& stream, const SegmentIndex& index, const Clusters& clusters, StreamClock& clock) const;

  const pt::Config* config_;
  std::vector<StreamSamples> streams_;
  bool is_sample_;
  size_t timed_ = 0, contradicted_ = 0;  ///< PSBs of all streams that have a TSC, those of them that AUX records contradict
  size_t untimed_ = 0;                   ///< PSBs of all streams that lack a TSC
  mutable std::optional<std::optional<uint64_t>> thread_phase_;  ///< see find_thread_phase()
};

/// Reports one finding for each run of PSBs with a contradicted TSC. Scans the whole stream; `visit` gets each offset that it reaches.
[[nodiscard]] std::vector<Finding> clock_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                                  const std::function<void(uint64_t offset)>& visit);
/// Reports one finding for the MTC and TMA packets that contradict each other or the TSC after them: see pt::TimeAhead. Scans the whole
/// stream.
[[nodiscard]] std::vector<Finding> count_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                                  const pt::Config& config, const std::function<void(uint64_t offset)>& visit);

}  // namespace ptd
