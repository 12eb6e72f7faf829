// EventNames, Origin: see event_names.h. Names and modifiers: perf-list(1), "EVENT MODIFIERS"; perf_event_open(2), "exclude_user" and what
// follows.
#include "recording/data/event_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "perfio/format/wire.h"
#include "recording/data/recording_data.h"

namespace ptd {
namespace {

const char* clock_name(int32_t id) {
  switch (id) {
    case 0:
      return "realtime";
    case 1:
      return "monotonic";
    case 4:
      return "monotonic_raw";
    case 7:
      return "boottime";
    case 11:
      return "tai";
    default:
      return "another";
  }
}

constexpr uint32_t kTypeHardware = 0, kTypeSoftware = 1, kTypeTracepoint = perfio::kEventTypeTracepoint, kTypeRaw = 4,
                   kFirstDynamicType = 6;
constexpr std::array<std::string_view, 10> kHardware = {
    "cycles",        "instructions", "cache-references",        "cache-misses",           "branches",
    "branch-misses", "bus-cycles",   "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"};
constexpr std::array<std::string_view, 10> kSoftware = {"cpu-clock",        "task-clock",   "page-faults",  "context-switches",
                                                        "cpu-migrations",   "minor-faults", "major-faults", "alignment-faults",
                                                        "emulation-faults", "dummy"};

// Host and guest are named where the choice is not the usual one: guests are left out exactly if the event has other modifiers.
std::string modifiers_of(uint64_t flags, uint64_t precise) {
  using namespace perfio;
  std::string text;
  const auto add_included = [&](uint64_t excluded_bit, char letter) {
    if ((flags & excluded_bit) == 0) text += letter;
  };
  bool guest_usually_left_out = false;
  if ((flags & (kAttrExcludeKernel | kAttrExcludeUser | kAttrExcludeHv)) != 0) {
    add_included(kAttrExcludeKernel, 'k');
    add_included(kAttrExcludeUser, 'u');
    add_included(kAttrExcludeHv, 'h');
    guest_usually_left_out = true;
  }
  if (precise != 0) {
    text.append(precise, 'p');
    guest_usually_left_out = true;
  }
  if ((flags & kAttrExcludeHost) != 0 || ((flags & kAttrExcludeGuest) != 0) == guest_usually_left_out) {
    add_included(kAttrExcludeHost, 'H');
    add_included(kAttrExcludeGuest, 'G');
  }
  return text.empty() ? text : ":" + text;
}

uint64_t precise_of(uint64_t flags) { return (flags & perfio::kAttrPreciseIp) >> perfio::kAttrPreciseIpShift; }

std::string hex(uint64_t value) {
  std::array<char, 16> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr};
}

// The name that perf prints.
std::string perf_name_of(const perfio::EventAttr& attr) {
  if (!attr.name.empty()) return attr.name;
  const std::string modifiers = modifiers_of(attr.flags, precise_of(attr.flags));
  switch (attr.type) {
    case kTypeHardware:
      return std::string(attr.config < kHardware.size() ? kHardware[attr.config] : "unknown-hardware") + modifiers;
    case kTypeSoftware:
      return std::string(attr.config < kSoftware.size() ? kSoftware[attr.config] : "unknown-software") + modifiers;
    case kTypeTracepoint:
      return "unknown tracepoint";
    case kTypeRaw:
      return "raw 0x" + hex(attr.config) + modifiers;
    default:
      return attr.type >= kFirstDynamicType ? "unknown attr type: " + std::to_string(attr.type) : std::string();
  }
}

}  // namespace

std::string event_name(const perfio::EventAttr& attr) {
  if (!attr.name.empty()) return attr.name;
  return (attr.type == kTypeTracepoint ? "tracepoint:" : "event:" + std::to_string(attr.type) + ":") + std::to_string(attr.config);
}

std::string pauses_text(const std::vector<perfio::EventAttr>& attrs) {
  std::string pausing, resuming;
  bool starts_paused = false, is_user_only = false;
  const auto add = [](std::string& text, const perfio::EventAttr& attr) { text += (text.empty() ? "" : ", ") + event_name(attr); };
  for (const perfio::EventAttr& attr : attrs) {
    if ((attr.aux_action & perfio::kAuxPause) != 0) add(pausing, attr);
    if ((attr.aux_action & perfio::kAuxResume) != 0) add(resuming, attr);
    starts_paused = starts_paused || (attr.aux_action & perfio::kAuxStartPaused) != 0;
    is_user_only = is_user_only || (attr.name.starts_with("intel_pt") && attr.exclude_kernel);
  }
  std::string text;
  const auto join = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (starts_paused) join("starts paused");
  if (!pausing.empty()) join("is paused by " + pausing);
  if (!resuming.empty()) join("is resumed by " + resuming);
  if (text.empty()) return text;
  text = "the trace " + text;
  if (!pausing.empty() && is_user_only)
    text += ": a pause is shown as [kernel], as a system call or an interrupt that lasts until the trace is resumed";
  return text;
}

EventNames event_names_of(const std::vector<perfio::EventAttr>& attrs, uint32_t trace_type) {
  constexpr size_t kMostColumns = 64;  // a recording can claim names of any length
  EventNames names;
  bool found = false;
  for (const perfio::EventAttr& attr : attrs) {
    names.width_columns = std::max(names.width_columns, static_cast<uint32_t>(std::min(perf_name_of(attr).size(), kMostColumns)));
    if (attr.type == trace_type && !std::exchange(found, true)) names.modifiers = modifiers_of(attr.flags, 0);
  }
  return names;
}

const EventNames& event_names(const Recording& recording) { return data_of(recording).event_names; }

Origin origin_of(const perfio::PerfReader& reader) {
  const perfio::Features& features = reader.features();
  Origin origin{features.hostname,    features.os_release, features.cpu_desc,
                features.cpuid,       features.version,    features.cmdline,
                features.cpus_online, "perf's own",        {}};
  for (const perfio::EventAttr& attr : reader.attrs()) {
    if (attr.use_clockid) origin.clock = clock_name(attr.clockid);
  }
  if (features.has_clock_data) origin.wall_offset_ns = static_cast<int64_t>(features.wall_clock_ns - features.clockid_time_ns);
  return origin;
}

const Origin& origin_of(const Recording& recording) { return data_of(recording).origin; }

std::string describe(const Origin& origin, const std::string& path) {
  std::string text = path;
  const auto add = [&](const char* label, const std::string& value) {
    if (!value.empty()) text += std::string(", ") + label + " " + value;
  };
  add("host", origin.hostname);
  add("kernel", origin.kernel);
  add("cpu", origin.cpu.empty() ? origin.cpuid : origin.cpu);
  std::string command;
  for (const std::string& word : origin.command) command += (command.empty() ? "" : " ") + word;
  add("command", command);
  return text;
}

}  // namespace ptd
