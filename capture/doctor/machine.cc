// The machine that this program runs on, as input of the doctor.
#include <linux/bpf.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "capture/doctor/doctor.h"
#include "capture/emulators/emulator_query.h"
#include "image/base/environment.h"
#include "perfio/ring/live_event.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ptd::doctor {
namespace {

std::vector<uint32_t> ask_cpuid([[maybe_unused]] uint32_t leaf, [[maybe_unused]] uint32_t sub_leaf) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(leaf, sub_leaf, &a, &b, &c, &d) == 0) return {};
  return {a, b, c, d};
#else
  return {};
#endif
}

ProbeResult open_event(const Machine::Probe& probe) {
  perfio::EventSpec spec;
  spec.disabled = true;
  spec.exclude_kernel = spec.exclude_hv = !probe.with_kernel;
  if (probe.what == "trace") {
    spec.type = probe.type;
    spec.config = 0;
  } else {
    spec.tasks = true;
    spec.build_ids = probe.what == "build_ids";
    spec.ksymbols = probe.what == "ksymbols";
    spec.bpf = probe.what == "bpf";
    spec.text_pokes = probe.what == "text_pokes";
    spec.switches = probe.what == "switches";
    spec.namespaces = probe.what == "namespaces";
  }
  const perfio::EventTarget target = probe.all_of_cpu ? perfio::EventTarget{-1, 0} : perfio::EventTarget{0, -1};
  int number = 0;
  const auto event = perfio::LiveEvent::open(spec, target, &number);
  return {event.ok() ? 0 : number != 0 ? number : EINVAL};
}

int list_bpf() {
  bpf_attr attr{};
  return ::syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &attr, sizeof attr) == 0 ? 0 : errno;
}

std::optional<uint64_t> free_bytes(const std::string& path) {
  std::string place = path;
  struct statvfs info {};
  while (::statvfs(place.c_str(), &info) != 0) {
    const size_t slash = place.rfind('/');
    if (slash == std::string::npos || place.size() <= 1) return std::nullopt;
    place.resize(slash == 0 ? 1 : slash);
  }
  return uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace

Machine this_machine() {
  Machine machine;
#if defined(__x86_64__)
  machine.x86 = true;
#elif defined(__aarch64__)
  machine.arm64 = true;
#endif
  machine.path = environment::search_path();
  machine.built_emulators = emulators::built_emulators();
  machine.page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  machine.user = ::geteuid();
  machine.cpuid = ask_cpuid;
  machine.open_event = open_event;
  machine.list_bpf = list_bpf;
  machine.free_bytes = free_bytes;
  return machine;
}

}  // namespace ptd::doctor
