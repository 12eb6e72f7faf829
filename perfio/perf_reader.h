// PerfReader: a perf.data file, pipe or directory -> records in order of time, features, AUX payloads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "perfio/format/records.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// perf_event_attr as far as it matters, plus the ids that select it.
struct EventAttr {
  uint32_t type = 0;
  uint64_t config = 0, config1 = 0, config2 = 0, sample_type = 0, read_format = 0,
           flags = 0;  ///< flags: the bit field word after read_format
  bool sample_id_all = false, exclude_kernel = false, exclude_user = false, exclude_hv = false, use_clockid = false;
  int32_t clockid = 0;
  uint64_t sample_period = 0;  ///< period or frequency
  std::string name;            ///< from EVENT_DESC / EVENT_UPDATE, may be empty
  std::vector<uint64_t> ids;
  std::vector<std::byte> raw;  ///< the perf_event_attr as it stands in the file
};

struct BpfProgInfo {
  uint32_t id = 0, type = 0;
  std::string name;
  uint64_t load_time_ns = 0;
  std::vector<std::byte> jited_insns;     ///< all functions, back to back
  std::vector<uint64_t> jited_ksyms;      ///< address of each function
  std::vector<uint32_t> jited_func_lens;  ///< length of each function's code
  std::vector<std::byte> tags;            ///< 8 bytes for each function
  uint32_t btf_id = 0;
};
/// build_id: raw bytes (see build_id_hex).
struct BuildIdEntry {
  std::string path;
  std::string build_id;
  int32_t pid = -1;
  uint16_t misc = 0;
};
/// Where an AUXTRACE record stands in the file and how long it is without its payload.
struct AuxtraceIndexEntry {
  uint64_t file_offset_bytes = 0, size_bytes = 0;
};
/// A feature section as it stands in the file: also those that Features does not interpret. Views the mapping.
struct RawFeature {
  uint32_t bit = 0;
  Bytes bytes;
};

/// The feature sections that matter; absent ones keep defaults.
struct Features {
  std::string hostname, os_release, version, arch, cpu_desc, cpuid;
  uint32_t cpus_online = 0, cpus_available = 0;
  uint64_t total_mem_kb = 0;
  std::vector<std::string> cmdline;
  std::vector<BuildIdEntry> build_ids;
  std::vector<BpfProgInfo> bpf_progs;
  std::map<uint32_t, std::vector<std::byte>> bpf_btf;
  std::map<std::string, uint32_t> pmu_types;  ///< PMU_MAPPINGS: name -> type
  uint64_t clockid_resolution_ns = 0;
  bool has_clock_data = false;  ///< CLOCK_DATA: wall clock at clockid time
  int32_t clock_data_clockid = 0;
  uint64_t wall_clock_ns = 0, clockid_time_ns = 0;
  uint64_t first_sample_time = 0, last_sample_time = 0;
  bool compressed = false;
  uint32_t compressed_mmap_len = 0;  ///< COMPRESSED: bytes of the ring that was compressed at a time
  uint64_t dir_version = 0;          ///< DIR_FORMAT: 1 if data.* files hold records beside `data`
  std::vector<AuxtraceIndexEntry> auxtrace_index;
  std::vector<RawFeature> raw;  ///< every section, by bit; in pipe form TRACING_DATA only
};

/// Lower-case hex of a build id's raw bytes.
std::string build_id_hex(const std::string& raw);

/// What happened to the file while reading; what came before any damage is kept.
struct ReadDamage {
  bool cut = false;  ///< ends before what it announced
  uint64_t cut_offset_bytes = 0;
  uint64_t bad_records = 0;           ///< skipped one by one
  uint64_t late_records = 0;          ///< delivered after a record of a later time, because the recording or the buffer's bound forced it
  std::vector<std::string> messages;  ///< one sentence each, with offset; at most 32
};

/// Bounds on what sorting may hold back. The defaults fit any recording that perf makes.
struct ReadLimits {
  uint64_t max_queued_records = 1U << 20;
  uint64_t max_queued_bytes = 512ULL << 20;  ///< decompressed bytes held for records that wait; mapped ones cost nothing
  bool allow_outside = false;                ///< links in a recording's folder may lead out of it
};

/// Opens and reads once; records come sorted by time within FINISHED_ROUND bounds (a bounded buffer), records without time in file order.
/// The mapping (or, for a pipe, a spooled temporary file) lives as long as the reader; AuxtraceRecord payloads view it.
class PerfReader {
 public:
  /// `path`: perf.data file, a perf.data directory (holding `data`), or "-" for standard input.
  static Result<std::unique_ptr<PerfReader>> open(const std::string& path) { return open(path, ReadLimits()); }
  static Result<std::unique_ptr<PerfReader>> open(const std::string& path, const ReadLimits& limits);
  virtual ~PerfReader() = default;

  [[nodiscard]] virtual const std::vector<EventAttr>& attrs() const = 0;
  /// In pipe mode features arrive as records and are complete only after read().
  [[nodiscard]] virtual const Features& features() const = 0;
  /// Paths of PATH/kcore_dir* if the recording has them (directory form), sorted: the host's first, then guests' (kcore_dir__PID).
  [[nodiscard]] virtual const std::vector<std::string>& kcore_dirs() const = 0;
  [[nodiscard]] virtual uint64_t size_bytes() const = 0;
  /// The mapped file (directory form: `data`), for tools that copy bytes. Valid as long as the reader.
  [[nodiscard]] virtual Bytes file_bytes() const = 0;
  /// All files of the recording as they are mapped, read-only. Valid as long as the reader.
  [[nodiscard]] virtual std::vector<Bytes> mappings() const = 0;
  /// True for the pipe form.
  [[nodiscard]] virtual bool is_pipe() const = 0;
  /// Calls `on_record` for each record in order; returning false ends early. An unreadable rest ends it with ok and damage().
  virtual Status read(const std::function<bool(const Record&)>& on_record) = 0;
  [[nodiscard]] virtual const ReadDamage& damage() const = 0;
};

}  // namespace ptd::perfio
