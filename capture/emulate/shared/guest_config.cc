// GuestConfig as text: "name=value", each ended by a zero byte, which no word of a command or environment contains.
#include "capture/emulate/shared/guest_config.h"

#include <algorithm>
#include <charconv>

namespace ptd::emulate {
namespace {

constexpr std::string_view kNames[] = {"program", "word",  "variable", "folder", "work",    "guest",
                                       "modules", "event", "terminal", "rows",   "columns", "trace"};

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_known(std::string_view name) {
  return ("," + std::string(kKernelEvents) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

template <class T>
bool take_count(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<KernelEvent> parse_event(std::string_view text) {
  constexpr uint32_t kMostCount = 1'000'000;
  KernelEvent event;
  const size_t equal = text.find('=');
  event.name = text.substr(0, equal);
  if (equal != std::string_view::npos && (!take_count(text.substr(equal + 1), event.count) || event.count == 0 || event.count > kMostCount))
    return Error{ErrorCode::bad_option, "--events: " + std::string(text) + ": the count is not a number from 1 to 1000000", 0};
  const size_t colon = event.name.find(':');
  const bool tracepoint = colon != std::string::npos && is_name(event.name.substr(0, colon)) && is_name(event.name.substr(colon + 1));
  if (tracepoint || is_known(event.name)) return event;
  return Error{ErrorCode::bad_option,
               "--events: '" + event.name + "' is neither a tracepoint (SYSTEM:EVENT) nor one of " + std::string(kKernelEvents), 0};
}

}  // namespace

Result<std::vector<KernelEvent>> parse_kernel_events(const std::string& text) {
  constexpr size_t kMostEvents = 64;
  std::vector<KernelEvent> events;
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', at), text.size());
    Result<KernelEvent> event = parse_event(std::string_view(text).substr(at, end - at));
    if (!event) return event.error();
    events.push_back(std::move(*event));
    if (events.size() > kMostEvents) return Error{ErrorCode::bad_option, "--events: more than 64 events", 0};
    at = end + 1;
  }
  return events;
}

std::string to_text(const GuestConfig& config) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    text.append(name).append("=").append(value).push_back('\0');
  };
  add("program", config.program);
  for (const std::string& word : config.words) add("word", word);
  for (const std::string& variable : config.variables) add("variable", variable);
  add("folder", config.folder);
  add("work", config.work);
  add("guest", config.guest);
  add("modules", config.modules);
  for (const KernelEvent& event : config.events) add("event", event.name + (event.count == 0 ? "" : "=" + std::to_string(event.count)));
  for (size_t i = 0; i < 3; ++i) {
    if (config.terminal[i]) add("terminal", std::to_string(i));
  }
  add("rows", std::to_string(config.rows));
  add("columns", std::to_string(config.columns));
  add("trace", std::to_string(config.trace_config));
  return text;
}

std::optional<GuestConfig> guest_config_from(std::string_view text) {
  GuestConfig config;
  while (!text.empty()) {
    const size_t end = text.find('\0'), equal = text.find('=');
    if (end == std::string_view::npos || equal > end) return std::nullopt;
    const std::string_view name = text.substr(0, equal);
    const std::string value(text.substr(equal + 1, end - equal - 1));
    text.remove_prefix(end + 1);
    const size_t which = static_cast<size_t>(std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames));
    unsigned stream = 0;
    bool good = true;
    switch (which) {
      case 0:
        config.program = value;
        break;
      case 1:
        config.words.push_back(value);
        break;
      case 2:
        config.variables.push_back(value);
        break;
      case 3:
        config.folder = value;
        break;
      case 4:
        config.work = value;
        break;
      case 5:
        config.guest = value;
        break;
      case 6:
        config.modules = value;
        break;
      case 7: {
        Result<KernelEvent> event = parse_event(value);
        good = event.ok();
        if (good) config.events.push_back(std::move(*event));
        break;
      }
      case 8:
        good = take_count(value, stream) && stream < 3;
        if (good) config.terminal[stream] = true;
        break;
      case 9:
        good = take_count(value, config.rows);
        break;
      case 10:
        good = take_count(value, config.columns);
        break;
      case 11:
        good = take_count(value, config.trace_config);
        break;
      default:
        return std::nullopt;
    }
    if (!good) return std::nullopt;
  }
  return config;
}

}  // namespace ptd::emulate
