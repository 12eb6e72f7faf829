// Records of one data section in file order, decompressed, each with the payload that follows it.
#pragma once

#include <vector>

#include "perfio/format/wire.h"
#include "perfio/perf_reader.h"
#include "perfio/zstd_stream.h"

namespace ptd::perfio {

/// A record as bytes.
struct RawRecord {
  RecordHeader header;
  Bytes bytes;    ///< header included
  Bytes payload;  ///< AUXTRACE, HEADER_TRACING_DATA: what follows the record; views the mapping
  uint32_t file = 0;
  uint64_t file_offset_bytes = 0;  ///< of the record, or of the COMPRESSED record that its first byte came from
  bool overflowed = false;         ///< COMPRESSED2, and longer than its header can say: `bytes` has the true size
  bool transient = false;          ///< decompressed: `bytes` is valid until the next call of next() only
};

/// How far the compressed records of all files of a recording have expanded. Each byte takes several times its size in memory, so there is
/// a limit. One budget bounds the windows of zstd of all files that are read at the same time, too.
class ExpansionBudget {
 public:
  static constexpr uint64_t kFreeBytes = 16ULL << 20;
  static constexpr uint64_t kMaxGrowth = 64;  // perf's records shrink to a tenth, or to a fiftieth at most

  void add_compressed(uint64_t bytes) { limit_bytes_ += kMaxGrowth * bytes; }
  /// Returns false, and takes nothing, if `bytes` more are above the limit.
  [[nodiscard]] bool take(uint64_t bytes) {
    if (bytes > limit_bytes_ - expanded_bytes_) return false;
    expanded_bytes_ += bytes;
    return true;
  }

 private:
  uint64_t limit_bytes_ = kFreeBytes, expanded_bytes_ = 0;
};

/// Walks [begin, end) of a mapped file. COMPRESSED and COMPRESSED2 records are one zstd stream whose content is again records, which may
/// straddle them. Where a record header is damaged, the walk resumes at the next chain of valid headers, or ends if there is none in 256
/// MiB. Damage is logged. Nothing is read outside the section.
class RawStream {
 public:
  /// `budget`: of all files of the recording. `number`: of the file, for the log.
  RawStream(Bytes file, uint64_t begin, uint64_t end, ReadDamage& damage, ExpansionBudget& budget, uint32_t number = 0)
      : file_(file), position_(begin), end_(end), damage_(&damage), budget_(&budget), number_(number) {}

  /// Returns false at the end.
  bool next(RawRecord& out);
  /// Ends the record that next() has just returned after `own_bytes`, if the bytes after these are records: they are returned next. If they
  /// are not, and `is_certain`, they are lost.
  void shorten(RawRecord& out, uint64_t own_bytes, bool is_certain);
  [[nodiscard]] uint64_t position() const { return position_; }

 private:
  bool next_plain(RawRecord& out);
  [[nodiscard]] static bool is_damaged(Bytes rest);
  bool skip_damage();
  bool next_decompressed(RawRecord& out);
  bool refill();
  void attach_payload(RawRecord& out);
  void begin_compressed(const RawRecord& record);
  void begin_input(Bytes input);
  void fail_compressed(const std::string& why);

  Bytes file_;
  uint64_t position_;
  uint64_t end_;
  uint64_t last_record_ = ~uint64_t{0};  ///< where the record before position_ begins, if there is one
  uint64_t window_end_ = 0;              ///< end of the range that the system was advised to read
  ReadDamage* damage_;
  ExpansionBudget* budget_;
  uint32_t number_;
  ZstdDecompressor zstd_;
  std::vector<std::byte> joined_;    ///< what input_ views if the record has parts
  Bytes input_;                      ///< of the COMPRESSED record in hand, not yet decompressed
  uint64_t input_offset_bytes_ = 0;  ///< of that record
  uint64_t chunk_offset_bytes_ = 0;  ///< of the record that the front of chunk_ came from
  std::vector<std::byte> chunk_;     ///< decompressed, from chunk_position_ on not yet delivered
  size_t chunk_position_ = 0;
  bool more_output_ = false;       ///< zstd may hold output beyond the last refill
  uint64_t compressed_bytes_ = 0;  ///< so far
  bool compressed_failed_ = false;
};

}  // namespace ptd::perfio
