// AuxStream: the payloads of one trace stream as chunks in order, with the discontinuities between them. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/aux_segment.h"
#include "ptdecode/types.h"
#include "recording/trace/payloads.h"

namespace ptd {

/// A discontinuity (seam) between two bytes of a stream.
struct Seam {
  uint64_t offset_bytes = 0;
  AuxBreak why = AuxBreak::none;
};

/// An AUX record with flags: bytes were dropped directly after `end_offset_bytes`.
struct AuxLoss {
  uint64_t end_offset_bytes = 0;
  AuxBreak why = AuxBreak::none;
};

/// A sample that holds trace (PERF_SAMPLE_AUX), and where its bytes are in the stream.
struct AuxSample {
  uint64_t first_bytes = 0, last_bytes = 0;  ///< stream offsets [first, last), set by finish()
  uint32_t event = 0;                        ///< index of its name
  TimeNs time = kTimeMin;                    ///< kTimeMin: not recorded
  Ip ip;
  int32_t pid = -1, tid = -1, cpu = -1;
};

/// One stream. Chunks are sorted and disjoint; chunk i+1 continues chunk i if their offsets are adjacent and there is no seam.
class AuxStream {
 public:
  int32_t cpu = -1, tid = -1;
  uint32_t idx = 0;

  /// Adds a payload in file order. `size_bytes` is the size in the record; a shorter payload leaves a `missing` seam. `ring`: the record's
  /// idx.
  /// Full-trace mode: finish() places payloads by offset; see place_payloads().
  /// Snapshot mode: offsets do not order payloads; bytes that repeat the previous payload are found by content and dropped.
  void add_payload(uint64_t offset_bytes, uint64_t size_bytes, Bytes payload, bool snapshot, uint32_t ring = 0);
  /// Declares that the payloads are snapshots.
  void set_snapshot() { snapshot_ = true; }
  /// Adds the trace of a sample, in order of time. Like snapshots, consecutive windows may repeat bytes, which are found by content and
  /// kept once. Payloads of other kinds must not be added to the same stream.
  void add_sample(const AuxSample& sample, Bytes window);
  [[nodiscard]] bool may_hold_samples() const { return samples_.size() == payloads_.size(); }
  void add_loss(AuxLoss loss) { losses_.push_back(loss); }
  /// Adds an AUX record: everything before `end_offset_bytes` was written before `time`.
  void add_written(uint64_t end_offset_bytes, TimeNs time) { written_.push_back({end_offset_bytes, time}); }
  /// An AUX record, or the header of a payload, says that the ring was written up to `end_offset_bytes`.
  void add_announced(uint64_t end_offset_bytes) { announced_end_ = std::max(announced_end_, end_offset_bytes); }
  /// An AUX record says that the file holds the ring's bytes from `offset_bytes` on.
  void add_stored_from(uint64_t offset_bytes) { stored_from_ = std::min(stored_from_, offset_bytes); }
  /// Places payloads and sorts seams; adds a seam at the end if bytes that were announced are missing there. add_* must not be called after
  /// this, chunks and seams not before. A second call has no effect.
  void finish();
  /// Declares that trace is missing where the stream begins: its first bytes are not those that a trace begins with.
  void lose_begin();
  /// Declares that trace is missing where the stream ends, after finish().
  void lose_end();

  /// A stored AUX record: see add_written.
  struct Written {
    uint64_t end_offset_bytes = 0;
    TimeNs time;
  };
  /// A stream as it was when finish() was called on another one: chunks sorted and disjoint, seams and records sorted.
  void restore(std::vector<AuxChunk> chunks, std::vector<Seam> seams, std::vector<Written> written);
  void restore_samples(std::vector<AuxSample> samples) { samples_ = std::move(samples); }
  [[nodiscard]] const std::vector<Written>& written() const { return written_; }
  [[nodiscard]] const std::vector<AuxSample>& samples() const { return samples_; }

  [[nodiscard]] const std::vector<AuxChunk>& chunks() const { return chunks_; }
  [[nodiscard]] const std::vector<Seam>& seams() const { return seams_; }
  /// What finish() found while it placed payloads in full-trace mode, without the chunks.
  [[nodiscard]] const PlacedPayloads& placed() const { return placed_; }
  /// Returns whether the stream begins with the first byte that the trace unit wrote, after finish().
  [[nodiscard]] bool has_begin() const { return !snapshot_ && samples_.empty() && size_bytes_ != 0 && begin_offset() == 0; }
  /// Returns how many zero bytes the stream ends with that an AUX record says were written, after finish(); 0 in snapshots.
  [[nodiscard]] uint64_t written_zeros_at_end() const;
  [[nodiscard]] uint64_t begin_offset() const { return chunks_.empty() ? 0 : chunks_.front().offset_bytes; }
  [[nodiscard]] uint64_t end_offset() const { return chunks_.empty() ? 0 : chunks_.back().end(); }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }

  /// Returns the bytes from `offset_bytes` on: a view if they are in one chunk, else a copy in `scratch`. Ends at `end_offset_bytes`, at a
  /// hole, or at the limit for copies, whichever comes first.
  [[nodiscard]] Bytes read(uint64_t offset_bytes, uint64_t end_offset_bytes, std::vector<std::byte>& scratch) const;
  /// Returns the first seam after `offset_bytes` (not at it); null if there is none.
  [[nodiscard]] const Seam* seam_after(uint64_t offset_bytes) const;
  /// Returns the last seam at or before `offset_bytes` and after `floor_bytes`; null if there is none.
  [[nodiscard]] const Seam* seam_between(uint64_t floor_bytes, uint64_t offset_bytes) const;
  /// Returns a time before which all bytes before `end_offset_bytes` were written, kTimeMax if no AUX record gives one.
  [[nodiscard]] TimeNs written_by(uint64_t end_offset_bytes) const;
  /// Returns a time after which all bytes at or after `offset_bytes` were written, kTimeMin if no AUX record gives one. `early_ns`: how
  /// long before an AUX record tracing may go on.
  [[nodiscard]] TimeNs written_from(uint64_t offset_bytes, uint64_t early_ns = 1'000'000) const;

 private:
  void join_snapshots();
  void place_sample(AuxSample& sample, uint64_t size_bytes);
  void place();

  std::vector<AuxPayload> payloads_;  // in file order, until finish()
  std::vector<AuxSample> samples_;    // of payloads_, if it holds samples
  PlacedPayloads placed_;
  std::vector<AuxChunk> chunks_;
  std::vector<Seam> seams_;
  std::vector<AuxLoss> losses_;
  std::vector<Written> written_;  // sorted by end
  uint64_t size_bytes_ = 0;
  uint64_t announced_end_ = 0, stored_from_ = ~uint64_t{0};
  bool snapshot_ = false, finished_ = false, begin_lost_ = false;
};

/// "cpu 3" or "thread 4711", for findings.
[[nodiscard]] std::string name_of(const AuxStream& stream);
/// Bytes at the start of `next` that repeat the end of `previous` in overlapping snapshots: found through the first PSB of `next`, which
/// must be in `previous`, with the same bytes from there to its end. 0 if they do not overlap.
[[nodiscard]] uint64_t overlap_bytes(Bytes previous, Bytes next);

}  // namespace ptd
