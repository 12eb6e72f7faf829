// Encodes samples of other events, origin and names of events as bytes and back.
#include "recording/bundle/bundle_events.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <string>

#include "image/base/mapped_file.h"

namespace ptd {
namespace {

/// A decimal number of 64 bits as the writer formats them: a valid one is copied into JSON unchanged.
bool is_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits.size() > 1)) return false;
  int64_t below = 0;
  uint64_t above = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = negative ? std::from_chars(text.data(), end, below) : std::from_chars(text.data(), end, above);
  return error == std::errc() && at == end;
}

}  // namespace

void write_other_events(const OtherEvents& events, ByteWriter& out) {
  out.number(events.names.size());
  for (const std::string& name : events.names) out.text(name);
  out.number(events.left_out);
  out.number(events.events.size());
  for (const OtherEvent& event : events.events) {
    out.time(event.time);
    out.signed_number(event.pid);
    out.signed_number(event.tid);
    out.signed_number(event.cpu);
    out.number(event.name);
    out.number(event.ip.value);
    out.number(event.period);
    out.number(event.fields.size());
    for (const TracepointField& field : event.fields) {
      out.text(*field.name);
      out.text(field.value);
      out.flag(field.number);
    }
    out.blob(event.raw);
  }
}

bool read_bundled_events(ByteReader in, const std::vector<Interval>& times, size_t most, OtherEvents& events) {
  for (uint64_t left = in.count(sizeof(std::string)); left > 0 && in.ok(); --left) events.names.push_back(in.text());
  events.left_out = in.number();
  uint64_t bytes_left = kMostEventBytes;
  std::map<std::string, std::shared_ptr<const std::string>> field_names;
  const auto shared = [&](std::string name) {
    std::shared_ptr<const std::string>& one = field_names[name];
    if (!one) one = std::make_shared<const std::string>(std::move(name));
    return one;
  };
  for (uint64_t left = in.count(sizeof(OtherEvent)); left > 0 && in.ok(); --left) {
    OtherEvent event;
    event.time = in.time();
    event.pid = in.id();
    event.tid = in.id();
    event.cpu = in.id();
    event.name = static_cast<uint32_t>(in.number_to(UINT32_MAX));
    event.ip = Ip{in.number()};
    event.period = in.number();
    for (uint64_t fields = in.count(sizeof(TracepointField)); fields > 0 && in.ok(); --fields) {
      TracepointField field;
      field.name = shared(in.text());
      field.value = in.text();
      field.number = in.flag();
      if (field.number && !is_number(field.value)) return false;
      event.fields.push_back(std::move(field));
    }
    const Bytes raw = in.blob();
    event.raw.assign(raw.begin(), raw.end());
    if (!in.ok() || event.name >= events.names.size()) return false;
    const auto inside = [&event](const Interval& range) { return range.contains(event.time); };
    if (!times.empty() && std::none_of(times.begin(), times.end(), inside)) continue;
    const uint64_t bytes = bytes_of(event);
    if (events.events.size() >= most || bytes > bytes_left) {
      ++events.left_out;
    } else {
      bytes_left -= bytes;
      events.events.push_back(std::move(event));
    }
  }
  return in.done();
}

Result<OtherEvents> read_bundled_events(const std::string& path, const std::vector<Interval>& times, size_t most) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const Result<BundleChunks> chunks = read_bundle_chunks((*file)->bytes(), path);
  if (!chunks) return chunks.error();
  return read_bundled_events(*chunks, (*file)->bytes().size(), path, times, most);
}

Result<OtherEvents> read_bundled_events(const BundleChunks& chunks, uint64_t file_bytes, const std::string& path,
                                        const std::vector<Interval>& times, size_t most) {
  ListBudget budget(file_bytes);
  OtherEvents events;
  const auto found = chunks.find(chunk::kEvents);
  if (found != chunks.end() && !read_bundled_events(ByteReader(found->second, &budget), times, most, events)) {
    return Error{ErrorCode::bad_format,
                 path + ": its samples of other events" + (budget.exceeded() ? ": " + ListBudget::message() : " are damaged"), 0};
  }
  return events;
}

Status write_origin(const RecordingData& data, BundleFileWriter& file) {
  const Origin& origin = data.origin;
  if (!origin.clock.empty()) {
    ByteWriter out;
    for (const std::string* text : {&origin.hostname, &origin.kernel, &origin.cpu, &origin.cpuid, &origin.perf_version, &origin.clock})
      out.text(*text);
    out.number(origin.command.size());
    for (const std::string& word : origin.command) out.text(word);
    out.number(origin.cpus_online);
    out.flag(origin.wall_offset_ns.has_value());
    out.signed_number(origin.wall_offset_ns.value_or(0));
    if (Status status = file.add(chunk::kOrigin, out.bytes()); !status.ok()) return status;
  }
  const EventNames& names = data.event_names;
  if (names.width_columns == 0) return {};
  ByteWriter out;
  out.text(names.modifiers);
  out.number(names.width_columns);
  return file.add(chunk::kEventNames, out.bytes());
}

bool read_origin(ByteReader in, Origin& origin) {
  for (std::string* text : {&origin.hostname, &origin.kernel, &origin.cpu, &origin.cpuid, &origin.perf_version, &origin.clock})
    *text = in.text();
  for (uint64_t left = in.count(sizeof(std::string)); left > 0 && in.ok(); --left) origin.command.push_back(in.text());
  origin.cpus_online = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  const bool has_wall = in.flag();
  const int64_t offset_ns = in.signed_number();
  if (has_wall) origin.wall_offset_ns = offset_ns;
  return in.done();
}

bool read_event_names(ByteReader in, EventNames& names) {
  constexpr uint64_t kMostColumns = 64;
  constexpr size_t kMostLetters = 16;
  names.modifiers = in.text();
  names.width_columns = static_cast<uint32_t>(in.number_to(kMostColumns));
  return in.done() && names.modifiers.size() <= kMostLetters;
}

}  // namespace ptd
