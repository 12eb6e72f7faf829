// Feature sections of the file form and HEADER_FEATURE, HEADER_BUILD_ID records of the pipe form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "perfio/format/event_attr.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

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
/// File offset of an AUXTRACE record, and its length without the payload.
struct AuxtraceIndexEntry {
  uint64_t file_offset_bytes = 0, size_bytes = 0;
};
/// The bytes of a feature section, including those that Features does not interpret. A view of the mapped file.
struct RawFeature {
  uint32_t bit = 0;
  Bytes bytes;
};

/// The feature sections that ptdecode reads. Absent sections keep the defaults.
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

/// Returns a build id's raw bytes as lower-case hex.
std::string build_id_hex(const std::string& raw);

/// Reads one section into `features`; names and ids of EVENT_DESC go into `attrs`. Unknown bits are ignored.
/// Returns false if the section is inconsistent; the fields read before that stay.
[[nodiscard]] bool parse_feature(uint32_t bit, Bytes section, Features& features, std::vector<EventAttr>& attrs);

/// Reads one build_id_event, with its record header.
[[nodiscard]] bool parse_build_id_event(Bytes record, BuildIdEntry& out);

}  // namespace ptd::perfio
