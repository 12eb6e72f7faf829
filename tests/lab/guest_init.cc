// Init of the lab's machine: mounts, starts recorder and load, has the kernel changed while it is traced, hands the recording out.
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "capture/emulate/plugin/system_control.h"
#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/sideband_recorder.h"
#include "tests/lab/guest.h"

namespace ptd::lab {

void say(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  std::printf("lab: %s\n", line);
  (void)std::fflush(stdout);
}

void write_file(const std::string& path, const std::string& text) {
  static std::set<std::string> said;
  const bool append = text.find("lab/") != std::string::npos;
  const int fd = open(path.c_str(), O_WRONLY | (append ? O_APPEND : O_TRUNC));
  size_t done = 0;
  ssize_t got = 0;
  while (fd >= 0 && done < text.size() && (got = write(fd, text.data() + done, text.size() - done)) > 0) done += static_cast<size_t>(got);
  if (done != text.size() && said.insert(path + text).second) say("%s <- %s: %s", path.c_str(), text.c_str(), std::strerror(errno));
  if (fd >= 0) close(fd);
}

std::string read_file(const std::string& path) {
  const Result<std::string> text = live::read_text_file(path);
  return text ? *text : std::string();
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}

void sleep_ms(uint32_t ms) {
  const timespec pause{ms / 1000, static_cast<long>(ms % 1000) * 1000000};
  (void)nanosleep(&pause, nullptr);
}

bool load_module(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  const bool loaded = fd >= 0 && syscall(SYS_finit_module, fd, "", 0) == 0;
  if (!loaded) say("%s: %s", path.c_str(), std::strerror(errno));
  if (fd >= 0) close(fd);
  return loaded;
}

bool unload_module(const std::string& name) {
  const bool gone = syscall(SYS_delete_module, name.c_str(), O_NONBLOCK) == 0;
  if (!gone) say("unload %s: %s", name.c_str(), std::strerror(errno));
  return gone;
}

GuestOptions read_options() {
  GuestOptions options;
  const auto number = [](const char* name, auto& value) {
    if (const char* text = std::getenv(name))
      value = static_cast<std::remove_reference_t<decltype(value)>>(std::strtoull(text, nullptr, 0));
  };
  number("LAB_ROUNDS", options.rounds);
  number("LAB_RING_PAGES", options.ring_pages);
  number("LAB_DRAIN_MS", options.drain_ms);
  number("LAB_SETTLE_MS", options.settle_ms);
  number("LAB_LOAD", options.load);
  number("LAB_PAUSE_MS", options.pause_ms);
  number("LAB_CONFIG", options.trace_config);
  if (const char* work = std::getenv("LAB_WORK")) options.work = work;
  return options;
}

namespace {

void prepare() {
  for (const char* dir : {"/proc", "/sys", "/dev", "/tmp"}) (void)mkdir(dir, 0755);
  (void)mount("proc", "/proc", "proc", 0, nullptr);
  (void)mount("sysfs", "/sys", "sysfs", 0, nullptr);
  (void)mount("devtmpfs", "/dev", "devtmpfs", 0, nullptr);
  (void)mount("tmpfs", "/tmp", "tmpfs", 0, "size=1500m");
  (void)mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, nullptr);
  (void)sethostname("lab", 3);
  const int console = open("/dev/console", O_RDWR);
  for (int fd = 0; fd < 3 && console >= 0; ++fd) (void)dup2(console, fd);
  for (const char* name : {"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"}) {
    load_module(std::string("/lib/modules/") + name + ".ko");
  }
  write_file("/proc/sys/kernel/kptr_restrict", "1");  // to root, addresses as they are, also in vmallocinfo
  write_file("/proc/sys/kernel/perf_event_mlock_kb", "1000000");
}

uint64_t descriptor_table() {
  struct __attribute__((packed)) {
    uint16_t limit = 0;
    uint64_t base = 0;
  } table;
  asm volatile("sidt %0" : "=m"(table));
  return table.base;
}

/// Runs the commands that hand the recording out: tar of busybox onto the disk, whose end is a separate file.
void hand_out(const char* dir) {
  if (chdir(dir) != 0) return;
  const std::string command = "/bin/busybox tar cf /dev/vda .";
  if (const int status = std::system(command.c_str()); status != 0) say("tar: status %d", status);
  sync();
}

int run() {
  prepare();
  const GuestOptions options = read_options();
  live::RecorderOptions recorder_options;
  recorder_options.path = "/tmp/out/recording";
  recorder_options.ring_pages = options.ring_pages;
  recorder_options.trace_config = options.trace_config;
  (void)mkdir("/tmp/out", 0755);
  (void)mkdir("/tmp/out/after", 0755);
  {
    BpfPrograms warm_up;  // the kernel reads its BTF at the first one
    (void)warm_up.attach_fentry("vfs_read", 0);
    warm_up.detach_all();
    write_file("/sys/kernel/tracing/buffer_size_kb", "256");  // the buffers are made, page by page, at the first event
    write_file("/sys/kernel/tracing/events/sched/sched_switch/enable", "1");
    write_file("/sys/kernel/tracing/events/sched/sched_switch/enable", "0");
  }
  prepare_changes();
  say("recorder starts");
  Result<std::unique_ptr<live::SidebandRecorder>> recorder = live::SidebandRecorder::start(recorder_options);
  if (!recorder) {
    say("recorder: %s", recorder.error().message.c_str());
    return 1;
  }
  (void)(*recorder)->drain();
  std::atomic<bool> done = false;
  std::thread drainer([&] {
    pin_to(0);
    while (!done) {
      if (Status status = (*recorder)->drain(); !status) say("recorder: %s", status.error().message.c_str());
      (*recorder)->wait(options.drain_ms);
    }
  });
  start_load(options.load, options.pause_ms);
  say("trace starts");
  emulate::tell_tracer_start(descriptor_table());
  change_code(options);
  emulate::tell_tracer_stop();
  say("trace ended");
  done = true;
  drainer.join();
  if (Status status = (*recorder)->stop(); !status) say("recorder: %s", status.error().message.c_str());
  const live::RecorderCounts& counts = (*recorder)->counts();
  say("records %llu, lost %llu, text pokes %llu, bpf programs %llu (gone %llu), images read %llu, modules %llu (code read %llu, gone %llu)",
      static_cast<unsigned long long>(counts.records), static_cast<unsigned long long>(counts.lost),
      static_cast<unsigned long long>(counts.text_pokes), static_cast<unsigned long long>(counts.bpf_programs),
      static_cast<unsigned long long>(counts.bpf_gone), static_cast<unsigned long long>(counts.images_read),
      static_cast<unsigned long long>(counts.modules.loaded), static_cast<unsigned long long>(counts.modules.read),
      static_cast<unsigned long long>(counts.modules.gone));
  if (auto memory = live::KernelMemory::open(); memory) {
    if (Status status = live::copy_kernel(**memory, read_file("/proc/kallsyms"), "/tmp/out/after/kcore_dir"); !status)
      say("copy: %s", status.error().message.c_str());
  }
  hand_out("/tmp/out");
  say("done");
  return 0;
}

}  // namespace
}  // namespace ptd::lab

int main() {
  (void)ptd::lab::run();
  sync();
  (void)reboot(RB_POWER_OFF);
  for (;;) pause();
}
