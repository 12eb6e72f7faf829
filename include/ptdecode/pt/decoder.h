// Decoder: decodes one segment of Intel PT at a time into batches.
#pragma once

#include <memory>
#include <vector>

#include "ptdecode/aux_segment.h"
#include "ptdecode/context_track.h"
#include "ptdecode/export.h"
#include "ptdecode/flow_decoder.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

/// A point of a stream that orders text pokes without a clock (recording/trace/anchors.h). From here to the next point, a fetch reads code
/// that was live at some moment of `time`. That may be later than the fetch.
struct SyncPoint {
  uint64_t stream_offset_bytes = 0;  ///< of the TIP that entered the sync handler; 0 before the first
  Interval time;
};

/// Addresses [first, last] that an ip filter lets through (IA32_RTIT_ADDRn_A / _B).
struct IpRange {
  Ip first, last;
};

struct DecoderOptions {
  Config config;
  std::vector<IpRange> filter;       ///< ip filter of the recording; empty: none
  SpaceId default_space = kNoSpace;  ///< the space of user addresses while the running thread is unknown (raw captures)
  Ip breakpoint_entry;               ///< kernel entry of #BP (asm_exc_int3), 0 if unknown
  Ip switch_entry;                   ///< kernel function that every context switch passes once (__switch_to), 0 if unknown
  /// Kernel code that a switch executes only after switch_entry was entered (the rest of __switch_to, finish_task_switch).
  std::vector<IpRange> after_switch;
  /// The kernel is traced, and switch_entry is unknown: switches are passed when time shows it. Slower near them.
  bool time_switches = false;
  uint64_t slack_ns = 0;                        ///< widens every time interval by this much on both sides: for recordings with bad clocks
  bool image_is_of_root = false;                ///< the code is the host's, so there is none in VMX non-root operation (PIP.NR)
  uint32_t max_candidates = 32;                 ///< live candidates at once; beyond it the least likely are dropped, output is `ambiguous`
  uint32_t max_held_blocks = 1U << 16;          ///< undecided blocks held back
  uint64_t max_silent_instructions = 1U << 24;  ///< without consuming a packet; beyond it: a Gap `limit`
  bool exact_only = false;                      ///< do not use the fast path (Runner): the same output, slower
  const std::vector<SyncPoint>* sync_points = nullptr;  ///< of this stream, in order; may be null; must outlive the decoder
};

struct DecoderStats {
  uint64_t blocks = 0;
  uint64_t healed_by_packets = 0;  ///< contradictions that code of another time resolved
};

/// Decodes segments into batches. Not thread-safe: use one per thread. The timeline and the contexts must outlive it. The output depends
/// only on the segment, the timeline, the contexts and the options.
class PTD_API Decoder final : public FlowDecoder {
 public:
  Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options);
  ~Decoder() override;
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  void begin(const AuxSegment& segment) override;
  [[nodiscard]] const BlockTable& blocks() const override;
  [[nodiscard]] const DecoderStats& stats() const;

 private:
  bool fill(Batch& batch, size_t batch_blocks) override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::pt
