// Samples of other events as bytes and back.
#include "recording/bundle_events.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

namespace ptd {

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
  for (uint64_t left = in.count(); left > 0 && in.ok(); --left) events.names.push_back(in.text());
  events.left_out = in.number();
  uint64_t bytes_left = kMostEventBytes;
  std::map<std::string, std::shared_ptr<const std::string>> field_names;
  const auto shared = [&](std::string name) {
    std::shared_ptr<const std::string>& one = field_names[name];
    if (!one) one = std::make_shared<const std::string>(std::move(name));
    return one;
  };
  for (uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    OtherEvent event;
    event.time = in.time();
    event.pid = in.id();
    event.tid = in.id();
    event.cpu = in.id();
    event.name = static_cast<uint32_t>(in.number_to(UINT32_MAX));
    event.ip = Ip{in.number()};
    event.period = in.number();
    for (uint64_t fields = in.count(); fields > 0 && in.ok(); --fields) {
      TracepointField field;
      field.name = shared(in.text());
      field.value = in.text();
      field.number = in.flag();
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

}  // namespace ptd
