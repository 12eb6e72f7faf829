// Finds one event format in tracing data. The formats are plain text ("name: X", "ID: N", "field:T NAME; offset:N; ..."), so the text is
// searched for instead of walking the binary sections around it.
#include "perfio/format/tracing_data.h"

#include <charconv>
#include <string_view>

namespace ptd::perfio {
namespace {

bool number_after(std::string_view text, std::string_view key, uint64_t& out) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return false;
  size_t begin = at + key.size();
  while (begin < text.size() && text[begin] == ' ') ++begin;
  const auto parsed = std::from_chars(text.data() + begin, text.data() + text.size(), out);
  return parsed.ec == std::errc();
}

bool field_offset(std::string_view text, std::string_view field, uint32_t& out) {
  const size_t at = text.find(field);
  if (at == std::string_view::npos) return false;
  uint64_t value = 0;
  if (!number_after(text.substr(at, 160), "offset:", value) || value > 0xffff) return false;
  out = static_cast<uint32_t>(value);
  return true;
}

}  // namespace

bool find_sched_switch(Bytes tracing_data, SchedSwitchFormat& out) {
  const std::string_view all(reinterpret_cast<const char*>(tracing_data.data()), tracing_data.size());
  const size_t at = all.find("name: sched_switch\n");
  if (at == std::string_view::npos) return false;
  std::string_view text = all.substr(at, 4096);
  text = text.substr(0, text.find("print fmt:"));
  SchedSwitchFormat found;
  if (!number_after(text, "ID:", found.id)) return false;
  if (!field_offset(text, " prev_pid;", found.prev_pid_offset_bytes) || !field_offset(text, " next_pid;", found.next_pid_offset_bytes))
    return false;
  out = found;
  return true;
}

}  // namespace ptd::perfio
