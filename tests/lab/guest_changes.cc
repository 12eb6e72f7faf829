// Changes of the kernel's code, each through the interface that users have for it, made by each cpu in turn.
#include <functional>

#include "tests/lab/guest.h"

namespace ptd::lab {
namespace {

const std::string kTracing = "/sys/kernel/tracing/";

struct Work {
  const char* name;
  std::function<void(const GuestOptions&, uint32_t round)> run;
};

void switch_key(const GuestOptions& options, uint32_t) {
  write_file("/proc/sys/kernel/sched_schedstats", "1");
  sleep_ms(options.settle_ms);
  write_file("/proc/sys/kernel/sched_schedstats", "0");
}

void switch_tracepoints(const GuestOptions& options, uint32_t round) {
  const char* const kEvents[] = {"sched/sched_switch", "raw_syscalls/sys_enter", "sched/sched_waking", "kmem/kmem_cache_alloc",
                                 "irq/softirq_entry",  "raw_syscalls/sys_exit",  "kmem/kfree",         "sched/sched_process_fork"};
  for (uint32_t i = 0; i < 3; ++i) write_file(kTracing + "events/" + kEvents[(round + i) % 8] + "/enable", "1");
  sleep_ms(options.settle_ms);
  for (uint32_t i = 0; i < 3; ++i) write_file(kTracing + "events/" + kEvents[(round + i) % 8] + "/enable", "0");
}

void trace_functions(const GuestOptions& options, uint32_t) {
  write_file(kTracing + "current_tracer", "function");
  sleep_ms(options.settle_ms);
  write_file(kTracing + "current_tracer", "nop");
}

void set_probes(const GuestOptions& options, uint32_t round) {
  const std::string enable = kTracing + "events/lab/" + (round % 2 == 0 ? "even" : "odd");
  for (const char* number : {"0", "1", "2", "3"}) write_file(enable + number + "/enable", "1");
  sleep_ms(60);  // the optimiser waits for less
  if (round % 4 == 1) {
    write_file("/proc/sys/debug/kprobes-optimization", "0");
    sleep_ms(options.settle_ms);
    write_file("/proc/sys/debug/kprobes-optimization", "1");
    sleep_ms(60);
  }
  for (const char* number : {"0", "1", "2", "3"}) write_file(enable + number + "/enable", "0");
}

void load_bpf(const GuestOptions& options, uint32_t round) {
  BpfPrograms programs;
  programs.attach_tracepoint("sys_enter", round);
  sleep_ms(options.settle_ms);
  programs.detach_all();  // the next one may get its address
  sleep_ms(options.settle_ms);
  programs.attach_tracepoint("sys_exit", round + 1);
  programs.attach_with_subprograms("sys_enter", round);
  sleep_ms(options.settle_ms);
}

void load_fentry(const GuestOptions& options, uint32_t round) {
  if (round % 4 != 0) return;  // each looks its function up among all names, the length of a hundred other changes
  const char* const kFunctions[] = {"vfs_read", "vfs_write", "do_sys_poll", "handle_mm_fault"};
  BpfPrograms programs;
  programs.attach_fentry(kFunctions[round % 4], round);
  sleep_ms(options.settle_ms);
  programs.attach_fentry(kFunctions[round % 4], round + 3);  // the trampoline is built again
  sleep_ms(options.settle_ms);
  programs.detach_all();
}

void load_modules(const GuestOptions& options, uint32_t round) {
  if (round == 0) load_module("/lib/modules/dummy.ko");  // stays
  load_module("/lib/modules/veth.ko");
  (void)read_file("/proc/net/dev");  // reads dummy0
  sleep_ms(options.settle_ms);
  unload_module("veth");
}

}  // namespace

void prepare_changes() {
  write_file(kTracing + "set_ftrace_filter", "vfs_read vfs_write ksys_read schedule try_to_wake_up do_sys_poll vfs_open kmem_cache_alloc");
  // At the entry they are calls of ftrace, after it jumps or, where two are too close for a jump, INT3s.
  for (const char* probe :
       {"p:lab/even0 vfs_read+9", "p:lab/even1 vfs_write+9", "p:lab/even2 ksys_read+10", "p:lab/even3 vfs_open",
        "p:lab/odd0 do_sys_poll+11", "p:lab/odd1 try_to_wake_up+9", "p:lab/odd2 try_to_wake_up+7", "r:lab/odd3 vfs_write"}) {
    write_file(kTracing + "kprobe_events", probe);
  }
}

void change_code(const GuestOptions& options) {
  const Work kWorks[] = {{"keys", switch_key},        {"tracepoints", switch_tracepoints},
                         {"ftrace", trace_functions}, {"kprobes", set_probes},
                         {"bpf", load_bpf},           {"fentry", load_fentry},
                         {"modules", load_modules}};
  for (uint32_t round = 0; round < options.rounds; ++round) {
    pin_to(static_cast<int>(round % 2));
    for (const Work& work : kWorks) {
      if (options.work.empty() || ("," + options.work + ",").find(std::string(",") + work.name + ",") != std::string::npos) {
        work.run(options, round);
        say("round %u: %s", round, work.name);
      }
    }
  }
}

}  // namespace ptd::lab
