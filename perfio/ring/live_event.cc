// LiveEvent: see live_event.h.
#include "perfio/ring/live_event.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "image/base/system_error.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

constexpr uint64_t kSampleType = kSampleIp | kSampleTid | kSampleTime | kSampleCpu | kSampleIdentifier;

/// What all events have in common.
perf_event_attr event_attr(uint32_t type, uint64_t config) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = type;
  attr.config = config;
  attr.sample_period = 1;
  attr.sample_type = kSampleType;
  attr.read_format = PERF_FORMAT_ID;
  attr.sample_id_all = 1;
  return attr;
}

perf_event_attr kernel_attr() {
  perf_event_attr attr = event_attr(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
  attr.exclude_kernel = attr.exclude_hv = 1;  // of the event's own samples, of which there are none
  attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = attr.build_id = 1;
  attr.context_switch = attr.ksymbol = attr.bpf_event = attr.text_poke = 1;
  return attr;
}

perf_event_attr kernel_attr(const EventSpec& spec) {
  perf_event_attr attr = event_attr(spec.type, spec.config);
  attr.config1 = spec.config1;
  attr.config2 = spec.config2;
  attr.sample_period = spec.period;
  if (spec.aux_sample_bytes != 0) attr.sample_type |= kSampleAux;
  attr.aux_sample_size = spec.aux_sample_bytes;
  if (spec.losses) attr.read_format |= kFormatLost;
  const auto bit = [](bool on) -> uint8_t { return on ? 1 : 0; };
  attr.exclude_user = bit(spec.exclude_user) & 1;
  attr.exclude_kernel = bit(spec.exclude_kernel) & 1;
  attr.exclude_hv = bit(spec.exclude_hv) & 1;
  attr.inherit = bit(spec.inherit) & 1;
  attr.disabled = bit(spec.disabled) & 1;
  attr.enable_on_exec = bit(spec.enable_on_exec) & 1;
  attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = bit(spec.tasks) & 1;
  attr.build_id = bit(spec.build_ids) & 1;
  attr.context_switch = bit(spec.switches) & 1;
  attr.namespaces = bit(spec.namespaces) & 1;
  attr.ksymbol = bit(spec.ksymbols) & 1;
  attr.bpf_event = bit(spec.bpf) & 1;
  attr.text_poke = bit(spec.text_pokes) & 1;
  if (spec.wake_bytes != 0) {
    attr.watermark = 1;
    attr.wakeup_watermark = spec.wake_bytes;
  }
  attr.aux_watermark = spec.aux_wake_bytes;
  // aux_action and config3 are newer than the headers of some systems; kernel_bytes() adds them.
  return attr;
}

/// The attr with aux_action, and followed by config3 (PERF_ATTR_SIZE_VER8).
std::vector<std::byte> kernel_bytes(const EventSpec& spec) {
  perf_event_attr attr = kernel_attr(spec);
  constexpr size_t kVersion7Bytes = 128, kVersion8Bytes = 136, kAuxActionAt = 116;
  const size_t size = spec.config3 == 0 ? kVersion7Bytes : kVersion8Bytes;
  attr.size = static_cast<uint32_t>(size);
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), &attr, std::min(size, sizeof(attr)));
  std::memcpy(bytes.data() + kAuxActionAt, &spec.aux_action, sizeof(spec.aux_action));
  if (spec.config3 != 0) std::memcpy(bytes.data() + kVersion7Bytes, &spec.config3, sizeof(spec.config3));
  return bytes;
}

std::string target_text(const EventTarget& target) {
  std::string text = target.tid >= 0 ? "thread " + std::to_string(target.tid) : "all threads";
  if (target.cpu >= 0) text += " on cpu " + std::to_string(target.cpu);
  return text;
}

std::string advice(int number) {
  if (number == EACCES || number == EPERM) {
    return " (needs CAP_PERFMON or root, or a lower /proc/sys/kernel/perf_event_paranoid)";
  }
  if (number == EMFILE) return " (too many open files: raise the limit with ulimit -n)";
  if (number == EBUSY) return " (the hardware is in use by another tracer)";
  return {};
}

EventAttr file_attr_of(const perf_event_attr& attr, std::string name) {
  const Bytes raw = std::as_bytes(std::span(&attr, 1));
  EventAttr out;
  (void)parse_attr(raw, out);  // it is long enough
  out.raw.assign(raw.begin(), raw.end());
  out.name = std::move(name);
  return out;
}

}  // namespace

Result<LiveEvent> LiveEvent::open(const void* attr, const EventTarget& target, int* number) {
  LiveEvent event(static_cast<int>(syscall(SYS_perf_event_open, attr, target.tid, target.cpu, target.group_fd, PERF_FLAG_FD_CLOEXEC)));
  if (event.fd_ >= 0 && ioctl(event.fd_, PERF_EVENT_IOC_ID, &event.id_) == 0) return event;
  const int why = errno;
  if (number != nullptr) *number = why;
  return Error{code_of_errno(why), "perf event of " + target_text(target) + ": " + std::strerror(why) + advice(why), 0};
}

Result<LiveEvent> LiveEvent::open(const EventSpec& spec, const EventTarget& target, int* number) {
  const std::vector<std::byte> attr = kernel_bytes(spec);
  Result<LiveEvent> event = open(static_cast<const void*>(attr.data()), target, number);
  if (event) event->losses_ = spec.losses;
  return event;
}

namespace {

/// Something of an event that it may do without.
struct Kind {
  bool EventSpec::*field;
  bool less;             ///< the value that requests less
  bool needs_privilege;  ///< a kernel that supports it may refuse it to this user
  const char* what;
};

// Youngest first, with the kernel that brought it.
constexpr std::array<Kind, 8> kKinds = {
    {{&EventSpec::losses, false, false, "the number of records lost after the last one in a buffer (Linux 6.0)"},
     {&EventSpec::build_ids, false, false, "build ids of mappings (Linux 5.12)"},
     {&EventSpec::text_pokes, false, true, "TEXT_POKE: the kernel's changes of its own code (Linux 5.9)"},
     {&EventSpec::bpf, false, true, "BPF_EVENT: loading and unloading of BPF programs (Linux 5.1)"},
     {&EventSpec::ksymbols, false, true, "KSYMBOL: creation and removal of kernel code (Linux 5.1)"},
     {&EventSpec::namespaces, false, true, "NAMESPACES (Linux 4.12)"},
     {&EventSpec::switches, false, false, "SWITCH: context switches (Linux 4.3)"},
     {&EventSpec::exclude_kernel, true, true, "the kernel, only user code"}}};

bool may_go(const EventSpec& spec, const Kind& kind, int why) {
  if (spec.*kind.field == kind.less) return false;
  const bool refused = why == EACCES || why == EPERM;
  if (kind.field == &EventSpec::exclude_kernel) return refused && !spec.exclude_user;  // else nothing would be left
  return refused ? kind.needs_privilege : why == EINVAL || why == EOPNOTSUPP || why == E2BIG;
}

}  // namespace

int omit_what_is_refused(EventSpec& spec, std::vector<std::string>& without, const std::function<int(const EventSpec&)>& attempt) {
  EventSpec tried = spec;
  std::vector<std::pair<const Kind*, int>> omitted;
  const int first = attempt(tried);
  int why = first;
  while (why != 0) {
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return may_go(tried, k, why); });
    if (kind == kKinds.end()) return first;
    tried.*kind->field = kind->less;
    omitted.emplace_back(kind, why);
    why = attempt(tried);
  }
  // The kernel does not say what it refuses: whatever it takes after all comes back, oldest first.
  for (size_t i = omitted.size(); i-- > 0;) {
    EventSpec more = tried;
    const auto [kind, reason] = omitted[i];
    more.*kind->field = !kind->less;
    if (attempt(more) == 0) {
      tried = more;
      continue;
    }
    const bool refused = reason == EACCES || reason == EPERM;
    without.push_back((refused ? "this user may not record " : "this kernel does not record ") + std::string(kind->what) +
                      (refused ? " (CAP_PERFMON, or a lower kernel.perf_event_paranoid)" : ""));
  }
  spec = tried;
  return 0;
}

Result<LiveEvent> LiveEvent::open_what_is_known(EventSpec& spec, const EventTarget& target, std::vector<std::string>& without,
                                                int* number) {
  const auto attempt = [&](const EventSpec& less) {
    int why = 0;
    return open(less, target, &why).ok() ? 0 : why;
  };
  const int why = omit_what_is_refused(spec, without, attempt);
  if (number != nullptr) *number = why;
  return open(spec, target, number);
}

Result<LiveEvent> LiveEvent::open_sideband(int32_t cpu) {
  perf_event_attr attr = kernel_attr();
  attr.read_format |= kFormatLost;
  Result<LiveEvent> event = open(static_cast<const void*>(&attr), EventTarget{-1, cpu}, nullptr);
  if (event) event->losses_ = true;
  if (event) return event;
  attr.read_format &= ~kFormatLost;
  return open(static_cast<const void*>(&attr), EventTarget{-1, cpu}, nullptr);
}

Result<LiveEvent> LiveEvent::open_tracepoint(int32_t cpu, uint64_t id) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = PERF_TYPE_TRACEPOINT;
  attr.config = id;
  attr.sample_period = 1;
  attr.sample_type = kSampleTime | kSampleRaw;
  attr.sample_id_all = 1;
  attr.wakeup_events = 1;
  return open(static_cast<const void*>(&attr), EventTarget{-1, cpu}, nullptr);
}

LiveEvent::~LiveEvent() {
  if (fd_ >= 0) close(fd_);
}

std::optional<uint64_t> LiveEvent::lost() const {
  struct {
    uint64_t value, id, lost;
  } counts{};
  if (!losses_ || read(fd_, &counts, sizeof(counts)) != static_cast<ssize_t>(sizeof(counts))) return std::nullopt;
  return counts.lost;
}

void LiveEvent::disable() const { (void)ioctl(fd_, PERF_EVENT_IOC_DISABLE, 0); }

void LiveEvent::enable() const { (void)ioctl(fd_, PERF_EVENT_IOC_ENABLE, 0); }

void LiveEvent::restart() const {
  disable();
  enable();
}

Status LiveEvent::send_to(const LiveEvent& other) const {
  if (ioctl(fd_, PERF_EVENT_IOC_SET_OUTPUT, other.fd_) == 0) return {};
  return system_error("perf event: cannot send its records to the ring of another event");
}

Status LiveEvent::set_filter(const std::string& filter) const {
  if (ioctl(fd_, PERF_EVENT_IOC_SET_FILTER, filter.c_str()) == 0) return {};
  return Error{ErrorCode::bad_option, "the kernel refuses the address filter '" + filter + "': " + std::strerror(errno), 0};
}

EventAttr file_attr(const EventSpec& spec, const std::string& name) {
  const std::vector<std::byte> raw = kernel_bytes(spec);
  EventAttr out;
  (void)parse_attr(raw, out);  // it is long enough
  out.raw = raw;
  out.name = name;
  return out;
}

EventAttr sideband_attr() { return file_attr_of(kernel_attr(), "dummy:u"); }

EventAttr trace_attr(uint32_t type, uint64_t config) {
  perf_event_attr attr = event_attr(type, config);
  attr.disabled = 1;
  return file_attr_of(attr, "intel_pt//");
}

}  // namespace ptd::perfio
