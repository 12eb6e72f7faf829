// SegmentIndex: lazily built index of PSB offsets and timestamps. Private to recording.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/pt/config.h"
#include "recording/trace/psb_entry.h"
#include "recording/trace/stream_clock.h"
#include "recording/trace/streams.h"

namespace ptd {

/// How segments get their time bounds.
struct SegmentTiming {
  TimeConversion time;
  uint64_t slack_ns = 0;
  bool use_time = true;
};

/// The segments of one stream. A segment is named by the stream offset of its PSB.
///
///     stream  ...| PSB+ a ........ | PSB+ b ..... seam | lost | PSB+ c ...
///     segment     [a ..............][b ...............]        [c ......
///                      + tail: PSB+ b
///
/// The stream is divided into stretches; the PSBs of one are found when the first question comes that needs them, and kept. What is
/// found does not depend on the order of questions. Any thread may ask.
///
/// Invariant: a segment never crosses a seam. Bytes after a seam and before the next PSB belong to no segment.
class SegmentIndex {
 public:
  /// Called with each stretch [first, last) of stream offsets when it was looked through.
  using Passed = std::function<void(uint64_t first, uint64_t last)>;

  /// Of Intel PT. The stream is finished, outlives the index and does not move.
  explicit SegmentIndex(const AuxStream& stream);
  /// Of Arm trace, found at once. Of ETMv4 and ETE an entry is an A-Sync behind which everything is told anew, so that the flow needs
  /// nothing from before; other protocols are followed without a cut.
  SegmentIndex(const AuxStream& stream, const arm::TraceConfig& config, const Passed& passed);

  /// Checks with it the PSBs found so far and those found later. Returns how many of the former are contradicted. No other thread may use
  /// the index meanwhile.
  size_t set_clock(StreamClock clock);
  [[nodiscard]] const StreamClock& clock() const { return clock_; }

  /// The first PSB at or behind `offset_bytes`, the last one before it.
  [[nodiscard]] std::optional<PsbEntry> next(uint64_t offset_bytes) const;
  [[nodiscard]] std::optional<PsbEntry> previous(uint64_t offset_bytes) const;
  /// Looks the whole stream through.
  void find_all(const Passed& passed) const;
  /// Shows `visit` PSBs of at most `stretches` stretches spread over the stream.
  void sample(size_t stretches, const std::function<void(const PsbEntry&)>& visit, const Passed& passed) const;
  /// Bytes that belong to no segment. Looks the whole stream through.
  [[nodiscard]] uint64_t skipped_bytes() const;

  /// The segment of `entry`, which is one of this index, with its bytes; see Recording::next_segment.
  [[nodiscard]] AuxSegment segment(const PsbEntry& entry, const SegmentTiming& timing, std::vector<std::byte>& scratch) const;
  /// Time bounds of a segment: from its own PSB+ to the next one that has a TSC; after the last TSC, to the AUX record behind it.
  [[nodiscard]] Interval time_of(const PsbEntry& entry, const SegmentTiming& timing) const;
  /// Where the first segment begins whose bounds end at or after `t`; the stream's end if there is none. Found by bisection.
  [[nodiscard]] uint64_t at(TimeNs t, const SegmentTiming& timing) const;

 private:
  using Entries = std::vector<PsbEntry>;
  /// The entries of one stretch once somebody has looked for them. Whoever comes first puts them there.
  class Slot {
   public:
    ~Slot() { delete entries_.load(); }
    [[nodiscard]] const Entries* get() const { return entries_.load(std::memory_order_acquire); }
    const Entries* put(std::unique_ptr<const Entries> entries);
    void replace(std::unique_ptr<const Entries> entries) { delete entries_.exchange(entries.release()); }

   private:
    std::atomic<const Entries*> entries_{nullptr};
  };
  void divide();
  [[nodiscard]] size_t stretch_of(uint64_t offset_bytes) const;
  [[nodiscard]] uint64_t stretch_end(size_t stretch) const;
  [[nodiscard]] const Entries& entries_of(size_t stretch) const;
  [[nodiscard]] std::unique_ptr<Entries> look_through(size_t stretch) const;
  [[nodiscard]] std::optional<PsbEntry> timed_psb(size_t first_stretch, size_t last_stretch) const;
  void find_whole(Entries& entries, const Passed& passed) const;
  void keep(const Entries& entries);

  const AuxStream* stream_;
  StreamClock clock_;
  std::vector<uint64_t> starts_;  ///< stream offsets at which stretches begin
  std::unique_ptr<Slot[]> slots_;
  bool timeless_ = false;  ///< no entry has a TSC: none need be looked for
};

}  // namespace ptd
