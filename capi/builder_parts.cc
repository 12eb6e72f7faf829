// BuilderParts: see builder_parts.h.
#include "capi/builder_parts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/record_parse.h"
#include "perfio/format/sample_id.h"
#include "perfio/perf_writer.h"
#include "perfio/record_builder.h"

namespace ptd::capi {

namespace {

using namespace perfio;

constexpr size_t kMostAttrs = 4096, kMostAttrBytes = 4096, kMostBuffers = 65536, kRoundRecords = 65536;

Error usage(std::string sentence) { return {ErrorCode::invalid_argument, std::move(sentence), 0}; }

AuxtraceInfoRecord info_of(const PtSettings& pt, bool per_cpu) {
  constexpr uint64_t kSwitchCpuWide = 3;
  AuxtraceInfoRecord info;
  info.type = kAuxtraceIntelPt;
  // tools/perf "util/intel-pt.h": the order of priv[]. Masks of 0 mean those of current kernels.
  info.priv = {pt.pmu_type,
               pt.time_shift,
               pt.time_mult,
               pt.time_zero,
               pt.time_mult != 0 ? 1U : 0U,
               0,
               0,
               kSwitchCpuWide,
               pt.snapshot ? 1U : 0U,
               per_cpu ? 1U : 0U,
               0,
               0,
               pt.tsc_ctc_ratio_n,
               pt.tsc_ctc_ratio_d,
               0,
               pt.max_nonturbo_ratio,
               pt.filter.size()};
  if (!pt.filter.empty()) {
    std::vector<uint64_t> words(pt.filter.size() / sizeof(uint64_t) + 1);
    std::copy_n(std::as_bytes(std::span(pt.filter)).begin(), pt.filter.size(), std::as_writable_bytes(std::span(words)).begin());
    info.priv.insert(info.priv.end(), words.begin(), words.end());
  }
  info.priv.push_back(0);  // event trace
  return info;
}

}  // namespace

MemoryFile::MemoryFile() : fd_(::memfd_create("ptdecode", MFD_CLOEXEC)) {}
MemoryFile::~MemoryFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status BuilderParts::add_attr(Bytes attr, std::vector<uint64_t> ids, std::string_view name) {
  EventAttr event;
  if (attrs_.size() >= kMostAttrs) return usage("more than " + std::to_string(kMostAttrs) + " events");
  if (attr.size() > kMostAttrBytes || !parse_attr(attr, event))
    return usage("a perf_event_attr of " + std::to_string(attr.size()) + " bytes");
  event.raw.assign(attr.begin(), attr.end());
  event.ids = std::move(ids);
  event.name = name;
  attrs_.push_back(std::move(event));
  return {};
}

Status BuilderParts::add_records(uint32_t ring, Bytes bytes) {
  std::vector<std::byte>& cut = cut_[ring];
  const auto take = [&](size_t size) {
    size = std::min(size, bytes.size());
    cut.insert(cut.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
  };
  while (!bytes.empty()) {
    if (!cut.empty() || bytes.size() < kRecordHeaderBytes) {
      if (cut.size() < kRecordHeaderBytes) take(kRecordHeaderBytes - cut.size());
      if (cut.size() < kRecordHeaderBytes) return {};
    }
    const RecordHeader header = read_record_header(cut.empty() ? bytes : Bytes(cut));
    if (header.size_bytes < kRecordHeaderBytes) {
      cut.clear();
      const std::string size = std::to_string(header.size_bytes);
      return Error{ErrorCode::contradictory_record, "a record of ring " + std::to_string(ring) + " has a size of " + size + " bytes", 0};
    }
    if (cut.empty() && header.size_bytes <= bytes.size()) {
      if (Status status = add_record(ring, bytes.first(header.size_bytes)); !status) return status;
      bytes = bytes.subspan(header.size_bytes);
      continue;
    }
    take(header.size_bytes - cut.size());
    if (cut.size() < header.size_bytes) return {};
    const Status status = add_record(ring, cut);
    cut.clear();
    if (!status) return status;
  }
  return {};
}

Status BuilderParts::add_record(uint32_t ring, Bytes record) {
  switch (read_record_header(record).type) {
    case kRecordFinishedRound:
    case kRecordFinishedInit:
      return {};  // write() sorts and makes its own
    case kRecordAuxtrace:
    case kRecordHeaderTracingData:
    case kRecordCompressed:
    case kRecordCompressed2:
      return Error{ErrorCode::contradictory_record,
                   "a record of type " + std::to_string(read_record_header(record).type) +
                       ", which is followed by other bytes or holds other records: add those (AUX bytes with ptd_builder_add_aux)",
                   0};
    default:
      break;
  }
  // In this order, so that a lack of memory leaves no place without a record.
  const size_t offset_bytes = records_.size();
  records_.insert(records_.end(), record.begin(), record.end());
  places_.push_back({0, offset_bytes, ring});
  return {};
}

Status BuilderParts::add_aux(int32_t cpu, int32_t tid, uint64_t offset_bytes, Bytes bytes) {
  if ((cpu < 0) == (tid < 0)) return usage("AUX bytes are of one cpu (tid -1) or of one thread (cpu -1)");
  const std::pair<int32_t, int32_t> key(std::max(cpu, -1), std::max(tid, -1));
  if (aux_.size() >= kMostBuffers && !aux_of_.contains(key)) return usage("more than " + std::to_string(kMostBuffers) + " AUX buffers");
  if (!aux_of_.contains(key)) {
    aux_.push_back({key.first, key.second, {}});
    aux_of_.emplace(key, aux_.size() - 1);  // of a failure, an empty buffer is left
  }
  AuxBuffer& buffer = aux_[aux_of_.at(key)];
  const uint64_t end = buffer.pieces.empty() ? 0 : buffer.pieces.back().offset_bytes + buffer.pieces.back().bytes.size();
  if (offset_bytes == kNext) offset_bytes = end;
  if (bytes.size() > ~offset_bytes) return usage("AUX bytes end beyond the largest offset");
  if (buffer.pieces.empty() || offset_bytes != end) {
    buffer.pieces.push_back({offset_bytes, {bytes.begin(), bytes.end()}});
  } else {
    std::vector<std::byte>& piece = buffer.pieces.back().bytes;
    piece.insert(piece.end(), bytes.begin(), bytes.end());
  }
  return {};
}

Status BuilderParts::add_code(GivenCode code) {
  const uint64_t size = code.code.bytes.size();
  if (size == 0 || size - 1 > ~code.ip.value) return usage("code that is empty or ends beyond the address space");
  const bool kernel = is_kernel_half(code.ip);
  if (kernel != is_kernel_half(code.ip + (size - 1)) || kernel != (code.pid < 0))
    return usage("code of the kernel is in the upper half of the address space, that of a process in the lower half");
  code_.push_back(std::move(code));
  return {};
}

Status BuilderParts::set_feature(uint32_t bit, Bytes bytes) {
  if (bit == 0 || bit >= kFeatureBits || bit == kFeatureAuxtrace || bit == kFeatureDirFormat || bit == kFeatureCompressed)
    return usage("feature " + std::to_string(bit) + " describes the file itself or does not exist");
  features_.insert_or_assign(bit, std::vector<std::byte>(bytes.begin(), bytes.end()));
  return {};
}

Bytes BuilderParts::record_at(uint64_t offset) const {
  const Bytes rest = Bytes(records_).subspan(offset);
  return rest.first(read_record_header(rest).size_bytes);
}

// By time; a record without one follows the record before it in its ring. What a ring has after its last whole record is lost.
void BuilderParts::sort_records() {
  const RecordBuilder builder(attrs_, {}, {});
  std::map<uint32_t, uint64_t> latest;
  for (RecordPlace& place : places_) {
    RawRecord raw;
    raw.bytes = record_at(place.offset);
    raw.header = read_record_header(raw.bytes);
    const uint64_t time = builder.time_of(raw);
    uint64_t& last = latest[place.ring];
    place.time = time == 0 ? last : time;
    last = std::max(last, place.time);
  }
  constexpr size_t kMostNamed = 100;
  for (const auto& [ring, rest] : cut_) {
    if (rest.empty()) continue;
    const TimeNs from{latest[ring]};
    if (lost_.size() == kMostNamed) {
      lost_.back().from = std::min(lost_.back().from, from);
      lost_.back().what = "ring " + std::to_string(ring) + " and others end inside a record: records may be missing from then on";
      continue;
    }
    lost_.push_back({from, "ring " + std::to_string(ring) + " ends inside a record: its last " + std::to_string(rest.size()) +
                               " bytes are ignored, and records may be missing from then on"});
  }
  cut_.clear();
  std::stable_sort(places_.begin(), places_.end(), [](const RecordPlace& a, const RecordPlace& b) { return a.time < b.time; });
}

std::optional<AuxtraceInfoRecord> BuilderParts::info_at(uint64_t offset) const {
  const Bytes record = record_at(offset);
  const RecordHeader header = read_record_header(record);
  Payload payload;
  if (header.type != kRecordAuxtraceInfo || !parse_body(header, record.subspan(kRecordHeaderBytes), payload)) return std::nullopt;
  auto* info = std::get_if<AuxtraceInfoRecord>(&payload);
  return info != nullptr ? std::optional(std::move(*info)) : std::nullopt;
}

// set_pt() replaces them.
void BuilderParts::drop_pt_info() {
  std::erase_if(places_, [this](const RecordPlace& place) {
    const auto info = info_at(place.offset);
    return info && info->type == kAuxtraceIntelPt;
  });
}

bool BuilderParts::is_snapshot() const {
  return (pt_.given && pt_.snapshot) || std::any_of(places_.begin(), places_.end(), [this](const RecordPlace& place) {
           const auto info = info_at(place.offset);
           return info && (parse_intel_pt_info(*info).snapshot_mode || parse_etm_info(*info).snapshot_mode);
         });
}

// By offset; the offsets of snapshots do not order them. Pieces that continue each other become one, which an AUX record may name as a
// whole, and bytes that are there already are left out. A piece with another version of them stays.
void BuilderParts::sort_aux() {
  if (is_snapshot()) return;
  for (AuxBuffer& buffer : aux_) {
    std::stable_sort(buffer.pieces.begin(), buffer.pieces.end(),
                     [](const AuxPiece& a, const AuxPiece& b) { return a.offset_bytes < b.offset_bytes; });
    std::vector<AuxPiece> joined;
    size_t farthest = 0;  // of joined: the piece that ends last
    const auto end_of = [](const AuxPiece& piece) { return piece.offset_bytes + piece.bytes.size(); };
    for (AuxPiece& piece : buffer.pieces) {
      AuxPiece* before = joined.empty() || end_of(joined[farthest]) < piece.offset_bytes ? nullptr : &joined[farthest];
      const size_t common = before == nullptr ? 0 : std::min<size_t>(end_of(*before) - piece.offset_bytes, piece.bytes.size());
      if (before == nullptr ||
          std::memcmp(before->bytes.data() + (piece.offset_bytes - before->offset_bytes), piece.bytes.data(), common) != 0) {
        joined.push_back(std::move(piece));
        if (end_of(joined.back()) >= end_of(joined[farthest])) farthest = joined.size() - 1;
        continue;
      }
      before->bytes.insert(before->bytes.end(), piece.bytes.begin() + static_cast<std::ptrdiff_t>(common), piece.bytes.end());
      piece.bytes = {};
    }
    buffer.pieces = std::move(joined);
  }
}

Status BuilderParts::write(int fd) {
  if (attrs_.empty()) return usage("no perf_event_attr was added");
  sort_records();
  if (pt_.given) drop_pt_info();
  sort_aux();
  WriterOptions options;
  options.attrs = attrs_;
  options.fd = fd;
  auto created = PerfWriter::create("the recording from memory", options);
  if (!created) return created.error();
  PerfWriter& writer = **created;
  Features own;
  own.cpuid = pt_.cpuid;
  writer.set_features(own);
  for (const auto& [bit, bytes] : features_) writer.set_feature_bytes(bit, bytes);
  Status status;
  const bool per_cpu = std::any_of(aux_.begin(), aux_.end(), [](const AuxBuffer& buffer) { return buffer.cpu >= 0; });
  if (pt_.given) status = writer.add_auxtrace_info(info_of(pt_, per_cpu));
  for (size_t i = 0; i < places_.size() && status; ++i) {
    status = writer.add_raw(record_at(places_[i].offset));
    if (status && (i + 1) % kRoundRecords == 0) status = writer.add_finished_round();
  }
  records_ = {};
  places_ = {};
  uint64_t reference = 0;
  for (uint32_t index = 0; index < aux_.size() && status; ++index) {
    for (AuxPiece& piece : aux_[index].pieces) {
      AuxtraceRecord record;
      record.offset_bytes = piece.offset_bytes;
      record.reference = ++reference;
      record.idx = index;
      record.cpu = aux_[index].cpu;
      record.tid = aux_[index].tid;
      record.payload = piece.bytes;
      if (status) status = writer.add_auxtrace(record);
      piece.bytes = {};
    }
  }
  if (!status) return status;
  return writer.finish();
}

}  // namespace ptd::capi
