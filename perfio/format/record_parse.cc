// Bodies of perf records, by type (linux/perf_event.h, tools/lib/perf/include/perf/event.h).
#include "perfio/format/record_parse.h"

#include "perfio/format/auxtrace_pt.h"

namespace ptd::perfio {
namespace {

constexpr uint32_t kProtExec = 4;

void mark_mode(uint16_t misc, MmapRecord& mmap) {
  const uint16_t mode = misc & kMiscCpumodeMask;
  mmap.kernel = mode == kMiscKernel || mode == kMiscGuestKernel || mmap.pid == -1;
  mmap.guest = is_guest(misc);
}

/// The fields that MMAP and MMAP2 begin with.
MmapRecord parse_mmap_range(Cursor& in) {
  MmapRecord mmap;
  mmap.pid = in.i32();
  mmap.tid = in.i32();
  mmap.addr = in.u64();
  mmap.size_bytes = in.u64();
  mmap.file_offset_bytes = in.u64();
  return mmap;
}

bool parse_mmap(const RecordHeader& header, Cursor& in, Payload& out) {
  MmapRecord mmap = parse_mmap_range(in);
  mmap.path = in.text();
  mmap.executable = (header.misc & kMiscMmapData) == 0;
  mark_mode(header.misc, mmap);
  out = std::move(mmap);
  return in.ok();
}

bool parse_mmap2(const RecordHeader& header, Cursor& in, Payload& out) {
  MmapRecord mmap = parse_mmap_range(in);
  const Bytes identity = in.take(24);
  if (!in.ok()) return false;
  Cursor id(identity);
  if ((header.misc & kMiscMmapBuildId) != 0) {
    const auto size_bytes = std::min<uint64_t>(id.get<uint8_t>(), 20);
    id.skip(3);
    const Bytes build_id = id.take(size_bytes);
    mmap.build_id.assign(reinterpret_cast<const char*>(build_id.data()), build_id.size());
  } else {
    mmap.maj = id.u32();
    mmap.min = id.u32();
    mmap.inode = id.u64();
    mmap.inode_generation = id.u64();
  }
  mmap.prot = in.u32();
  mmap.flags = in.u32();
  mmap.path = in.text();
  mmap.executable = (mmap.prot & kProtExec) != 0;
  mark_mode(header.misc, mmap);
  out = std::move(mmap);
  return in.ok();
}

bool parse_comm(const RecordHeader& header, Cursor& in, Payload& out) {
  CommRecord comm;
  comm.pid = in.i32();
  comm.tid = in.i32();
  comm.comm = in.text();
  comm.exec = (header.misc & kMiscCommExec) != 0;
  out = std::move(comm);
  return in.ok();
}

bool parse_task(const RecordHeader& header, Cursor& in, Payload& out) {
  TaskRecord task;
  task.pid = in.i32();
  task.ppid = in.i32();
  task.tid = in.i32();
  task.ptid = in.i32();
  task.time = in.u64();
  task.exit = header.type == kRecordExit;
  out = task;
  return in.ok();
}

bool parse_switch(const RecordHeader& header, Cursor& in, Payload& out) {
  SwitchRecord change;
  change.out = (header.misc & kMiscSwitchOut) != 0;
  change.preempt = change.out && (header.misc & kMiscSwitchOutPreempt) != 0;
  change.cpu_wide = header.type == kRecordSwitchCpuWide;
  if (change.cpu_wide) {
    change.next_prev_pid = in.i32();
    change.next_prev_tid = in.i32();
  }
  out = change;
  return in.ok();
}

bool parse_ksymbol(Cursor& in, Payload& out) {
  KsymbolRecord symbol;
  symbol.addr = in.u64();
  symbol.size_bytes = in.u32();
  symbol.type = in.u16();
  symbol.unregister = (in.u16() & 1) != 0;
  symbol.name = in.text();
  out = std::move(symbol);
  return in.ok();
}

bool parse_bpf(Cursor& in, Payload& out) {
  BpfRecord bpf;
  bpf.type = in.u16();
  in.skip(2);
  bpf.id = in.u32();
  const Bytes tag = in.take(8);
  bpf.tag.assign(tag.begin(), tag.end());
  out = std::move(bpf);
  return in.ok();
}

bool parse_text_poke(Cursor& in, Payload& out) {
  TextPokeRecord poke;
  poke.addr = in.u64();
  const uint16_t old_len = in.u16();
  const uint16_t new_len = in.u16();
  const Bytes old_bytes = in.take(old_len);
  const Bytes new_bytes = in.take(new_len);
  poke.old_bytes.assign(old_bytes.begin(), old_bytes.end());
  poke.new_bytes.assign(new_bytes.begin(), new_bytes.end());
  out = std::move(poke);
  return in.ok();
}

bool parse_lost(const RecordHeader& header, Cursor& in, Payload& out) {
  LostRecord lost;
  lost.samples = header.type == kRecordLostSamples;
  if (!lost.samples) lost.id = in.u64();
  lost.count = in.u64();
  out = lost;
  return in.ok();
}

bool parse_aux(Cursor& in, Payload& out) {
  AuxRecord aux;
  aux.aux_offset_bytes = in.u64();
  aux.aux_size_bytes = in.u64();
  aux.flags = in.u64();
  out = aux;
  return in.ok();
}

bool parse_namespaces(Cursor& in, Payload& out) {
  NamespacesRecord spaces;
  spaces.pid = in.i32();
  spaces.tid = in.i32();
  const uint64_t count = in.u64();
  if (!in.ok() || count > in.remaining() / 16) return false;
  spaces.dev_ino.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t dev = in.u64();
    spaces.dev_ino.emplace_back(dev, in.u64());
  }
  out = std::move(spaces);
  return in.ok();
}

bool parse_auxtrace_info(Bytes body, Cursor& in, Payload& out) {
  AuxtraceInfoRecord info;
  info.type = in.u32();
  in.skip(4);
  info.raw.assign(body.begin(), body.end());
  while (in.ok() && in.remaining() >= 8) info.priv.push_back(in.u64());
  if (info.type == kAuxtraceIntelPt) info.filter = parse_intel_pt_info(info).filter;
  out = std::move(info);
  return in.ok();
}

bool parse_auxtrace_error(Cursor& in, Payload& out) {
  AuxtraceErrorRecord error;
  error.type = in.u32();
  error.code = in.u32();
  error.cpu = in.i32();
  error.pid = in.i32();
  error.tid = in.i32();
  const uint32_t format = in.u32();
  error.ip = in.u64();
  if (format != 0) error.time = in.u64();
  error.message = Cursor::text_of(in.take(std::min<uint64_t>(in.remaining(), 64)));
  out = std::move(error);
  return in.ok();
}

bool parse_time_conv(Cursor& in, Payload& out) {
  TimeConvRecord conv;
  conv.time_shift = in.u64();
  conv.time_mult = in.u64();
  conv.time_zero = in.u64();
  conv.cap_user_time_zero = true;  // the short form has no flags and is only written where the conversion holds
  if (in.ok() && in.remaining() >= 18) {
    conv.time_cycles = in.u64();
    conv.time_mask = in.u64();
    conv.cap_user_time_zero = in.get<uint8_t>() != 0;
    conv.cap_user_time_short = in.get<uint8_t>() != 0;
  }
  out = conv;
  return in.ok();
}

}  // namespace

bool parse_body(const RecordHeader& header, Bytes body, Payload& out) {
  Cursor in(body);
  switch (header.type) {
    case kRecordMmap:
      return parse_mmap(header, in, out);
    case kRecordMmap2:
      return parse_mmap2(header, in, out);
    case kRecordComm:
      return parse_comm(header, in, out);
    case kRecordFork:
    case kRecordExit:
      return parse_task(header, in, out);
    case kRecordSwitch:
    case kRecordSwitchCpuWide:
      return parse_switch(header, in, out);
    case kRecordKsymbol:
      return parse_ksymbol(in, out);
    case kRecordBpfEvent:
      return parse_bpf(in, out);
    case kRecordTextPoke:
      return parse_text_poke(in, out);
    case kRecordLost:
    case kRecordLostSamples:
      return parse_lost(header, in, out);
    case kRecordAux:
      return parse_aux(in, out);
    case kRecordItraceStart: {
      ItraceStartRecord start;
      start.pid = in.i32();
      start.tid = in.i32();
      out = start;
      return in.ok();
    }
    case kRecordAuxOutputHwId:
      out = AuxOutputHwIdRecord{in.u64()};
      return in.ok();
    case kRecordNamespaces:
      return parse_namespaces(in, out);
    case kRecordThrottle:
    case kRecordUnthrottle:
      in.skip(24);
      out = ThrottleRecord{header.type == kRecordUnthrottle};
      return in.ok();
    case kRecordAuxtraceInfo:
      return parse_auxtrace_info(body, in, out);
    case kRecordAuxtraceError:
      return parse_auxtrace_error(in, out);
    case kRecordTimeConv:
      return parse_time_conv(in, out);
    default:
      out = OtherRecord{};
      return true;
  }
}

bool parse_auxtrace(Bytes body, AuxtraceRecord& out) {
  Cursor in(body);
  out.size_bytes = in.u64();
  out.offset_bytes = in.u64();
  out.reference = in.u64();
  out.idx = in.u32();
  out.tid = in.i32();
  out.cpu = in.i32();
  return in.ok();
}

uint64_t fixed_body_bytes(uint32_t type) {
  switch (type) {
    case kRecordMmap:
      return 32;
    case kRecordMmap2:
      return 64;
    case kRecordComm:
    case kRecordItraceStart:
    case kRecordAuxOutputHwId:
    case kRecordLostSamples:
    case kRecordSwitchCpuWide:
    case kRecordCgroup:
    case kRecordRead:
      return 8;
    case kRecordFork:
    case kRecordExit:
    case kRecordAux:
    case kRecordThrottle:
    case kRecordUnthrottle:
      return 24;
    case kRecordLost:
    case kRecordNamespaces:
    case kRecordKsymbol:
    case kRecordBpfEvent:
    case kRecordCallchainDeferred:
      return 16;
    case kRecordTextPoke:
      return 12;
    default:
      return 0;
  }
}

}  // namespace ptd::perfio
