// sample_id trailers and SAMPLE fields (linux/perf_event.h: struct sample_id, PERF_RECORD_SAMPLE).
#include "perfio/format/sample_id.h"

#include <bit>

namespace ptd::perfio {
namespace {

/// u64 words before the id in a SAMPLE, or -1.
int sample_id_position(uint64_t type) {
  if ((type & kSampleIdentifier) != 0) return 0;
  if ((type & kSampleId) == 0) return -1;
  return std::popcount(type & (kSampleIp | kSampleTid | kSampleTime | kSampleAddr));
}

/// u64 words from the end of the record to the id in a trailer, or -1.
int trailer_id_position(uint64_t type) {
  if ((type & kSampleIdentifier) != 0) return 1;
  if ((type & kSampleId) == 0) return -1;
  return 1 + std::popcount(type & (kSampleCpu | kSampleStreamId));
}

constexpr uint64_t kKnownSampleTypes = 2 * kSampleWeightStruct - 1;

void set_time(uint64_t time, SampleId& out) {
  out.has_time = time != 0 && time != ~0ULL;
  out.time = out.has_time ? time : 0;
}

void skip_read(const EventAttr& attr, Cursor& in) {
  const uint64_t format = attr.read_format;
  const int times = std::popcount(format & (kFormatTimeEnabled | kFormatTimeRunning));
  if ((format & kFormatGroup) != 0) {
    const uint64_t count = in.u64();
    in.skip(static_cast<uint64_t>(times) * 8);
    const auto entry_bytes = 8ULL * static_cast<uint64_t>(1 + std::popcount(format & (kFormatId | kFormatLost)));
    if (count > in.remaining() / entry_bytes) {
      in.skip(in.remaining() + 1);  // not ok from here on
    } else {
      in.skip(count * entry_bytes);
    }
  } else {
    in.skip(8ULL * static_cast<uint64_t>(1 + times + std::popcount(format & (kFormatId | kFormatLost))));
  }
}

void skip_branch_stack(const EventAttr& attr, Cursor& in) {
  constexpr uint64_t kEntryBytes = 24;
  const uint64_t count = in.u64();
  if ((attr.branch_sample_type & kBranchHardwareIndex) != 0) in.skip(8);
  const uint64_t each = kEntryBytes + ((attr.branch_sample_type & kBranchCounters) != 0 ? 8 : 0);
  in.skip(count > in.remaining() / each ? in.remaining() + 1 : count * each);
}

void skip_registers(uint64_t mask, Cursor& in) {
  const bool any = in.u64() != 0;  // their ABI, 0: none
  if (any) in.skip(8ULL * static_cast<uint64_t>(std::popcount(mask)));
}

/// The fields after RAW, in the order of perf_event.h.
void parse_tail(const EventAttr& attr, Cursor& in, SampleFields& out) {
  const uint64_t type = attr.sample_type;
  if ((type & kSampleBranchStack) != 0) skip_branch_stack(attr, in);
  if ((type & kSampleRegsUser) != 0) skip_registers(attr.sample_regs_user, in);
  if ((type & kSampleStackUser) != 0) {
    const uint64_t size_bytes = in.u64();
    in.skip(size_bytes);
    if (size_bytes != 0) in.skip(8);  // how much of it was filled
  }
  constexpr uint64_t kWords = kSampleDataSource | kSampleTransaction;
  in.skip(8ULL * static_cast<uint64_t>(std::popcount(type & kWords) + ((type & (kSampleWeight | kSampleWeightStruct)) != 0 ? 1 : 0)));
  if ((type & kSampleRegsIntr) != 0) skip_registers(attr.sample_regs_intr, in);
  in.skip(8ULL *
          static_cast<uint64_t>(std::popcount(type & (kSamplePhysAddr | kSampleCgroup | kSampleDataPageSize | kSampleCodePageSize))));
  if ((type & kSampleAux) != 0) out.aux = in.take(in.u64());
}

}  // namespace

void AttrFinder::set(const std::vector<EventAttr>& attrs) {
  by_id_.clear();
  count_ = 0;
  for (const EventAttr& attr : attrs) add(attr);
}

void AttrFinder::add(const EventAttr& attr) {
  const int sample = sample_id_position(attr.sample_type);
  const int trailer = attr.sample_id_all ? trailer_id_position(attr.sample_type) : kNoPosition;
  if (count_ == 0) {
    sample_position_ = sample;
    trailer_position_ = trailer;
  }
  if (sample != sample_position_) sample_position_ = kNoPosition;
  if (trailer != trailer_position_) trailer_position_ = kNoPosition;
  for (const uint64_t id : attr.ids) by_id_.emplace(id, count_);
  ++count_;
}

int64_t AttrFinder::index_of(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? -1 : int64_t{found->second};
}

uint32_t AttrFinder::find(const RecordHeader& header, Bytes record) const {
  const bool sample = header.type == kRecordSample;
  const int position = sample ? sample_position_ : trailer_position_;
  if (count_ < 2 || position < 0 || header.type >= kRecordUserStart) return 0;
  const uint64_t distance = 8ULL * static_cast<uint64_t>(position);
  const uint64_t offset = sample ? kRecordHeaderBytes + distance : record.size() - distance;
  if ((sample && offset + 8 > record.size()) || (!sample && distance + kRecordHeaderBytes > record.size())) return 0;
  Cursor in(record.subspan(static_cast<size_t>(offset)));
  const auto found = by_id_.find(in.u64());
  return found == by_id_.end() ? 0 : found->second;
}

uint64_t trailer_bytes(const EventAttr& attr) {
  if (!attr.sample_id_all) return 0;
  constexpr uint64_t kFields = kSampleTid | kSampleTime | kSampleId | kSampleStreamId | kSampleCpu | kSampleIdentifier;
  return 8ULL * static_cast<uint64_t>(std::popcount(attr.sample_type & kFields));
}

bool has_trailer_id(const EventAttr& attr) { return attr.sample_id_all && trailer_id_position(attr.sample_type) >= 0; }

void parse_trailer(const EventAttr& attr, Bytes trailer, SampleId& out) {
  Cursor in(trailer);
  const uint64_t type = attr.sample_type;
  if ((type & kSampleTid) != 0) {
    out.pid = in.i32();
    out.tid = in.i32();
  }
  if ((type & kSampleTime) != 0) set_time(in.u64(), out);
  if ((type & kSampleId) != 0) out.id = in.u64();
  if ((type & kSampleStreamId) != 0) out.stream_id = in.u64();
  if ((type & kSampleCpu) != 0) {
    out.cpu = in.i32();
    in.skip(4);
  }
  if ((type & kSampleIdentifier) != 0) out.id = in.u64();
}

SampleId trailer_of(const EventAttr& attr, Bytes record) {
  SampleId trailer;
  const uint64_t size = trailer_bytes(attr);
  if (record.size() >= kRecordHeaderBytes + size) parse_trailer(attr, record.last(static_cast<size_t>(size)), trailer);
  return trailer;
}

bool parse_sample(const EventAttr& attr, Bytes body, SampleFields& out) {
  Cursor in(body);
  const uint64_t type = attr.sample_type;
  if ((attr.flags & kAttrFreq) == 0) out.period = attr.sample_period;
  if ((type & kSampleIdentifier) != 0) out.id.id = in.u64();
  if ((type & kSampleIp) != 0) out.ip = in.u64();
  if ((type & kSampleTid) != 0) {
    out.id.pid = in.i32();
    out.id.tid = in.i32();
  }
  if ((type & kSampleTime) != 0) set_time(in.u64(), out.id);
  if ((type & kSampleAddr) != 0) out.addr = in.u64();
  if ((type & kSampleId) != 0) out.id.id = in.u64();
  if ((type & kSampleStreamId) != 0) out.id.stream_id = in.u64();
  if ((type & kSampleCpu) != 0) {
    out.id.cpu = in.i32();
    in.skip(4);
  }
  if ((type & kSamplePeriod) != 0) out.period = in.u64();
  if ((type & kSampleRead) != 0) skip_read(attr, in);
  if ((type & kSampleCallchain) != 0) {
    const uint64_t count = in.u64();
    in.skip(count > in.remaining() / 8 ? in.remaining() + 1 : count * 8);
  }
  if ((type & kSampleRaw) != 0) out.raw = in.take(in.u32());
  Cursor tail = in;
  tail.skip((8 - tail.position() % 8) % 8);
  SampleFields after;
  parse_tail(attr, tail, after);
  if (tail.ok() && type <= kKnownSampleTypes) out.content_bytes = tail.position();
  if ((type & kSampleAux) == 0) return in.ok();
  out.aux = after.aux;
  return tail.ok();
}

bool parse_attr(Bytes raw, EventAttr& out) {
  if (raw.size() < 64) return false;
  Cursor in(raw);
  out.type = in.u32();
  in.skip(4);  // size
  out.config = in.u64();
  out.sample_period = in.u64();
  out.sample_type = in.u64();
  out.read_format = in.u64();
  out.flags = in.u64();
  in.skip(8);  // wakeup_events, bp_type
  out.config1 = in.u64();
  if (in.remaining() >= 8) out.config2 = in.u64();
  if (in.remaining() >= 24) {
    out.branch_sample_type = in.u64();
    out.sample_regs_user = in.u64();
    in.skip(4);  // sample_stack_user
    out.clockid = in.i32();
  }
  if (in.remaining() >= 8) out.sample_regs_intr = in.u64();
  if (in.remaining() >= 16) {
    in.skip(8);  // aux_watermark, sample_max_stack
    out.aux_sample_bytes = in.u32();
    out.aux_action = in.u32();
  }
  out.sample_id_all = (out.flags & kAttrSampleIdAll) != 0;
  out.exclude_kernel = (out.flags & kAttrExcludeKernel) != 0;
  out.exclude_user = (out.flags & kAttrExcludeUser) != 0;
  out.exclude_hv = (out.flags & kAttrExcludeHv) != 0;
  out.use_clockid = (out.flags & kAttrUseClockid) != 0;
  out.raw.assign(raw.begin(), raw.end());
  return true;
}

}  // namespace ptd::perfio
