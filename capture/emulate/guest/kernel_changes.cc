// Changes of the kernel's code, each through its user interface.
#include "capture/emulate/guest/kernel_changes.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "capture/emulate/guest/bpf_programs.h"
#include "capture/emulate/guest/guest_files.h"

namespace ptd::emulate::guest {
namespace {

const std::string kTracing = "/sys/kernel/tracing/";
constexpr uint32_t kSettleMs = 4;  // how long a change stays

struct Change {
  const char* name;
  void (*run)(uint32_t round);
};

std::string find_module(const std::string& name) {
  utsname system{};
  (void)uname(&system);
  const std::string path = std::string("/lib/modules/") + system.release + "/kernel/drivers/net/" + name + ".ko";
  for (const char* ending : {"", ".xz", ".zst", ".gz"}) {
    if (access((path + ending).c_str(), R_OK) == 0) return path + ending;
  }
  return path;
}

void switch_key(uint32_t) {
  write_file("/proc/sys/kernel/sched_schedstats", "1");
  sleep_ms(kSettleMs);
  write_file("/proc/sys/kernel/sched_schedstats", "0");
}

void switch_tracepoints(uint32_t round) {
  const char* const kEvents[] = {"sched/sched_switch", "raw_syscalls/sys_enter", "sched/sched_waking", "kmem/kmem_cache_alloc",
                                 "irq/softirq_entry",  "raw_syscalls/sys_exit",  "kmem/kfree",         "sched/sched_process_fork"};
  for (uint32_t i = 0; i < 3; ++i) write_file(kTracing + "events/" + kEvents[(round + i) % 8] + "/enable", "1");
  sleep_ms(kSettleMs);
  for (uint32_t i = 0; i < 3; ++i) write_file(kTracing + "events/" + kEvents[(round + i) % 8] + "/enable", "0");
}

void trace_functions(uint32_t) {
  write_file(kTracing + "current_tracer", "function");
  sleep_ms(kSettleMs);
  write_file(kTracing + "current_tracer", "nop");
}

void set_probes(uint32_t round) {
  const std::string enable = kTracing + "events/ptdecode/" + (round % 2 == 0 ? "even" : "odd");
  for (const char* number : {"0", "1", "2", "3"}) write_file(enable + number + "/enable", "1");
  sleep_ms(60);  // the optimiser waits for less time
  if (round % 4 == 1) {
    write_file("/proc/sys/debug/kprobes-optimization", "0");
    sleep_ms(kSettleMs);
    write_file("/proc/sys/debug/kprobes-optimization", "1");
    sleep_ms(60);
  }
  for (const char* number : {"0", "1", "2", "3"}) write_file(enable + number + "/enable", "0");
}

void load_bpf(uint32_t round) {
  BpfPrograms programs;
  programs.attach_tracepoint("sys_enter", round);
  sleep_ms(kSettleMs);
  programs.detach_all();  // the next one may be loaded at its address
  sleep_ms(kSettleMs);
  programs.attach_tracepoint("sys_exit", round + 1);
  programs.attach_with_subprograms("sys_enter", round);
  sleep_ms(kSettleMs);
}

void load_fentry(uint32_t round) {
  if (round % 4 != 0) return;  // each looks up its function among all names, which takes as long as a hundred other changes
  const char* const kFunctions[] = {"vfs_read", "vfs_write", "do_sys_poll", "handle_mm_fault"};
  BpfPrograms programs;
  programs.attach_fentry(kFunctions[round % 4], round);
  sleep_ms(kSettleMs);
  programs.attach_fentry(kFunctions[round % 4], round + 3);  // the trampoline is built again
  sleep_ms(kSettleMs);
  programs.detach_all();
}

void load_modules(uint32_t round) {
  if (round == 0) load_module(find_module("dummy"));  // stays loaded
  load_module(find_module("veth"));
  (void)read_file("/proc/net/dev");  // executes code of dummy0
  sleep_ms(kSettleMs);
  unload_module("veth");
}

constexpr Change kChanges[] = {{"keys", switch_key},        {"tracepoints", switch_tracepoints},
                               {"ftrace", trace_functions}, {"kprobes", set_probes},
                               {"bpf", load_bpf},           {"fentry", load_fentry},
                               {"modules", load_modules}};

bool is_tracepoint(const KernelEvent& event) { return event.name.find(':') != std::string::npos; }

std::string switch_of(const KernelEvent& event) {
  std::string name = event.name;
  std::replace(name.begin(), name.end(), ':', '/');
  return kTracing + "events/" + name + "/enable";
}

void make(const KernelEvent& event, uint32_t round) {
  if (is_tracepoint(event)) {
    write_file(switch_of(event), "1");
    sleep_ms(kSettleMs);
    write_file(switch_of(event), "0");
    return;
  }
  for (const Change& change : kChanges) {
    if (event.name == change.name) change.run(round);
  }
}

bool has(const std::vector<KernelEvent>& events, std::initializer_list<const char*> names) {
  return std::any_of(events.begin(), events.end(), [&](const KernelEvent& event) {
    return is_tracepoint(event) || std::find(names.begin(), names.end(), event.name) != names.end();
  });
}

void prepare_probes() {
#if defined(__aarch64__)
  // BRKs. The instruction below is stepped in a slot, or emulated if it depends on its address.
  for (const char* probe : {"p:ptdecode/even0 vfs_read+16", "p:ptdecode/even1 vfs_write+16", "p:ptdecode/even2 ksys_read+20",
                            "p:ptdecode/even3 vfs_open+16", "p:ptdecode/odd0 do_sys_poll+20", "p:ptdecode/odd1 try_to_wake_up+16",
                            "p:ptdecode/odd2 try_to_wake_up+24", "r:ptdecode/odd3 vfs_write"}) {
#else
  // At the entry they are calls of ftrace, after it jumps or, if two are too close for a jump, INT3s.
  for (const char* probe : {"p:ptdecode/even0 vfs_read+9", "p:ptdecode/even1 vfs_write+9", "p:ptdecode/even2 ksys_read+10",
                            "p:ptdecode/even3 vfs_open", "p:ptdecode/odd0 do_sys_poll+11", "p:ptdecode/odd1 try_to_wake_up+9",
                            "p:ptdecode/odd2 try_to_wake_up+7", "r:ptdecode/odd3 vfs_write"}) {
#endif
    write_file(kTracing + "kprobe_events", probe, true);
  }
}

}  // namespace

KernelChanges::KernelChanges(std::vector<KernelEvent> events) : events_(std::move(events)) {
  if (has(events_, {"bpf", "fentry"})) {
    BpfPrograms warm_up;  // the kernel reads its BTF when the first one is loaded
    (void)warm_up.attach_fentry("vfs_read", 0);
  }
  if (has(events_, {"tracepoints", "ftrace", "kprobes"})) {
    write_file(kTracing + "buffer_size_kb", "256");  // the buffers are allocated, page by page, at the first event
    write_file(kTracing + "events/sched/sched_switch/enable", "1");
    write_file(kTracing + "events/sched/sched_switch/enable", "0");
  }
  if (has(events_, {"ftrace"}))
    write_file(kTracing + "set_ftrace_filter",
               "vfs_read vfs_write ksys_read schedule try_to_wake_up do_sys_poll vfs_open kmem_cache_alloc");
  if (has(events_, {"kprobes"})) prepare_probes();
}

void KernelChanges::start() {
  for (const KernelEvent& event : events_) {
    constexpr uint32_t kPauseMs = 4, kProcesses = 3;
    if (event.name == "load") start_load(event.count == 0 ? kProcesses : event.count, kPauseMs);
    if (is_tracepoint(event) && event.count == 0) write_file(switch_of(event), "1");
  }
  if (!events_.empty()) thread_ = std::thread([this] { run(); });
}

void KernelChanges::run() {
  for (uint32_t round = 0;; ++round) {
    pin_to(static_cast<int>(round % 2));
    bool more = false;
    for (const KernelEvent& event : events_) {
      if (event.name == "load" || (is_tracepoint(event) && event.count == 0)) continue;
      const bool due = event.count == 0 ? !ending_ : round < event.count;
      if (due) make(event, round);
      more = more || due;
    }
    if (!more) return;
  }
}

void KernelChanges::finish() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  for (const KernelEvent& event : events_) {
    if (is_tracepoint(event) && event.count == 0) write_file(switch_of(event), "0");
  }
  events_.clear();
}

}  // namespace ptd::emulate::guest
