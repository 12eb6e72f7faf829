// CounterEvent: see counter_event.h. Names: perf-list(1); numbers: linux/perf_event.h, "enum perf_hw_id", "enum perf_sw_ids".
#include "capture/live/events/counter_event.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "capture/live/events/pmu_terms.h"
#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/start_scan.h"
#include "perfio/format/event_attr.h"

namespace ptd::live {
namespace {

using perfio::EventSpec;

constexpr uint32_t kHardware = 0, kSoftware = 1, kTracepoint = 2;
constexpr uint64_t kOften = 1'000'000, kRarely = 10'000;

struct Generic {
  const char* name;
  uint32_t type;
  uint64_t config, period;
};
constexpr std::array<Generic, 17> kGeneric = {{{"cycles", kHardware, 0, kOften},
                                               {"cpu-cycles", kHardware, 0, kOften},
                                               {"instructions", kHardware, 1, kOften},
                                               {"cache-references", kHardware, 2, kRarely},
                                               {"cache-misses", kHardware, 3, kRarely},
                                               {"branches", kHardware, 4, kRarely},
                                               {"branch-misses", kHardware, 5, kRarely},
                                               {"bus-cycles", kHardware, 6, kOften},
                                               {"ref-cycles", kHardware, 9, kOften},
                                               {"cpu-clock", kSoftware, 0, kOften},
                                               {"task-clock", kSoftware, 1, kOften},
                                               {"page-faults", kSoftware, 2, 1},
                                               {"context-switches", kSoftware, 3, 1},
                                               {"cpu-migrations", kSoftware, 4, 1},
                                               {"minor-faults", kSoftware, 5, 1},
                                               {"major-faults", kSoftware, 6, 1},
                                               {"alignment-faults", kSoftware, 7, 1}}};

Error wrong(const std::string& option, const std::string& what) { return {ErrorCode::bad_option, "record: " + option + ": " + what, 0}; }

/// A number from 1 on.
std::optional<uint64_t> count_of(const std::string& text) {
  const std::optional<uint64_t> number = parse_integer(text, 10);
  return number && *number != 0 ? number : std::nullopt;
}

// A tracepoint's number, from a file that names it.
std::optional<uint64_t> tracepoint_of(const std::string& tracefs, const std::string& system, const std::string& name) {
  if (system.empty() || name.empty() || (system + name).find_first_of("/. ") != std::string::npos) return std::nullopt;
  const Result<std::string> text = read_text_file(tracefs + "/events/" + system + "/" + name + "/id");
  return text.ok() ? count_of(text->substr(0, text->find('\n'))) : std::nullopt;
}

bool is_older(const std::string& release, unsigned major, unsigned minor) {
  unsigned has_major = 0, has_minor = 0;
  if (std::sscanf(release.c_str(), "%u.%u", &has_major, &has_minor) != 2) return false;
  return has_major < major || (has_major == major && has_minor < minor);
}

}  // namespace

Result<CounterEvent> parse_counter_event(const std::string& option, const std::string& text, const std::string& sysfs,
                                         const std::string& tracefs) {
  const size_t at = text.rfind('@');
  const std::string whole = text.substr(0, at);
  CounterEvent event;
  event.name = whole;
  event.spec.exclude_hv = true;
  event.spec.period = 1;
  const Generic* generic = nullptr;
  if (whole.find('/') != std::string::npos) {
    const Result<PmuEvent> pmu = parse_pmu_event(whole, sysfs);
    if (!pmu) return pmu.error();
    event.spec = pmu->spec;
    event.spec.period = kRarely;
  } else {
    std::string name = whole, levels;
    const size_t colon = whole.find(':'), last = whole.rfind(':');
    for (const Generic& known : kGeneric) {
      if (whole.substr(0, colon) == known.name) generic = &known;
    }
    if (colon != std::string::npos && (generic != nullptr || last != colon)) {
      name = whole.substr(0, last);
      levels = whole.substr(last + 1);
      const Status status =
          levels.empty() ? Error{ErrorCode::bad_option, "an event's levels are u, k and h", 0} : set_levels(event.spec, levels);
      if (!status) return wrong(option, status.error().message);
    }
    if (generic != nullptr) {
      event.spec.type = generic->type;
      event.spec.config = generic->config;
      event.spec.period = generic->period;
    } else {
      const std::optional<uint64_t> id =
          colon == std::string::npos ? std::nullopt : tracepoint_of(tracefs, name.substr(0, colon), name.substr(colon + 1));
      if (!id)
        return wrong(option, "no event '" + text + "': give a name such as cycles:u or cpu-clock, a tracepoint SYSTEM:NAME (" + tracefs +
                                 "/events), or PMU/TERMS/LEVELS");
      event.spec.type = kTracepoint;
      event.spec.config = *id;
    }
  }
  if (at == std::string::npos) return event;
  const std::optional<uint64_t> period = count_of(text.substr(at + 1));
  if (!period) return wrong(option, "'" + text.substr(at + 1) + "' is not a period: a number from 1 on");
  event.spec.period = *period;
  return event;
}

std::string why_refused(const CounterEvent& event, const std::string& trace, int number, const std::string& release) {
  const bool samples = event.spec.aux_sample_bytes != 0;
  const bool unsupported = number == EINVAL || number == EOPNOTSUPP || number == E2BIG;
  const std::string what = samples ? "AUX samples" : "pausing and resuming a trace (aux-action)";
  std::string text = event.name + ": " + std::strerror(number);
  if (!unsupported) {
    if (number == EACCES || number == EPERM) text += " (needs CAP_PERFMON or root, or a lower /proc/sys/kernel/perf_event_paranoid)";
    if (number == ENOENT) text += ": this machine does not count it";
    return text;
  }
  const unsigned major = samples ? 5 : 6, minor = samples ? 5 : 13;
  if (is_older(release, major, minor))
    return what + " need Linux " + std::to_string(major) + "." + std::to_string(minor) + ", and this is " + release;
  if (event.spec.aux_action == perfio::kAuxStartPaused) return trace + " cannot start paused: its driver does not support aux-action";
  return what + ": the kernel refuses " + event.name + " in a group with " + trace +
         ": the driver of the trace does not support it, or the event cannot be sampled";
}

}  // namespace ptd::live
