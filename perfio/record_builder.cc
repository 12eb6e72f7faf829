// Converts raw bytes to Record values.
#include "perfio/record_builder.h"

#include <algorithm>

#include "perfio/file_header.h"
#include "perfio/format/features.h"
#include "perfio/format/oversized_record.h"
#include "perfio/format/record_parse.h"

namespace ptd::perfio {
namespace {

constexpr uint64_t kEventUpdateName = 2;  // PERF_EVENT_UPDATE__NAME

Bytes body_of(const RawRecord& raw) { return raw.bytes.subspan(kRecordHeaderBytes); }

}  // namespace

RecordBuilder::RecordBuilder(std::vector<EventAttr> attrs, Features features, Bytes tracing_data)
    : attrs_(std::move(attrs)), features_(std::move(features)) {
  finder_.set(attrs_);
  for (const EventAttr& attr : attrs_) note_trailer(attr);
  find_sched_switch(tracing_data, sched_switch_);
}

bool RecordBuilder::apply_header_record(const RawRecord& raw) {
  switch (raw.header.type) {
    case kRecordHeaderAttr:
      return apply_attr(body_of(raw));
    case kRecordEventUpdate:
      return apply_event_update(body_of(raw));
    case kRecordHeaderFeature:
      return apply_feature(body_of(raw));
    case kRecordHeaderBuildId: {
      BuildIdEntry entry;
      if (!parse_build_id_event(raw.bytes, entry)) return false;
      features_.build_ids.push_back(std::move(entry));
      return true;
    }
    case kRecordHeaderTracingData:
      features_.raw.push_back({kFeatureTracingData, raw.payload});
      find_sched_switch(raw.payload, sched_switch_);
      return true;
    default:
      return true;
  }
}

bool RecordBuilder::apply_attr(Bytes body) {
  if (body.size() < 64 || attrs_.size() >= kMaxAttrs) return false;
  Cursor size_field(body.subspan(4));
  const uint64_t stated = size_field.u32();
  const uint64_t attr_bytes = stated == 0 ? 64 : stated;
  EventAttr attr;
  if (attr_bytes > body.size() || !parse_attr(body.first(static_cast<size_t>(attr_bytes)), attr)) return false;
  Cursor ids(body.subspan(static_cast<size_t>(attr_bytes)));
  while (ids.remaining() >= 8) attr.ids.push_back(ids.u64());
  const int64_t like = attr.ids.empty() ? -1 : finder_.index_of(attr.ids.front());
  if (like >= 0 && attrs_[static_cast<size_t>(like)].ids == attr.ids) return true;
  attrs_.push_back(std::move(attr));
  finder_.add(attrs_.back());
  note_trailer(attrs_.back());
  return true;
}

void RecordBuilder::note_trailer(const EventAttr& attr) {
  const uint64_t size = trailer_bytes(attr);
  if (std::ranges::find(trailer_sizes_, size) == trailer_sizes_.end()) trailer_sizes_.push_back(size);
}

bool RecordBuilder::apply_event_update(Bytes body) {
  Cursor in(body);
  const uint64_t kind = in.u64();
  const uint64_t id = in.u64();
  if (kind != kEventUpdateName) return in.ok();
  const std::string name = in.text();
  if (const int64_t named = finder_.index_of(id); named >= 0) attrs_[static_cast<size_t>(named)].name = name;
  return in.ok();
}

bool RecordBuilder::apply_feature(Bytes body) {
  Cursor in(body);
  const uint64_t bit = in.u64();
  if (!in.ok() || bit >= kFeatureBits) return false;
  if (bit == kFeatureEventDesc && event_desc_seen_) return false;  // its ids are looked up afresh: once, not once a record
  const bool good = parse_feature(static_cast<uint32_t>(bit), in.rest(), features_, attrs_);
  if (bit == kFeatureEventDesc) {
    event_desc_seen_ = true;
    finder_.set(attrs_);
  }
  return good;
}

uint64_t RecordBuilder::trailer_bytes_of(const RawRecord& raw, uint32_t attr_index) const {
  if (raw.header.type >= kRecordUserStart || attr_index >= attrs_.size()) return 0;
  const uint64_t trailer = trailer_bytes(attrs_[attr_index]);
  const uint64_t fixed = kRecordHeaderBytes + fixed_body_bytes(raw.header.type);
  return fixed + trailer <= raw.bytes.size() ? trailer : 0;
}

// Whether a record that is complete ends in a trailer of `trailer` bytes: in the id of an event whose trailers have that size.
bool RecordBuilder::ends_in_trailer(const RecordHeader& header, Bytes record, uint64_t trailer) const {
  const EventAttr& attr = attrs_[finder_.find(header, record)];
  if (!has_trailer_id(attr) || trailer_bytes(attr) != trailer) return false;
  const SampleId id = trailer_of(attr, record);
  if (finder_.index_of(id.id) < 0) return false;
  if ((attr.sample_type & kSampleCpu) == 0) return true;
  const uint64_t cpu_at = record.size() - ((attr.sample_type & kSampleIdentifier) != 0 ? 16 : 8);
  return Cursor(record.subspan(static_cast<size_t>(cpu_at + 4))).u32() == 0;  // reserved
}

// A newer kernel may add to a record's content. Then an event's id is at the end of the record, and not where the content known here ends.
RecordBuilder::OwnSize RecordBuilder::own_size(const RawRecord& raw) const {
  const uint64_t size = raw.bytes.size();
  if (raw.header.type == kRecordSample) {
    SampleFields fields;
    if (attrs_.empty() || !parse_sample(attrs_[finder_.find(raw.header, raw.bytes)], body_of(raw), fields) || fields.content_bytes == 0)
      return {size};
    return {kRecordHeaderBytes + fields.content_bytes};
  }
  const uint64_t content = content_bytes(raw.bytes);
  if (content == 0 || content >= size) return {size};
  if (raw.header.type >= kRecordUserStart || attrs_.empty()) return {content};
  const auto end = [content](uint64_t trailer) { return content + trailer; };
  if (std::ranges::find(trailer_sizes_, size, end) != trailer_sizes_.end()) return {size};
  const auto has_trailer = [&](Bytes record, uint64_t trailer) { return ends_in_trailer(raw.header, record, trailer); };
  for (const uint64_t trailer : trailer_sizes_) {
    if (end(trailer) >= size || !has_trailer(raw.bytes.first(static_cast<size_t>(end(trailer))), trailer)) continue;
    return {end(trailer), std::ranges::none_of(trailer_sizes_, [&](uint64_t each) { return has_trailer(raw.bytes, each); })};
  }
  return {std::min(size, end(trailer_sizes_.front()))};
}

uint64_t RecordBuilder::time_of(const RawRecord& raw) const {
  if (raw.header.type >= kRecordUserStart || attrs_.empty()) return 0;
  const uint32_t index = finder_.find(raw.header, raw.bytes);
  if (raw.header.type == kRecordSample) {
    SampleFields fields;
    (void)parse_sample(attrs_[index], body_of(raw), fields);  // a short sample is refused when it is built
    return fields.id.time;
  }
  const uint64_t trailer = trailer_bytes_of(raw, index);
  if (trailer == 0) return 0;
  SampleId id;
  parse_trailer(attrs_[index], raw.bytes.last(static_cast<size_t>(trailer)), id);
  return id.time;
}

bool RecordBuilder::is_sched_switch(const EventAttr& attr) const {
  if (attr.type != kEventTypeTracepoint) return false;
  return attr.name.starts_with("sched:sched_switch") || (sched_switch_.id != 0 && attr.config == sched_switch_.id);
}

bool RecordBuilder::build_sample(const RawRecord& raw, Record& out) const {
  SampleFields fields;
  if (attrs_.empty()) {
    out.payload = OtherSample{};
    return true;
  }
  const EventAttr& attr = attrs_[out.attr_index];
  if (!parse_sample(attr, body_of(raw), fields)) return false;
  out.sample_id = fields.id;
  const uint64_t need = std::max(sched_switch_.prev_pid_offset_bytes, sched_switch_.next_pid_offset_bytes) + 4ULL;
  if (is_sched_switch(attr) && fields.raw.size() >= need) {
    SchedSwitchSample change;
    change.prev_tid = Cursor(fields.raw.subspan(sched_switch_.prev_pid_offset_bytes)).i32();
    change.next_tid = Cursor(fields.raw.subspan(sched_switch_.next_pid_offset_bytes)).i32();
    out.payload = change;
  } else {
    out.payload = OtherSample{fields.ip, fields.raw, fields.aux, raw.transient};
  }
  return true;
}

// Whether a context switch, whose thread only its ids tell, has the size of one of another event. (A newer kernel may add to the content.)
bool RecordBuilder::contradicts_event(const RawRecord& raw, const Record& record, uint64_t trailer) const {
  const uint32_t type = raw.header.type;
  if ((type != kRecordSwitch && type != kRecordSwitchCpuWide) || attrs_.empty() || !has_trailer_id(attrs_[record.attr_index])) return false;
  const uint64_t ids = raw.bytes.size() - content_bytes(raw.bytes);
  return trailer != 0 && ids != trailer && std::ranges::find(trailer_sizes_, ids) != trailer_sizes_.end() &&
         finder_.index_of(record.sample_id.id) >= 0;
}

bool RecordBuilder::build(const RawRecord& raw, Record& out) const {
  out = Record{};
  out.type = raw.header.type;
  out.misc = raw.header.misc;
  out.size_bytes = raw.header.size_bytes;
  out.file_offset_bytes = raw.file_offset_bytes;
  out.file = raw.file;
  out.raw = raw.bytes;
  out.attr_index = finder_.find(raw.header, raw.bytes);
  if (raw.header.type == kRecordSample) return build_sample(raw, out);
  if (raw.header.type == kRecordAuxtrace) {
    AuxtraceRecord auxtrace;
    if (!parse_auxtrace(body_of(raw), auxtrace)) return false;
    auxtrace.payload = raw.payload;
    out.payload = auxtrace;
    return true;
  }
  const uint64_t trailer = trailer_bytes_of(raw, out.attr_index);
  if (trailer != 0) parse_trailer(attrs_[out.attr_index], raw.bytes.last(static_cast<size_t>(trailer)), out.sample_id);
  if (contradicts_event(raw, out, trailer)) return false;
  const Bytes body = body_of(raw);
  return parse_body(raw.header, body.first(body.size() - static_cast<size_t>(trailer)), out.payload);
}

}  // namespace ptd::perfio
