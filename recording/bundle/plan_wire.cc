// Units, sync points and byte ranges as bytes.
#include "recording/bundle/plan_wire.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "image/base/fnv.h"
#include "image/base/mapped_file.h"
#include "image/base/shrunk_files.h"
#include "recording/bundle/bundle_image.h"
#include "recording/bundle/plan.h"

namespace ptd {
namespace {

constexpr uint64_t kCheckedBytes = 4096;     // of the beginning of a unit
constexpr size_t kLeadSegments = 8;          // that are decoded before and after a unit's own: dates depend on so many
constexpr uint64_t kLeadBytes = 8ULL << 20;  // of which no more are decoded than these bytes, but one
constexpr uint64_t kMaxUnitOffset = ~uint64_t{0} / 4;
enum EntryBit : uint64_t {
  kHasTsc = 1,
  kHasTma = 2,
  kInRoot = 4,
  kInGuest = 8,
  kInUser = 16,
  kOutOfOrder = 32,
  kOffRecord = 64,
  kContradicted = 128,
  kLacksTsc = 256
};

uint64_t checksum_of(const AuxStream& stream, const PlanUnit& unit) {
  std::vector<std::byte> scratch;
  return fnv1a(stream.read(unit.from_offset, std::min(unit.end_offset, unit.from_offset + kCheckedBytes), scratch));
}

/// Divides one stream.
class UnitMaker {
 public:
  UnitMaker(const RecordingData& data, uint32_t stream, const std::vector<PsbEntry>& entries)
      : data_(data), stream_(stream), entries_(entries) {}

  void make(uint64_t unit_bytes, std::vector<PlanUnit>& units) const {
    for (size_t first = 0, end = 0; first < entries_.size(); first = end) {
      for (end = first + 1;
           end < entries_.size() && (is_whole() || entries_[end].offset_bytes - entries_[first].offset_bytes < unit_bytes);)
        ++end;
      units.push_back(unit(first, end));
    }
  }

 private:
  // ETMv3 and PTM restate their state nowhere: what follows depends on all that comes before.
  [[nodiscard]] bool is_whole() const {
    if (stream_ >= data_.arm.size()) return false;
    const arm::Protocol protocol = data_.arm[stream_].config.protocol;
    return protocol != arm::Protocol::etmv4 && protocol != arm::Protocol::ete;
  }
  [[nodiscard]] uint64_t start(size_t i) const { return i < entries_.size() ? entries_[i].offset_bytes : Recording::kStreamEnd; }

  [[nodiscard]] PlanUnit unit(size_t first, size_t end) const {
    size_t from = first, to = end;
    while (from > 0 && first - from < kLeadSegments && (from == first || start(first) - start(from - 1) <= kLeadBytes)) --from;
    while (to < entries_.size() && to - end < kLeadSegments && (to == end || start(to) - start(end) <= kLeadBytes)) ++to;
    PlanUnit unit;
    unit.stream = stream_;
    unit.first_offset = start(first);
    unit.last_offset = start(end);
    unit.from_offset = start(from);
    unit.to_offset = start(to);
    const AuxStream& stream = data_.streams[stream_];
    unit.end_offset = to < entries_.size() ? std::min(start(to) + entries_[to].tail_bytes, stream.end_offset()) : stream.end_offset();
    unit.checksum = checksum_of(stream, unit);
    const SegmentIndex& index = data_.indexes[stream_];
    unit.time = {index.time_of(entries_[first], data_.timing).first, index.time_of(entries_[end - 1], data_.timing).last};
    return unit;
  }

  const RecordingData& data_;
  uint32_t stream_;
  const std::vector<PsbEntry>& entries_;
};

void write_entries(const std::vector<PsbEntry>& entries, ByteWriter& out) {
  out.number(entries.size());
  uint64_t offset = 0, tsc = 0;
  for (const PsbEntry& entry : entries) {
    uint64_t bits = 0;
    for (const auto& [set, bit] :
         {std::pair(bool(entry.has_tsc), kHasTsc), std::pair(bool(entry.has_tma), kHasTma), std::pair(bool(entry.in_root), kInRoot),
          std::pair(bool(entry.in_guest), kInGuest), std::pair(bool(entry.in_user), kInUser),
          std::pair(bool(entry.is_out_of_order), kOutOfOrder), std::pair(bool(entry.is_off_record), kOffRecord),
          std::pair(bool(entry.is_contradicted), kContradicted), std::pair(bool(entry.lacks_tsc), kLacksTsc)}) {
      if (set) bits |= bit;
    }
    out.number(entry.offset_bytes - offset);
    out.number(bits);
    out.signed_number(static_cast<int64_t>(entry.tsc - tsc));
    for (const uint64_t value : {uint64_t{entry.tail_bytes}, uint64_t{entry.ctc}, uint64_t{entry.fast}, uint64_t{entry.shift}})
      out.number(value);
    offset = entry.offset_bytes;
    tsc = entry.tsc;
  }
}

// Returns false if the entries are not in order.
bool read_entries(ByteReader& in, std::vector<PsbEntry>& entries) {
  uint64_t offset = 0, tsc = 0;
  for (uint64_t left = in.count(sizeof(PsbEntry)); left > 0 && in.ok(); --left) {
    PsbEntry& entry = entries.emplace_back();
    const uint64_t step = in.number_to(kMaxUnitOffset);
    if ((step == 0 && entries.size() > 1) || (offset += step) > kMaxUnitOffset) return false;
    const uint64_t bits = in.number_to(2 * kLacksTsc - 1);
    tsc += static_cast<uint64_t>(in.signed_number());
    entry.offset_bytes = offset;
    entry.tsc = tsc;
    entry.tail_bytes = in.number_to(PsbEntry::kMostTailBytes) & PsbEntry::kMostTailBytes;
    entry.ctc = static_cast<uint16_t>(in.number_to(UINT16_MAX));
    entry.fast = static_cast<uint16_t>(in.number_to(UINT16_MAX));
    entry.shift = static_cast<uint8_t>(in.number_to(UINT8_MAX));
    const auto has = [bits](uint64_t bit) { return (bits & bit) != 0; };
    entry.has_tsc = has(kHasTsc);
    entry.has_tma = has(kHasTma);
    entry.in_root = has(kInRoot);
    entry.in_guest = has(kInGuest);
    entry.in_user = has(kInUser);
    entry.is_out_of_order = has(kOutOfOrder);
    entry.is_off_record = has(kOffRecord);
    entry.is_contradicted = has(kContradicted);
    entry.lacks_tsc = has(kLacksTsc);
  }
  return in.ok();
}

}  // namespace

namespace {

/// Finds the files that hold the trace. Bytes that several pieces share are found once: readers allow no more bytes than a file has.
class PieceFinder {
 public:
  explicit PieceFinder(PlanData& plan) : plan_(plan) {}

  std::pair<uint32_t, uint64_t> find(Bytes bytes) {
    const auto place = mapped_place(bytes);
    if (!place) return {0, 0};
    File& file = files_[{place->path, place->file_bytes}];
    if (file.left_bytes == nullptr) file.left_bytes = &left_in(*place);
    if (bytes.size() > *file.left_bytes) return {0, 0};
    *file.left_bytes -= bytes.size();
    if (file.number == 0) {
      plan_.files.push_back({place->path, place->file_bytes});
      file.number = static_cast<uint32_t>(plan_.files.size());
    }
    return {file.number, place->file_offset_bytes};
  }

 private:
  struct File {
    uint32_t number = 0;             // 0: not in the plan
    uint64_t* left_bytes = nullptr;  // that no piece has
  };
  uint64_t& left_in(const MappedPlace& place) {
    const auto identity = file_identity(place.path);
    if (identity) return left_by_identity_.try_emplace(*identity, place.file_bytes).first->second;
    return left_by_path_.try_emplace(place.path, place.file_bytes).first->second;
  }

  PlanData& plan_;
  std::map<std::pair<std::string, uint64_t>, File> files_;  // by path and size
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> left_by_identity_;
  std::map<std::string, uint64_t> left_by_path_;
};

}  // namespace

void make_plan(const OpenRequest& options, uint64_t unit_bytes, const RecordingData& data, PlanData& plan) {
  PieceFinder finder(plan);
  for (uint32_t s = 0; s < data.streams.size(); ++s) {
    auto& pieces = plan.pieces.emplace_back();
    for (const AuxChunk& chunk : data.streams[s].chunks()) pieces.push_back(finder.find(chunk.bytes));
    const auto passed = [&](uint64_t first, uint64_t last) {
      data.pages.release(data.streams[s], first, last);
      if (options.check) options.check();
    };
    const std::vector<PsbEntry> entries = data.indexes[s].all_entries(passed);
    UnitMaker(data, s, entries).make(std::max<uint64_t>(unit_bytes, 1), plan.units);
  }
}

void write_plan_part(const RecordingData& data, const PlanData& plan, ByteWriter& out) {
  out.number(plan.files.size());
  for (const TraceFile& file : plan.files) {
    out.text(file.path);
    out.number(file.size_bytes);
  }
  out.number(data.streams.size());
  for (const auto& pieces : plan.pieces) {
    out.number(pieces.size());
    for (const auto& [file, offset] : pieces) {
      out.number(file);
      if (file != 0) out.number(offset);
    }
  }
  out.number(plan.units.size());
  for (const PlanUnit& unit : plan.units) {
    for (const uint64_t value :
         {uint64_t{unit.stream}, unit.from_offset, unit.first_offset, unit.last_offset, unit.to_offset, unit.end_offset, unit.checksum})
      out.number(value);
    out.interval(unit.time);
  }
  out.number(plan.findings.size());
  for (const Finding& finding : plan.findings) write_finding(finding, out);
  out.flag(plan.wall_offset_ns.has_value());
  out.signed_number(plan.wall_offset_ns.value_or(0));
  if (plan.frozen) out.flag(true);  // older readers accept a plan without it
}

bool read_plan_part(ByteReader in, PlanData& plan) {
  for (uint64_t left = in.count(sizeof(TraceFile)); left > 0 && in.ok(); --left) {
    TraceFile& file = plan.files.emplace_back();
    file.path = in.text();
    file.size_bytes = in.number_to(kMaxUnitOffset);
  }
  for (uint64_t left = in.count(sizeof(plan.pieces[0])); left > 0 && in.ok(); --left) {
    auto& pieces = plan.pieces.emplace_back();
    for (uint64_t each = in.count(sizeof(plan.pieces[0][0])); each > 0 && in.ok(); --each) {
      const uint64_t file = in.number_to(plan.files.size());
      pieces.emplace_back(file, file != 0 ? in.number_to(kMaxUnitOffset) : 0);
    }
  }
  for (uint64_t left = in.count(sizeof(PlanUnit)); left > 0 && in.ok(); --left) {
    if (plan.pieces.empty()) return false;  // no streams
    PlanUnit& unit = plan.units.emplace_back();
    unit.stream = static_cast<uint32_t>(in.number_to(plan.pieces.size() - 1));
    for (uint64_t* value : {&unit.from_offset, &unit.first_offset, &unit.last_offset, &unit.to_offset, &unit.end_offset, &unit.checksum})
      *value = in.number();
    unit.time = in.interval();
    if (unit.from_offset > unit.first_offset || unit.first_offset >= unit.last_offset || unit.last_offset > unit.to_offset) return false;
  }
  for (uint64_t left = in.count(sizeof(Finding)); left > 0 && in.ok(); --left) plan.findings.push_back(read_finding(in));
  const bool has_wall = in.flag();
  const int64_t offset = in.signed_number();
  if (has_wall) plan.wall_offset_ns = offset;
  if (in.done()) return true;
  plan.frozen = in.flag();
  return in.done();
}

void write_index_part(const RecordingData& data, ByteWriter& out) {
  out.number(data.timing.slack_ns);
  out.number(data.decoder.slack_ns);
  out.flag(data.timing.use_time);
  for (size_t s = 0; s < data.streams.size(); ++s) {
    const StreamClock& clock = data.indexes[s].clock();
    out.number(clock.shifts.size());
    for (const StreamClock::Shift& shift : clock.shifts) {
      out.number(shift.phase);
      out.number(shift.late_by);
    }
    out.interval(data.infos[s].time);
    write_entries(data.indexes[s].all_entries(nullptr), out);
  }
}

bool read_index_part(ByteReader in, const OpenRequest& options, RecordingData& data) {
  const uint64_t slack = in.number(), decoder_slack = in.number();
  const bool use_time = in.flag() && options.use_time;
  data.timing = {data.decoder.config.time, use_time ? slack : options.slack_ns, use_time, options.use_written};
  data.decoder.exact_only = data.arm_follow.exact_only = options.exact_only;
  data.decoder.slack_ns = use_time ? decoder_slack : kTimeMax.value;
  for (size_t s = 0; s < data.streams.size(); ++s) {
    StreamClock clock;
    for (uint64_t left = in.count(sizeof(StreamClock::Shift)); left > 0 && in.ok(); --left) {
      const uint64_t phase = in.number();
      clock.shifts.push_back({phase, in.number()});
    }
    StreamInfo info;
    if (s < data.arm.size()) {
      info.source = data.arm[s].name;
      info.core = data.arm[s].core;
      info.protocol = data.arm[s].config.protocol;
      info.trace_id = data.arm[s].config.trace_id;
    }
    info.cpu = data.streams[s].cpu;
    info.tid = data.streams[s].tid;
    info.idx = data.streams[s].idx;
    info.size_bytes = data.streams[s].size_bytes();
    info.time = in.interval();
    std::vector<PsbEntry> entries;
    if (!read_entries(in, entries) ||
        (!entries.empty() && entries.back().offset_bytes >= std::max<uint64_t>(data.streams[s].end_offset(), 1)))
      return false;
    data.infos.push_back(info);
    data.indexes.emplace_back(data.streams[s], entries, std::move(clock), s < data.arm.size());
  }
  return in.done();
}

bool is_plan(const Recording& recording) { return data_of(recording).plan != nullptr; }

const std::vector<PlanUnit>& units_of(const Recording& recording) {
  static const std::vector<PlanUnit> kNone;
  return data_of(recording).plan ? data_of(recording).plan->units : kNone;
}

uint64_t plan_id(const Recording& recording) { return data_of(recording).plan ? data_of(recording).plan->id : 0; }

const std::vector<TraceFile>& trace_files_of(const Recording& recording) {
  static const std::vector<TraceFile> kNone;
  return data_of(recording).plan ? data_of(recording).plan->files : kNone;
}

std::vector<FileRange> ranges_of(const Recording& recording, const PlanUnit& unit) {
  const RecordingData& data = data_of(recording);
  std::vector<FileRange> ranges;
  const std::vector<AuxChunk>& chunks = data.streams[unit.stream].chunks();
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto& [file, offset] = data.plan->pieces[unit.stream][i];
    const uint64_t first = std::max(chunks[i].offset_bytes, unit.from_offset), end = std::min(chunks[i].end(), unit.end_offset);
    if (file == 0 || first >= end) continue;
    const FileRange range{static_cast<uint32_t>(file - 1), offset + (first - chunks[i].offset_bytes), end - first};
    if (!ranges.empty() && ranges.back().file == range.file &&
        ranges.back().offset_bytes + ranges.back().size_bytes == range.offset_bytes) {
      ranges.back().size_bytes += range.size_bytes;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

namespace {

Status check_bytes(const RecordingData& data, const PlanUnit& unit) {
  if (checksum_of(data.streams[unit.stream], unit) == unit.checksum) return {};
  return Error{
      ErrorCode::wrong_recording,
      "the trace at offset " + std::to_string(unit.from_offset) + " of stream " + std::to_string(unit.stream) +
          " is not the one that was planned: the trace file was replaced, or its bytes are not there; plan it again, or copy the unit's "
          "ranges",
      0};
}

}  // namespace

Status check_unit(const Recording& recording, const PlanUnit& unit) { return check_bytes(data_of(recording), unit); }

Status check_units(const RecordingData& data) {
  for (const PlanUnit& unit : data.plan->units) {
    if (Status status = check_bytes(data, unit); !status.ok()) return status;
  }
  return {};
}

Status check_units(const Recording& recording) { return is_plan(recording) ? check_units(data_of(recording)) : Status(); }

}  // namespace ptd
