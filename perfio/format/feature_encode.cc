// Feature sections (tools/perf Documentation/perf.data-file-format.txt, "HEADER_*").
#include "perfio/format/feature_encode.h"

#include <algorithm>

#include "perfio/format/byte_writer.h"
#include "perfio/format/record_encode.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

void put_event_desc(const std::vector<EventAttr>& attrs, size_t attr_bytes, ByteWriter out) {
  out.u32(static_cast<uint32_t>(attrs.size())).u32(static_cast<uint32_t>(attr_bytes));
  for (const EventAttr& attr : attrs) {
    out.bytes(encode_attr(attr, attr_bytes)).u32(static_cast<uint32_t>(attr.ids.size())).header_string(attr.name);
    for (const uint64_t id : attr.ids) out.u64(id);
  }
}

void put_build_ids(const std::vector<BuildIdEntry>& entries, ByteWriter out) {
  for (const BuildIdEntry& entry : entries) {
    std::vector<std::byte> record;
    ByteWriter one(record);
    const size_t id_bytes = std::min<size_t>(entry.build_id.size(), 20);
    const size_t name_bytes = entry.path.size() + (64 - entry.path.size() % 64);
    one.u32(kRecordHeaderBuildId).u16(entry.misc | kMiscBuildIdSize).u16(static_cast<uint16_t>(36 + std::min<size_t>(name_bytes, 65000)));
    one.i32(entry.pid).bytes(std::as_bytes(std::span(entry.build_id)).first(id_bytes)).zeros(20 - id_bytes);
    one.u8(static_cast<uint8_t>(id_bytes)).zeros(3);
    if (name_bytes > 65000) continue;
    one.text(entry.path, 64);
    out.bytes(record);
  }
}

/// struct perf_bpil: info_len, data_len, arrays, bpf_prog_info, arrays one after the other.
void put_bpf_prog(const BpfProgInfo& prog, ByteWriter out) {
  constexpr uint32_t kInfoBytes = 208;  // struct bpf_prog_info up to run_cnt
  constexpr uint64_t kArrays = 1U << 0 | 1U << 3 | 1U << 4 | 1U << 8;
  std::vector<std::byte> data;
  ByteWriter arrays(data);
  arrays.bytes(prog.jited_insns).align(8);
  const uint64_t ksyms_at = data.size();
  for (const uint64_t address : prog.jited_ksyms) arrays.u64(address);
  const uint64_t lens_at = data.size();
  for (const uint32_t length : prog.jited_func_lens) arrays.u32(length);
  arrays.align(8);
  const uint64_t tags_at = data.size();
  std::vector<std::byte> tags = prog.tags;
  tags.resize(8 * std::max<size_t>(1, prog.jited_func_lens.size()));  // perf names functions by their tags and expects one each
  arrays.bytes(tags);
  out.u32(kInfoBytes).u32(static_cast<uint32_t>(data.size())).u64(kArrays);
  out.u32(prog.type).u32(prog.id).bytes(Bytes(tags).first(8));
  out.u32(static_cast<uint32_t>(prog.jited_insns.size())).u32(0).u64(0).u64(0).u64(prog.load_time_ns);
  out.u32(0).u32(0).u64(0);  // created_by_uid, nr_map_ids, map_ids
  const std::string name = prog.name.substr(0, 15);
  out.text(name, 16).zeros(24);  // ifindex, flags, netns_dev, netns_ino
  out.u32(static_cast<uint32_t>(prog.jited_ksyms.size())).u32(static_cast<uint32_t>(prog.jited_func_lens.size()));
  out.u64(ksyms_at).u64(lens_at).u32(prog.btf_id).zeros(48);
  out.u32(static_cast<uint32_t>(tags.size() / 8)).u64(tags_at).zeros(16);
  out.bytes(data);
}

std::vector<std::byte> string_section(const std::string& value) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).header_string(value);
  return bytes;
}

void add_strings(const Features& f, FeatureSections& out) {
  const std::pair<uint32_t, const std::string*> strings[] = {{kFeatureHostname, &f.hostname}, {kFeatureOsRelease, &f.os_release},
                                                             {kFeatureVersion, &f.version},   {kFeatureArch, &f.arch},
                                                             {kFeatureCpuDesc, &f.cpu_desc},  {kFeatureCpuid, &f.cpuid}};
  for (const auto& [bit, value] : strings) {
    if (!value->empty()) out[bit] = string_section(*value);
  }
  if (!f.cmdline.empty()) {
    ByteWriter words(out[kFeatureCmdline]);
    words.u32(static_cast<uint32_t>(f.cmdline.size()));
    for (const std::string& word : f.cmdline) words.header_string(word);
  }
  if (!f.pmu_types.empty()) {
    ByteWriter pmus(out[kFeaturePmuMappings]);
    pmus.u32(static_cast<uint32_t>(f.pmu_types.size()));
    for (const auto& [name, type] : f.pmu_types) pmus.u32(type).header_string(name);
  }
}

}  // namespace

FeatureSections encode_features(const Features& f, const std::vector<EventAttr>& attrs, size_t attr_bytes) {
  FeatureSections out;
  add_strings(f, out);
  if (f.cpus_available != 0) ByteWriter(out[kFeatureNrCpus]).u32(f.cpus_available).u32(f.cpus_online);
  if (f.total_mem_kb != 0) ByteWriter(out[kFeatureTotalMem]).u64(f.total_mem_kb);
  const bool named = std::any_of(attrs.begin(), attrs.end(), [](const EventAttr& attr) { return !attr.name.empty(); });
  if (named) put_event_desc(attrs, attr_bytes, ByteWriter(out[kFeatureEventDesc]));
  if (!f.build_ids.empty()) put_build_ids(f.build_ids, ByteWriter(out[kFeatureBuildId]));
  if (!f.bpf_progs.empty()) {
    ByteWriter progs(out[kFeatureBpfProgInfo]);
    progs.u32(static_cast<uint32_t>(f.bpf_progs.size()));
    for (const BpfProgInfo& prog : f.bpf_progs) put_bpf_prog(prog, progs);
  }
  if (!f.bpf_btf.empty()) {
    ByteWriter btf(out[kFeatureBpfBtf]);
    btf.u32(static_cast<uint32_t>(f.bpf_btf.size()));
    for (const auto& [id, data] : f.bpf_btf) btf.u32(id).u32(static_cast<uint32_t>(data.size())).bytes(data);
  }
  if (f.clockid_resolution_ns != 0) ByteWriter(out[kFeatureClockid]).u64(f.clockid_resolution_ns);
  if (f.has_clock_data) {
    ByteWriter(out[kFeatureClockData]).u32(1).i32(f.clock_data_clockid).u64(f.wall_clock_ns).u64(f.clockid_time_ns);
  }
  if (f.last_sample_time != 0) ByteWriter(out[kFeatureSampleTime]).u64(f.first_sample_time).u64(f.last_sample_time);
  if (f.dir_version != 0) ByteWriter(out[kFeatureDirFormat]).u64(f.dir_version);
  return out;
}

std::vector<std::byte> encode_auxtrace_index(const std::vector<AuxtraceIndexEntry>& index) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.u64(index.size());
  for (const AuxtraceIndexEntry& entry : index) out.u64(entry.file_offset_bytes).u64(entry.size_bytes);
  return bytes;
}

}  // namespace ptd::perfio
