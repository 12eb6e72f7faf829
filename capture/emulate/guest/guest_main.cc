// The program in the emulated machine: its init. It makes the host's files the root, records the kernel's records while the program runs,
// and leaves the recording in the working folder, which it shares with the host.
#include <fcntl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "capture/emulate/guest/guest_files.h"
#include "capture/emulate/guest/guest_mounts.h"
#include "capture/emulate/guest/guest_program.h"
#include "capture/emulate/guest/kernel_changes.h"
#include "capture/emulate/shared/guest_channel.h"
#include "capture/emulate/shared/guest_config.h"
#include "capture/emulate/shared/system_control.h"
#include "capture/live/sideband_recorder.h"

namespace ptd::emulate::guest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSecondStage = "--in-host-root";
constexpr const char* kFolder = "/dev/ptdecode";

#if defined(__x86_64__)
uint64_t descriptor_table() {
  struct __attribute__((packed)) {
    uint16_t limit = 0;
    uint64_t base = 0;
  } table;
  asm volatile("sidt %0" : "=m"(table));
  return table.base;
}
#else
uint64_t descriptor_table() { return 0; }  // the tracer reads the register
#endif

/// Opens the port to the host. Its name is in sysfs: the device files have numbers only.
int open_port() {
  constexpr unsigned kMostTries = 500;
  for (unsigned tries = 0; tries < kMostTries; ++tries) {  // the driver creates the device on its own thread
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator("/sys/class/virtio-ports", error)) {
      if (!read_file(entry.path().string() + "/name").starts_with(kGuestPort)) continue;
      const int fd = open(("/dev/" + entry.path().filename().string()).c_str(), O_RDWR | O_CLOEXEC);
      if (fd >= 0) return fd;
    }
    sleep_ms(10);
  }
  return -1;
}

/// The recorder and the thread that empties its rings.
class Recording {
 public:
  Status start(uint64_t trace_config) {
    live::RecorderOptions options;
    options.path = std::string(kFolder) + "/recording";
    options.trace_config = trace_config;
    options.watch_text = true;
    Result<std::unique_ptr<live::SidebandRecorder>> recorder = live::SidebandRecorder::start(options);
    if (!recorder) return recorder.error();
    recorder_ = std::move(*recorder);
    if (Status status = recorder_->drain(); !status) return status;
    thread_ = std::thread([this] {
      constexpr uint32_t kPauseMs = 5;
      while (!done_ && first_error_.ok()) {
        if (Status status = recorder_->drain(); !status) first_error_ = status;
        recorder_->wait(kPauseMs);
      }
    });
    return {};
  }
  Status finish() {
    done_ = true;
    thread_.join();
    if (!first_error_.ok()) return first_error_;
    if (Status status = recorder_->stop(); !status) return status;
    const live::RecorderCounts& counts = recorder_->counts();
    if (counts.text.changes + counts.text.unknown != 0) {
      say("changes of code %llu, unknown %llu", static_cast<unsigned long long>(counts.text.changes),
          static_cast<unsigned long long>(counts.text.unknown));
    }
    say("records %llu, lost %llu, text pokes %llu, modules %llu (code read %llu, gone %llu)",
        static_cast<unsigned long long>(counts.records), static_cast<unsigned long long>(counts.lost),
        static_cast<unsigned long long>(counts.text_pokes), static_cast<unsigned long long>(counts.modules.loaded),
        static_cast<unsigned long long>(counts.modules.read), static_cast<unsigned long long>(counts.modules.gone));
    Result<std::unique_ptr<live::KernelMemory>> memory = live::KernelMemory::open();
    if (!memory) return memory.error();
    fs::create_directory(std::string(kFolder) + "/after");
    return live::copy_kernel(**memory, read_file("/proc/kallsyms"), std::string(kFolder) + "/after/kcore_dir");
  }

 private:
  std::unique_ptr<live::SidebandRecorder> recorder_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
  Status first_error_;
};

/// Copies the recording to the working folder.
Status hand_out(const std::string& work) {
  std::ofstream(std::string(kFolder) + "/changed_files") << list_changed_files();
  std::error_code error;
  fs::copy(kFolder, work + "/guest", fs::copy_options::recursive, error);
  sync();
  if (error) return Error{ErrorCode::write_failed, "cannot copy the recording out of the machine: " + error.message(), 0};
  return {};
}

Status record(const GuestConfig& config, GuestChannel& channel, int port) {
  write_file("/proc/sys/kernel/kptr_restrict", "1");  // for root, real addresses, also in vmallocinfo
  write_file("/proc/sys/kernel/perf_event_mlock_kb", "1000000");
  KernelChanges changes(config.events);
  Recording recording;
  if (Status status = recording.start(config.trace_config); !status) return status;
  (void)channel.send(GuestFrame::started, {});
  GuestProgram program(config, channel, port);
  const uint64_t table = descriptor_table();
  // The changes begin in this process once the trace has started in the other one.
  int started[2];
  if (pipe2(started, O_CLOEXEC) != 0) return Error{ErrorCode::resources, "no pipe", 0};
  const auto before_exec = [&] {
    tell_tracer_start(table);
    (void)!write(started[1], "", 1);
  };
  if (!program.start(before_exec))
    return Error{ErrorCode::start_failed, std::string("the machine cannot start the program: ") + std::strerror(errno), 0};
  close(started[1]);
  char byte = 0;
  (void)!read(started[0], &byte, 1);
  close(started[0]);
  changes.start();
  const int status = program.run([&] {
    changes.finish();
    tell_tracer_stop();
    (void)kill(-1, SIGKILL);  // what the program left running, and the load
  });
  (void)channel.send(GuestFrame::exited, number_bytes(static_cast<uint32_t>(status)));
  if (Status ended = recording.finish(); !ended) return ended;
  return hand_out(config.work);
}

int first_stage() {
  prepare_devices();
  const std::optional<GuestConfig> config = guest_config_from(read_file(std::string("/") + kGuestConfigFile));
  if (!config) {
    say("no config");
    return 1;
  }
  if (!enter_host_root(*config)) return 1;
  const char* const words[] = {config->guest.c_str(), kSecondStage, config->work.c_str(), nullptr};
  (void)execv(config->guest.c_str(), const_cast<char* const*>(words));
  say("exec %s: %s", config->guest.c_str(), std::strerror(errno));
  return 1;
}

int second_stage(const std::string& work) {
  (void)sethostname("ptdecode", 8);
  start_loopback();
  const int port = open_port();
  if (port < 0) {
    say("no port to the host");
    return 1;
  }
  GuestChannel channel(port);
  const std::optional<GuestConfig> config = guest_config_from(read_file(work + "/" + kGuestConfigFile));
  if (!config) {
    (void)channel.send(GuestFrame::failed, "the emulated machine cannot read its configuration in " + work);
    return 1;
  }
  if (Status status = record(*config, channel, port); !status) {
    (void)channel.send(GuestFrame::failed, status.error().message);
    sleep_ms(100);
    return 1;
  }
  (void)channel.send(GuestFrame::finished, {});
  return 0;
}

}  // namespace
}  // namespace ptd::emulate::guest

int main(int argc, char** argv) {
  using namespace ptd::emulate::guest;
  if (getpid() != 1) {
    (void)std::fprintf(stderr, "ptdecode-guest is the init of 'ptdecode record --emulate=system'\n");
    return 2;
  }
  (void)(argc == 3 && std::strcmp(argv[1], kSecondStage) == 0 ? second_stage(argv[2]) : first_stage());
  sync();
  (void)reboot(RB_POWER_OFF);
  for (;;) pause();
}
