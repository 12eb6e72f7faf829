// Bodies of perf records, by payload type (linux/perf_event.h, tools/lib/perf/include/perf/event.h).
#include "perfio/format/record_encode.h"

#include <algorithm>
#include <cstring>

#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

constexpr size_t kMaxRecordBytes = 65528;

/// Appends the trailer of a record that is not a SAMPLE.
void put_trailer(const EventAttr& attr, const SampleId& id, ByteWriter& out) {
  if (!attr.sample_id_all) return;
  const uint64_t type = attr.sample_type;
  if ((type & kSampleTid) != 0) out.i32(id.pid).i32(id.tid);
  if ((type & kSampleTime) != 0) out.u64(id.time);
  if ((type & kSampleId) != 0) out.u64(id.id);
  if ((type & kSampleStreamId) != 0) out.u64(id.stream_id);
  if ((type & kSampleCpu) != 0) out.i32(id.cpu).u32(0);
  if ((type & kSampleIdentifier) != 0) out.u64(id.id);
}

/// Appends the fields after RAW: those that are no AUX are 0 or empty.
void put_tail(const EventAttr& attr, Bytes aux, ByteWriter& out) {
  const uint64_t type = attr.sample_type;
  if ((type & kSampleBranchStack) != 0) out.zeros((attr.branch_sample_type & kBranchHardwareIndex) != 0 ? 16 : 8);
  for (const uint64_t bit : {kSampleRegsUser, kSampleStackUser, kSampleWeight | kSampleWeightStruct, kSampleDataSource, kSampleTransaction,
                             kSampleRegsIntr, kSamplePhysAddr, kSampleCgroup, kSampleDataPageSize, kSampleCodePageSize}) {
    if ((type & bit) != 0) out.u64(0);
  }
  if ((type & kSampleAux) == 0) return;
  out.u64((aux.size() + 7) / 8 * 8).bytes(aux);  // PT: padded with PAD packets
  out.align(8);
}

/// Appends the body of a SAMPLE. Fields that a SampleId does not hold are 0; READ and CALLCHAIN are empty.
void put_sample(const EventAttr& attr, const SampleId& id, uint64_t ip, Bytes raw, Bytes aux, ByteWriter& out) {
  const uint64_t type = attr.sample_type;
  if ((type & kSampleIdentifier) != 0) out.u64(id.id);
  if ((type & kSampleIp) != 0) out.u64(ip);
  if ((type & kSampleTid) != 0) out.i32(id.pid).i32(id.tid);
  if ((type & kSampleTime) != 0) out.u64(id.time);
  if ((type & kSampleAddr) != 0) out.u64(0);
  if ((type & kSampleId) != 0) out.u64(id.id);
  if ((type & kSampleStreamId) != 0) out.u64(id.stream_id);
  if ((type & kSampleCpu) != 0) out.i32(id.cpu).u32(0);
  if ((type & kSamplePeriod) != 0) out.u64(1);
  if ((type & kSampleRead) != 0) {
    out.u64(0);  // value, or the number of values of a group
    if ((attr.read_format & kFormatTimeEnabled) != 0) out.u64(0);
    if ((attr.read_format & kFormatTimeRunning) != 0) out.u64(0);
    const bool group = (attr.read_format & kFormatGroup) != 0;
    if (!group && (attr.read_format & kFormatId) != 0) out.u64(id.id);
    if (!group && (attr.read_format & kFormatLost) != 0) out.u64(0);
  }
  if ((type & kSampleCallchain) != 0) out.u64(0);
  if ((type & kSampleRaw) != 0) {
    out.u32(static_cast<uint32_t>(raw.size())).bytes(raw);
    out.align(8);
  }
  put_tail(attr, aux, out);
}

/// Writes one body and says which type and misc bits it implies. A type of 0 means that it cannot be written.
struct BodyEncoder {
  const EncodeContext& context;
  const EventAttr& attr;
  ByteWriter out;
  uint16_t misc = 0;

  uint32_t operator()(const OtherRecord&) { return 0; }
  uint32_t operator()(const MmapRecord& r) {
    out.i32(r.pid).i32(r.tid).u64(r.addr).u64(r.size_bytes).u64(r.file_offset_bytes);
    if (context.as_mmap2) {
      if (!r.build_id.empty()) {
        misc |= kMiscMmapBuildId;
        const size_t size_bytes = std::min<size_t>(r.build_id.size(), 20);
        out.u8(static_cast<uint8_t>(size_bytes))
            .zeros(3)
            .bytes(std::as_bytes(std::span(r.build_id)).first(size_bytes))
            .zeros(20 - size_bytes);
      } else {
        out.u32(r.maj).u32(r.min).u64(r.inode).u64(r.inode_generation);
      }
      out.u32(r.prot).u32(r.flags);
    } else if (!r.executable) {
      misc |= kMiscMmapData;
    }
    out.text(r.path, 8);
    return context.as_mmap2 ? kRecordMmap2 : kRecordMmap;
  }
  uint32_t operator()(const CommRecord& r) {
    if (r.exec) misc |= kMiscCommExec;
    out.i32(r.pid).i32(r.tid).text(r.comm, 8);
    return kRecordComm;
  }
  uint32_t operator()(const TaskRecord& r) {
    out.i32(r.pid).i32(r.ppid).i32(r.tid).i32(r.ptid).u64(r.time);
    return r.exit ? kRecordExit : kRecordFork;
  }
  uint32_t operator()(const SwitchRecord& r) {
    if (r.out) misc |= kMiscSwitchOut;
    if (r.out && r.preempt) misc |= kMiscSwitchOutPreempt;
    if (r.cpu_wide) out.i32(r.next_prev_pid).i32(r.next_prev_tid);
    return r.cpu_wide ? kRecordSwitchCpuWide : kRecordSwitch;
  }
  uint32_t operator()(const SchedSwitchSample& r) {
    std::vector<std::byte> raw(68);  // common fields, prev_comm, prev_pid, prev_prio, prev_state, next_comm, next_pid, next_prio, pad
    std::memcpy(raw.data() + 24, &r.prev_tid, 4);
    std::memcpy(raw.data() + 56, &r.next_tid, 4);
    put_sample(attr, context.sample_id, 0, raw, {}, out);
    return kRecordSample;
  }
  uint32_t operator()(const OtherSample& r) {
    put_sample(attr, context.sample_id, r.ip, r.raw, r.aux, out);
    return kRecordSample;
  }
  uint32_t operator()(const KsymbolRecord& r) {
    out.u64(r.addr).u32(r.size_bytes).u16(r.type).u16(r.unregister ? 1 : 0).text(r.name, 8);
    return kRecordKsymbol;
  }
  uint32_t operator()(const BpfRecord& r) {
    const size_t tag_bytes = std::min<size_t>(r.tag.size(), 8);
    out.u16(r.type).u16(0).u32(r.id).bytes(Bytes(r.tag).first(tag_bytes)).zeros(8 - tag_bytes);
    return kRecordBpfEvent;
  }
  uint32_t operator()(const TextPokeRecord& r) {
    if (r.old_bytes.size() + r.new_bytes.size() > kMaxRecordBytes) return 0;
    out.u64(r.addr).u16(static_cast<uint16_t>(r.old_bytes.size())).u16(static_cast<uint16_t>(r.new_bytes.size()));
    out.bytes(r.old_bytes).bytes(r.new_bytes).align(8);
    return kRecordTextPoke;
  }
  uint32_t operator()(const LostRecord& r) {
    if (!r.samples) out.u64(r.id);
    out.u64(r.count);
    return r.samples ? kRecordLostSamples : kRecordLost;
  }
  uint32_t operator()(const AuxRecord& r) {
    out.u64(r.aux_offset_bytes).u64(r.aux_size_bytes).u64(r.flags);
    return kRecordAux;
  }
  uint32_t operator()(const ItraceStartRecord& r) {
    out.i32(r.pid).i32(r.tid);
    return kRecordItraceStart;
  }
  uint32_t operator()(const AuxOutputHwIdRecord& r) {
    out.u64(r.hw_id);
    return kRecordAuxOutputHwId;
  }
  uint32_t operator()(const AuxtraceInfoRecord& r) {
    out.u32(r.type).u32(0);
    for (const uint64_t word : r.priv) out.u64(word);
    return kRecordAuxtraceInfo;
  }
  uint32_t operator()(const AuxtraceRecord& r) {
    out.u64(r.size_bytes).u64(r.offset_bytes).u64(r.reference).u32(r.idx).i32(r.tid).i32(r.cpu).u32(0);
    return kRecordAuxtrace;
  }
  uint32_t operator()(const AuxtraceErrorRecord& r) {
    out.u32(r.type).u32(r.code).i32(r.cpu).i32(r.pid).i32(r.tid).u32(1).u64(r.ip).u64(r.time);
    out.text(r.message.substr(0, 63), 64);
    return kRecordAuxtraceError;
  }
  uint32_t operator()(const TimeConvRecord& r) {
    out.u64(r.time_shift).u64(r.time_mult).u64(r.time_zero).u64(r.time_cycles).u64(r.time_mask);
    out.u8(r.cap_user_time_zero ? 1 : 0).u8(r.cap_user_time_short ? 1 : 0).zeros(6);
    return kRecordTimeConv;
  }
  uint32_t operator()(const NamespacesRecord& r) {
    out.i32(r.pid).i32(r.tid).u64(r.dev_ino.size());
    for (const auto& [dev, ino] : r.dev_ino) out.u64(dev).u64(ino);
    return kRecordNamespaces;
  }
  uint32_t operator()(const ThrottleRecord& r) {
    out.u64(context.sample_id.time).u64(context.sample_id.id).u64(context.sample_id.stream_id);
    return r.unthrottle ? kRecordUnthrottle : kRecordThrottle;
  }
};

}  // namespace

bool encode_record(const Payload& payload, const EncodeContext& context, const EventAttr& attr, std::vector<std::byte>& out) {
  std::vector<std::byte> record;
  ByteWriter writer(record);
  writer.u32(0).u16(0).u16(0);
  BodyEncoder encoder{context, attr, writer, 0};
  const uint32_t type = std::visit(encoder, payload);
  if (type != 0 && type < kRecordUserStart && type != kRecordSample) put_trailer(attr, context.sample_id, writer);
  if (type == 0 || record.size() > kMaxRecordBytes) return false;
  const auto misc = static_cast<uint16_t>(context.misc | encoder.misc);
  const auto size_bytes = static_cast<uint16_t>(record.size());
  std::memcpy(record.data(), &type, 4);
  std::memcpy(record.data() + 4, &misc, 2);
  std::memcpy(record.data() + 6, &size_bytes, 2);
  out.insert(out.end(), record.begin(), record.end());
  return true;
}

std::vector<std::byte> encode_attr(const EventAttr& attr, size_t size_bytes) {
  std::vector<std::byte> bytes = attr.raw;
  if (bytes.empty()) {
    uint64_t flags = attr.flags;
    if (attr.sample_id_all) flags |= kAttrSampleIdAll;
    if (attr.exclude_kernel) flags |= kAttrExcludeKernel;
    if (attr.exclude_user) flags |= kAttrExcludeUser;
    if (attr.exclude_hv) flags |= kAttrExcludeHv;
    if (attr.use_clockid) flags |= kAttrUseClockid;
    ByteWriter out(bytes);
    out.u32(attr.type).u32(0).u64(attr.config).u64(attr.sample_period).u64(attr.sample_type).u64(attr.read_format).u64(flags);
    out.u64(0).u64(attr.config1).u64(attr.config2).u64(attr.branch_sample_type).u64(attr.sample_regs_user).u32(0).i32(attr.clockid);
    out.u64(attr.sample_regs_intr).u64(0).u32(attr.aux_sample_bytes).u32(attr.aux_action);
  }
  bytes.resize(std::max(bytes.size(), size_bytes));
  const auto stated = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data() + 4, &stated, 4);
  return bytes;
}

}  // namespace ptd::perfio
