// Feature sections (tools/perf Documentation/perf.data-file-format.txt, "HEADER_*").
#include "perfio/format/features.h"

#include <algorithm>
#include <unordered_map>

#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

constexpr uint64_t kBuildIdEventBytes = 36;
constexpr uint64_t kBuildIdBytes = 20;
/// Arrays of bpf_prog_info that a section may carry, by their bit in perf_bpil.arrays.
constexpr uint64_t kBpilJitedInsns = 1U << 0;
constexpr uint64_t kBpilJitedKsyms = 1U << 3;
constexpr uint64_t kBpilJitedFuncLens = 1U << 4;
constexpr uint64_t kBpilProgTags = 1U << 8;

bool parse_build_ids(Bytes section, Features& features) {
  while (section.size() >= kBuildIdEventBytes) {
    const RecordHeader header = read_record_header(section);
    BuildIdEntry entry;
    if (header.size_bytes > section.size() || !parse_build_id_event(section.first(header.size_bytes), entry)) return false;
    features.build_ids.push_back(std::move(entry));
    section = section.subspan(header.size_bytes);
  }
  return section.empty();
}

bool parse_event_desc(Bytes section, std::vector<EventAttr>& attrs) {
  Cursor in(section);
  const uint32_t count = in.u32();
  const uint32_t attr_bytes = in.u32();
  std::unordered_map<uint64_t, size_t> by_id;
  for (size_t i = 0; i < attrs.size(); ++i) {
    for (const uint64_t id : attrs[i].ids) by_id.emplace(id, i);
  }
  for (uint32_t i = 0; i < count && in.ok() && in.remaining() > 0; ++i) {
    in.skip(attr_bytes);
    const uint32_t id_count = in.u32();
    std::string name = in.header_string();
    if (!in.ok() || id_count > in.remaining() / 8) return false;
    std::vector<uint64_t> ids(id_count);
    for (uint64_t& id : ids) id = in.u64();
    const auto known = ids.empty() ? by_id.end() : by_id.find(ids.front());
    const size_t index = known == by_id.end() ? i : known->second;
    if (index >= attrs.size()) continue;
    EventAttr& attr = attrs[index];
    attr.name = std::move(name);
    if (!attr.ids.empty()) continue;
    attr.ids = std::move(ids);
    for (const uint64_t id : attr.ids) by_id.emplace(id, index);
  }
  return in.ok();
}

bool parse_pmu_mappings(Bytes section, Features& features) {
  Cursor in(section);
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    const uint32_t type = in.u32();
    std::string name = in.header_string();
    if (in.ok()) features.pmu_types[std::move(name)] = type;
  }
  return in.ok();
}

bool parse_cmdline(Bytes section, Features& features) {
  Cursor in(section);
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    std::string word = in.header_string();
    if (in.ok()) features.cmdline.push_back(std::move(word));
  }
  return in.ok();
}

/// The array that starts at `offset_bytes` of the data after bpf_prog_info; empty if it does not fit.
Bytes bpil_array(Bytes data, uint64_t offset_bytes, uint64_t size_bytes) {
  if (offset_bytes > data.size() || size_bytes > data.size() - offset_bytes) return {};
  return data.subspan(static_cast<size_t>(offset_bytes), static_cast<size_t>(size_bytes));
}

/// One struct bpf_prog_info (linux/bpf.h) followed by its arrays, pointers replaced by offsets into `data`.
BpfProgInfo parse_bpf_prog(Bytes info, Bytes data, uint64_t arrays) {
  std::vector<std::byte> padded(std::max<size_t>(info.size(), 256));  // fields that an older kernel lacks read as 0
  std::copy(info.begin(), info.end(), padded.begin());
  Cursor in(padded);
  BpfProgInfo prog;
  prog.type = in.u32();
  prog.id = in.u32();
  in.skip(8);  // tag
  const uint32_t jited_bytes = in.u32();
  in.skip(4);  // xlated_prog_len
  const uint64_t jited_offset = in.u64();
  in.skip(8);  // xlated_prog_insns
  prog.load_time_ns = in.u64();
  in.skip(16);  // created_by_uid, nr_map_ids, map_ids
  prog.name = Cursor::text_of(in.take(16));
  in.skip(24);  // ifindex, flags, netns_dev, netns_ino
  const uint32_t ksym_count = in.u32();
  const uint32_t len_count = in.u32();
  const uint64_t ksym_offset = in.u64();
  const uint64_t len_offset = in.u64();
  prog.btf_id = in.u32();
  in.skip(48);  // func_info to jited_line_info_rec_size
  const uint32_t tag_count = in.u32();
  const uint64_t tag_offset = in.u64();
  if ((arrays & kBpilProgTags) != 0) {
    const Bytes tags = bpil_array(data, tag_offset, 8ULL * tag_count);
    prog.tags.assign(tags.begin(), tags.end());
  }
  if ((arrays & kBpilJitedInsns) != 0) {
    const Bytes insns = bpil_array(data, jited_offset, jited_bytes);
    prog.jited_insns.assign(insns.begin(), insns.end());
  }
  if ((arrays & kBpilJitedKsyms) != 0) {
    Cursor ksyms(bpil_array(data, ksym_offset, 8ULL * ksym_count));
    while (ksyms.remaining() >= 8) prog.jited_ksyms.push_back(ksyms.u64());
  }
  if ((arrays & kBpilJitedFuncLens) != 0) {
    Cursor lens(bpil_array(data, len_offset, 4ULL * len_count));
    while (lens.remaining() >= 4) prog.jited_func_lens.push_back(lens.u32());
  }
  return prog;
}

bool parse_bpf_progs(Bytes section, Features& features) {
  Cursor in(section);
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    const uint32_t info_bytes = in.u32();
    const uint32_t data_bytes = in.u32();
    const uint64_t arrays = in.u64();
    const Bytes info = in.take(info_bytes);
    const Bytes data = in.take(data_bytes);
    if (in.ok()) features.bpf_progs.push_back(parse_bpf_prog(info, data, arrays));
  }
  return in.ok();
}

bool parse_bpf_btf(Bytes section, Features& features) {
  Cursor in(section);
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    const uint32_t id = in.u32();
    const Bytes data = in.take(in.u32());
    if (in.ok()) features.bpf_btf[id].assign(data.begin(), data.end());
  }
  return in.ok();
}

bool parse_auxtrace_index(Bytes section, Features& features) {
  Cursor in(section);
  const bool counted = section.size() % 16 == 8;  // simpleperf leaves the count out
  const uint64_t count = counted ? in.u64() : section.size() / 16;
  if (!in.ok() || count > in.remaining() / 16) return false;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t offset = in.u64();
    features.auxtrace_index.push_back({offset, in.u64()});
  }
  return in.ok();
}

bool parse_clock_data(Bytes section, Features& features) {
  Cursor in(section);
  in.skip(4);  // version
  features.clock_data_clockid = in.i32();
  features.wall_clock_ns = in.u64();
  features.clockid_time_ns = in.u64();
  features.has_clock_data = in.ok();
  return in.ok();
}

}  // namespace

bool parse_build_id_event(Bytes record, BuildIdEntry& out) {
  if (record.size() < kBuildIdEventBytes) return false;
  out.misc = read_record_header(record).misc;
  Cursor in(record.subspan(kRecordHeaderBytes));
  out.pid = in.i32();
  const Bytes build_id = in.take(24);
  uint64_t size_bytes = kBuildIdBytes;
  if ((out.misc & kMiscBuildIdSize) != 0) size_bytes = std::min<uint64_t>(static_cast<uint8_t>(build_id[20]), kBuildIdBytes);
  out.build_id.assign(reinterpret_cast<const char*>(build_id.data()), static_cast<size_t>(size_bytes));
  out.path = in.text();
  return in.ok();
}

bool parse_feature(uint32_t bit, Bytes section, Features& features, std::vector<EventAttr>& attrs) {
  Cursor in(section);
  switch (bit) {
    case kFeatureBuildId:
      return parse_build_ids(section, features);
    case kFeatureHostname:
      features.hostname = in.header_string();
      return in.ok();
    case kFeatureOsRelease:
      features.os_release = in.header_string();
      return in.ok();
    case kFeatureVersion:
      features.version = in.header_string();
      return in.ok();
    case kFeatureArch:
      features.arch = in.header_string();
      return in.ok();
    case kFeatureNrCpus:
      features.cpus_available = in.u32();
      features.cpus_online = in.u32();
      return in.ok();
    case kFeatureCpuDesc:
      features.cpu_desc = in.header_string();
      return in.ok();
    case kFeatureCpuid:
      features.cpuid = in.header_string();
      return in.ok();
    case kFeatureTotalMem:
      features.total_mem_kb = in.u64();
      return in.ok();
    case kFeatureCmdline:
      features.cmdline.clear();
      return parse_cmdline(section, features);
    case kFeatureEventDesc:
      return parse_event_desc(section, attrs);
    case kFeaturePmuMappings:
      return parse_pmu_mappings(section, features);
    case kFeatureAuxtrace:
      return parse_auxtrace_index(section, features);
    case kFeatureSampleTime:
      features.first_sample_time = in.u64();
      features.last_sample_time = in.u64();
      return in.ok();
    case kFeatureClockid:
      features.clockid_resolution_ns = in.u64();
      return in.ok();
    case kFeatureDirFormat:
      features.dir_version = in.u64();
      return in.ok();
    case kFeatureBpfProgInfo:
      return parse_bpf_progs(section, features);
    case kFeatureBpfBtf:
      return parse_bpf_btf(section, features);
    case kFeatureCompressed:
      features.compressed = true;
      in.skip(16);  // version, type, level, ratio
      features.compressed_mmap_len = in.u32();
      return in.ok();
    case kFeatureClockData:
      return parse_clock_data(section, features);
    default:
      return true;
  }
}

std::string build_id_hex(const std::string& raw) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(raw.size() * 2);
  for (const char c : raw) {
    const auto value = static_cast<uint8_t>(c);
    hex += kDigits[value >> 4];
    hex += kDigits[value & 15];
  }
  return hex;
}

}  // namespace ptd::perfio
