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
  bool use_written = false;  ///< without times in the packets, AUX records bound programs and code
};

/// The segments of one stream. The stream offset of its PSB identifies a segment.
///
///     stream  ...| PSB+ a ........ | PSB+ b ..... seam | lost | PSB+ c ...
///     segment     [a ..............][b ...............]        [c ......
///                      + tail: PSB+ b
///
/// The stream is divided into parts; the PSBs of a part are found and cached by the first query that needs them. Results do not depend on
/// the order of queries. Thread-safe.
///
/// Invariant: a segment never crosses a seam (lost data). Bytes between a seam and the next PSB belong to no segment.
class SegmentIndex {
 public:
  /// Called with each part [first, last) of stream offsets after it was scanned.
  using Passed = std::function<void(uint64_t first, uint64_t last)>;

  /// For Intel PT. The stream must be finished, outlive the index and not move.
  explicit SegmentIndex(const AuxStream& stream);
  /// For Arm trace, built at once. In ETMv4 and ETE an entry is an A-Sync after which the full decoder state is restated; other
  /// protocols have one segment.
  SegmentIndex(const AuxStream& stream, const arm::TraceConfig& config, const Passed& passed);

  /// An index whose entries are known, as all_entries() returned them for the same stream, and its clock, which judged them.
  SegmentIndex(const AuxStream& stream, const std::vector<PsbEntry>& entries, StreamClock clock, bool is_arm);
  /// Returns all entries. Scans the whole stream.
  [[nodiscard]] std::vector<PsbEntry> all_entries(const Passed& passed) const;

  /// Sets the clock that checks the PSBs found so far and later. Returns how many of those found so far are contradicted. Not thread-safe.
  size_t set_clock(StreamClock clock);
  [[nodiscard]] const StreamClock& clock() const { return clock_; }

  /// Return the first PSB at or after `offset_bytes`, and the last one before it.
  [[nodiscard]] std::optional<PsbEntry> next(uint64_t offset_bytes) const;
  [[nodiscard]] std::optional<PsbEntry> previous(uint64_t offset_bytes) const;
  /// Calls `visit` with the PSBs of at most `stretches` parts spread over the stream.
  void sample(size_t stretches, const std::function<void(const PsbEntry&)>& visit, const Passed& passed) const;

  /// Returns the segment of `entry`, an entry of this index, with its bytes; see Recording::next_segment.
  [[nodiscard]] AuxSegment segment(const PsbEntry& entry, const SegmentTiming& timing, std::vector<std::byte>& scratch) const;
  /// Returns the time bounds of a segment: from its own PSB+ to the next one with a TSC, or after the last TSC to the next AUX record.
  [[nodiscard]] Interval time_of(const PsbEntry& entry, const SegmentTiming& timing) const;
  /// Returns the start of the first segment whose bounds end at or after `t`, by bisection; the stream's end if there is none.
  [[nodiscard]] uint64_t at(TimeNs t, const SegmentTiming& timing) const;

 private:
  using Entries = std::vector<PsbEntry>;
  /// The entries of one part, filled by the first query.
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
  [[nodiscard]] Interval written_of(const PsbEntry& entry, uint64_t end, const SegmentTiming& timing) const;
  [[nodiscard]] TickRange timestamps_of(const PsbEntry& entry, uint64_t end, const SegmentTiming& timing) const;

  const AuxStream* stream_;
  StreamClock clock_;
  std::vector<uint64_t> starts_;  ///< stream offsets at which stretches begin
  std::unique_ptr<Slot[]> slots_;
  bool is_arm_ = false;
  bool timeless_ = false;  ///< no entry has a TSC: none need be looked for
};

}  // namespace ptd
