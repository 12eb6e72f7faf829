// The perf records that decoding needs, as values (linux/perf_event.h, tools/lib/perf/include/perf/event.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::perfio {

/// The sample_id trailer of a record; fields absent from sample_type keep their defaults.
struct SampleId {
  int32_t pid = -1;
  int32_t tid = -1;
  uint64_t time = 0;      ///< perf clock, ns; 0 if not recorded
  bool has_time = false;  ///< recorded and not 0: perf's synthesized records carry a trailer of zeros
  int32_t cpu = -1;
  uint64_t id = 0;
  uint64_t stream_id = 0;
};

// Record payloads. Views point into the file mapping or the record's own storage: valid during the callback only, unless said otherwise.
struct MmapRecord {  ///< MMAP and MMAP2
  int32_t pid = -1, tid = -1;
  uint64_t addr = 0, size_bytes = 0, file_offset_bytes = 0;
  uint32_t maj = 0, min = 0;
  uint64_t inode = 0, inode_generation = 0;
  uint32_t prot = 0, flags = 0;
  std::string build_id;  ///< raw bytes (build_id_hex) if PERF_RECORD_MISC_MMAP_BUILD_ID, else empty
  std::string path;
  bool executable = true;  ///< MMAP: not MISC_MMAP_DATA. MMAP2: prot & PROT_EXEC
  bool kernel = false;     ///< cpumode of misc is kernel (or pid == -1)
  bool guest = false;
};
struct CommRecord {
  int32_t pid = -1, tid = -1;
  std::string comm;
  bool exec = false;
};
struct TaskRecord {
  int32_t pid = -1, ppid = -1, tid = -1, ptid = -1;
  uint64_t time = 0;
  bool exit = false;
};  ///< FORK and EXIT
struct SwitchRecord {
  bool out = false;
  bool preempt = false;
  bool cpu_wide = false;
  int32_t next_prev_pid = -1, next_prev_tid = -1;
};
/// A sched:sched_switch sample, from its raw tracepoint payload: prev/next tids.
struct SchedSwitchSample {
  int32_t prev_tid = -1, next_tid = -1;
};
struct KsymbolRecord {
  uint64_t addr = 0;
  uint32_t size_bytes = 0;
  uint16_t type = 0;
  bool unregister = false;
  std::string name;
};  ///< type: 1 BPF, 2 OOL
struct BpfRecord {
  uint16_t type = 0;
  uint32_t id = 0;
  std::vector<std::byte> tag;
};  ///< type: 1 load, 2 unload
struct TextPokeRecord {
  uint64_t addr = 0;
  std::vector<std::byte> old_bytes, new_bytes;
};
struct LostRecord {
  uint64_t id = 0, count = 0;
  bool samples = false;
};
inline constexpr uint64_t kAuxTruncated = 1, kAuxOverwrite = 2, kAuxPartial = 4, kAuxCollision = 8;  ///< PERF_AUX_FLAG_*
struct AuxRecord {
  uint64_t aux_offset_bytes = 0, aux_size_bytes = 0, flags = 0;
};  ///< flags: PERF_AUX_FLAG_*
struct ItraceStartRecord {
  int32_t pid = -1, tid = -1;
};
struct AuxOutputHwIdRecord {
  uint64_t hw_id = 0;
};
struct AuxtraceInfoRecord {
  uint32_t type = 0;
  std::vector<uint64_t> priv;
  std::string filter;
  std::vector<std::byte> raw;
};  ///< type 1: Intel PT, 3: cs_etm
/// Payload of one AUXTRACE record: `payload` views the file (mapped) and stays valid as long as the reader.
struct AuxtraceRecord {
  uint64_t size_bytes = 0, offset_bytes = 0, reference = 0;
  uint32_t idx = 0;
  int32_t tid = -1;
  int32_t cpu = -1;
  Bytes payload;  ///< shorter than size_bytes if the file was cut or the payload is absent
};
struct AuxtraceErrorRecord {
  uint32_t type = 0, code = 0;
  int32_t cpu = -1, pid = -1, tid = -1;
  uint64_t ip = 0, time = 0;
  std::string message;
};
struct TimeConvRecord {
  uint64_t time_shift = 0, time_mult = 0, time_zero = 0, time_cycles = 0, time_mask = 0;
  bool cap_user_time_zero = false, cap_user_time_short = false;
};
struct NamespacesRecord {
  int32_t pid = -1, tid = -1;
  std::vector<std::pair<uint64_t, uint64_t>> dev_ino;
};
struct ThrottleRecord {
  bool unthrottle = false;
};
struct OtherSample {
  uint64_t ip = 0;
  Bytes raw{};             ///< PERF_SAMPLE_RAW data: of a tracepoint, its payload
  Bytes aux{};             ///< PERF_SAMPLE_AUX data: the last bytes of trace before the sample
  bool transient = false;  ///< the record was compressed: the views end with the callback. Else they stay valid as long as the reader
};                         ///< a sample of some other event
struct OtherRecord {};     ///< a type we do not use; counted by type

using Payload = std::variant<OtherRecord, MmapRecord, CommRecord, TaskRecord, SwitchRecord, SchedSwitchSample, KsymbolRecord, BpfRecord,
                             TextPokeRecord, LostRecord, AuxRecord, ItraceStartRecord, AuxOutputHwIdRecord, AuxtraceInfoRecord,
                             AuxtraceRecord, AuxtraceErrorRecord, TimeConvRecord, NamespacesRecord, ThrottleRecord, OtherSample>;

/// One record: header facts, trailer and payload.
struct Record {
  uint32_t type = 0;  ///< PERF_RECORD_*
  uint16_t misc = 0;
  uint32_t size_bytes = 0;
  uint64_t file_offset_bytes = 0;
  uint32_t file = 0;        ///< which of PerfReader::mappings()
  uint32_t attr_index = 0;  ///< which event of the recording, 0 if unknown
  SampleId sample_id;
  Bytes raw;  ///< the record as in the file, header included, without an AUXTRACE payload; valid during the callback
  Payload payload;
};

}  // namespace ptd::perfio
