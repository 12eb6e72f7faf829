// Decoder: one segment of Intel PT at a time into batches.
#pragma once

#include <memory>
#include <vector>

#include "ptdecode/aux_segment.h"
#include "ptdecode/block_sequences.h"
#include "ptdecode/context_track.h"
#include "ptdecode/export.h"
#include "ptdecode/flow_decoder.h"
#include "ptdecode/path_counts.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

/// A point of a stream that orders text pokes without a clock (recording/trace/anchors.h): from here to the next point, a fetch reads what
/// was live at some moment of `time`.
struct SyncPoint {
  uint64_t stream_offset_bytes = 0;  ///< of the TIP that entered the sync handler; 0 for what comes before the first
  Interval time;
};

/// Addresses [first, last] that an ip filter lets through (IA32_RTIT_ADDRn_A / _B).
struct IpRange {
  Ip first, last;
};

struct DecoderOptions {
  Config config;
  std::vector<IpRange> filter;                  ///< ip filter of the recording; empty: none
  SpaceId default_space = kNoSpace;             ///< user addresses belong to it while nothing tells which thread runs (raw captures)
  Ip breakpoint_entry;                          ///< kernel entry of #BP (asm_exc_int3), 0 if unknown
  Ip switch_entry;                              ///< kernel function that every context switch passes once (__switch_to), 0 if unknown
  uint64_t slack_ns = 0;                        ///< widens every time interval by this much on both sides: for recordings with bad clocks
  bool image_is_of_root = false;                ///< the code is the host's: in VMX non-root operation (PIP.NR) there is none
  uint32_t max_candidates = 32;                 ///< live hypotheses at once; beyond: the least likely go, what is given is `ambiguous`
  uint32_t max_held_blocks = 1U << 16;          ///< undecided blocks held back
  uint64_t max_silent_instructions = 1U << 24;  ///< without any packet consumed; beyond: Gap limit
  bool sequences = false;   ///< for FlowCounts: what comes again is given as one entry (BlockFlag::sequence), not block by block
  bool counts = false;      ///< for FlowCounts without times: nothing is given of what can be counted on the way, see Decoder::take_paths()
  bool exact_only = false;  ///< never takes the fast path (Runner): the same output, slower
  const std::vector<SyncPoint>* sync_points = nullptr;  ///< of this stream, in order; may be null; must outlive the decoder
};

struct DecoderStats {
  uint64_t blocks = 0;  ///< entries given; a sequence is one
  uint64_t forks = 0, chosen = 0, ambiguous_choices = 0, healed_blocks = 0;
  uint64_t healed_by_packets = 0;  ///< contradictions after which a content out of its time was found to fit
};

/// Turns segments into batches. Not thread-safe; one per worker. Output depends on the segment, timeline, contexts and options only.
class PTD_API Decoder final : public FlowDecoder {
 public:
  Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options);
  ~Decoder() override;
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  void begin(const AuxSegment& segment) override;
  bool next(Batch& batch) override;

  [[nodiscard]] const BlockTable& blocks() const override;
  /// What entries with BlockFlag::sequence stand for.
  [[nodiscard]] const BlockSequences& sequences() const;
  /// What was counted since the last call and not given, of segments that were decoded to their end. Only with DecoderOptions::counts.
  [[nodiscard]] PathCounts take_paths();
  [[nodiscard]] const DecoderStats& stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::pt
