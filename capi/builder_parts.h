// BuilderParts: what a recording from memory is made of.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/feature_encode.h"
#include "perfio/format/records.h"
#include "ptdecode/error.h"
#include "recording/data/open_request.h"

namespace ptd::capi {

/// A file that lives in memory.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] int fd() const { return fd_; }  ///< -1: there is none
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// What AUXTRACE_INFO of Intel PT says, as ptd_pt_config.
struct PtSettings {
  bool given = false, snapshot = false;
  uint32_t pmu_type = 0, time_mult = 0, tsc_ctc_ratio_n = 0, tsc_ctc_ratio_d = 0, max_nonturbo_ratio = 0;
  uint16_t time_shift = 0;
  uint64_t time_zero = 0;
  std::string cpuid, filter;
};

/// Collects the parts of a perf.data file in any order, then writes the file. Errors are values; no byte is trusted. Not thread-safe.
class BuilderParts {
 public:
  /// Errors: usage.
  Status add_attr(Bytes attr, std::vector<uint64_t> ids, std::string_view name);
  /// The next bytes of a ring. Errors: file_format for a record that cannot be in a ring; it and the bytes after it are not added.
  Status add_records(uint32_t ring, Bytes bytes);
  /// `offset_bytes` kNext: after the bytes before. Errors: usage.
  Status add_aux(int32_t cpu, int32_t tid, uint64_t offset_bytes, Bytes bytes);
  Status add_code(GivenCode code);
  Status set_feature(uint32_t bit, Bytes bytes);
  void set_pt(PtSettings settings) { pt_ = std::move(settings); }
  static constexpr uint64_t kNext = INT64_MAX;

  /// Writes everything but the code, and frees it. Errors: usage, file_format, and those of the file system.
  Status write(int fd);
  /// After write(): the rings that end inside a record.
  [[nodiscard]] std::vector<LostInput> take_lost() { return std::move(lost_); }
  [[nodiscard]] std::vector<GivenCode> take_code() { return std::move(code_); }

 private:
  struct RecordPlace {
    uint64_t time = 0;  ///< by which it is sorted
    uint64_t offset = 0;
    uint32_t ring = 0;
  };
  struct AuxPiece {
    uint64_t offset_bytes = 0;
    std::vector<std::byte> bytes;
  };
  struct AuxBuffer {
    int32_t cpu = -1, tid = -1;
    std::vector<AuxPiece> pieces;
  };
  Status add_record(uint32_t ring, Bytes record);
  [[nodiscard]] Bytes record_at(uint64_t offset) const;
  void sort_records();
  /// The AUXTRACE_INFO record at `offset` of records_, if it is one.
  [[nodiscard]] std::optional<perfio::AuxtraceInfoRecord> info_at(uint64_t offset) const;
  void drop_pt_info();
  [[nodiscard]] bool is_snapshot() const;
  void sort_aux();

  std::vector<perfio::EventAttr> attrs_;
  std::map<uint32_t, std::vector<std::byte>> cut_;  ///< by ring: the beginning of a record
  std::vector<std::byte> records_;
  std::vector<RecordPlace> places_;
  std::vector<AuxBuffer> aux_;
  std::map<std::pair<int32_t, int32_t>, size_t> aux_of_;  ///< (cpu, tid) -> index in aux_
  std::vector<GivenCode> code_;
  std::vector<LostInput> lost_;
  perfio::FeatureSections features_;
  PtSettings pt_;
};

}  // namespace ptd::capi
