// LiveEvent: see live_event.h.
#include "perfio/live_event.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "perfio/sample_id.h"
#include "perfio/wire.h"

namespace ptd::perfio {
namespace {

constexpr uint64_t kSampleType = kSampleIp | kSampleTid | kSampleTime | kSampleCpu | kSampleIdentifier;

perf_event_attr kernel_attr() {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.sample_period = 1;
  attr.sample_type = kSampleType;
  attr.read_format = PERF_FORMAT_ID;
  attr.sample_id_all = 1;
  attr.exclude_kernel = attr.exclude_hv = 1;  // of the event's own samples, of which there are none
  attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = 1;
  attr.context_switch = attr.ksymbol = attr.bpf_event = attr.text_poke = 1;
  return attr;
}

EventAttr file_attr(const perf_event_attr& attr, std::string name) {
  const Bytes raw = std::as_bytes(std::span(&attr, 1));
  EventAttr out;
  (void)parse_attr(raw, out);  // it is long enough
  out.raw.assign(raw.begin(), raw.end());
  out.name = std::move(name);
  return out;
}

}  // namespace

Result<LiveEvent> LiveEvent::open(const void* attr, int32_t cpu) {
  const auto fail = [&] {
    return Error{ErrorKind::file_open, "perf event on cpu " + std::to_string(cpu) + ": " + std::strerror(errno), 0};
  };
  LiveEvent event(static_cast<int>(syscall(SYS_perf_event_open, attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
  if (event.fd_ < 0 || ioctl(event.fd_, PERF_EVENT_IOC_ID, &event.id_) != 0) return fail();
  return event;
}

Result<LiveEvent> LiveEvent::open_sideband(int32_t cpu) {
  const perf_event_attr attr = kernel_attr();
  return open(&attr, cpu);
}

Result<LiveEvent> LiveEvent::open_tracepoint(int32_t cpu, uint64_t id) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = PERF_TYPE_TRACEPOINT;
  attr.config = id;
  attr.sample_period = 1;
  attr.sample_type = kSampleTime | kSampleRaw;
  attr.wakeup_events = 1;
  return open(&attr, cpu);
}

LiveEvent::~LiveEvent() {
  if (fd_ >= 0) close(fd_);
}

void LiveEvent::disable() const { (void)ioctl(fd_, PERF_EVENT_IOC_DISABLE, 0); }

EventAttr sideband_attr() { return file_attr(kernel_attr(), "dummy:u"); }

EventAttr trace_attr(uint32_t type, uint64_t config) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = type;
  attr.config = config;
  attr.sample_period = 1;
  attr.sample_type = kSampleType;
  attr.read_format = PERF_FORMAT_ID;
  attr.disabled = attr.sample_id_all = 1;
  return file_attr(attr, "intel_pt//");
}

}  // namespace ptd::perfio
