// Runs a program under qemu-user with the plugin.
#include "recording/emulate/user_runner.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "recording/emulate/mapped_log.h"
#include "recording/emulate/user_exec.h"
#include "recording/emulate/work_clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPluginName = "ptdecode-emulate.so";
constexpr uint64_t kNsPerSecond = 1'000'000'000, kBusHz = 100'000'000;

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

struct ClockPair {
  uint64_t tsc = 0, ns = 0;
};

// The plugin's clock and CLOCK_MONOTONIC at one moment: the closest of a few readings.
ClockPair read_clocks() {
  ClockPair best;
#if defined(__x86_64__)
  uint64_t width = ~uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const uint64_t before = __rdtsc(), ns = monotonic_ns(), after = __rdtsc();
    if (after - before >= width) continue;
    width = after - before;
    best = {before + width / 2, ns};
  }
#else
  best.tsc = best.ns = monotonic_ns();
#endif
  return best;
}

// mult and shift as the kernel has them for its TSC: 31 bits of fraction at most.
TimeConversion conversion_of(ClockPair start, ClockPair end) {
  TimeConversion time;
  const uint64_t ticks = end.tsc - start.tsc, ns = end.ns - start.ns;
  if (ticks == 0 || ns == 0) return time;
  const double ns_per_tick = static_cast<double>(ns) / static_cast<double>(ticks);
  time.time_shift = 31;
  while (time.time_shift > 0 && ns_per_tick * static_cast<double>(uint64_t{1} << time.time_shift) >= 4294967295.0) --time.time_shift;
  time.time_mult = static_cast<uint32_t>(ns_per_tick * static_cast<double>(uint64_t{1} << time.time_shift));
  time.time_zero = start.ns - time.to_ns(Tsc{start.tsc}).value;
  return time;
}

/// A folder that goes away with this object.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& parent) {
    const char* temporary = std::getenv("TMPDIR");
    std::string name = (!parent.empty() ? parent : temporary != nullptr && *temporary != 0 ? temporary : "/tmp");
    std::error_code error;
    name = fs::absolute(name, error).string() + "/ptdecode-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~WorkFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string find_plugin(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {here / kPluginName, here / "../recording/emulate" / kPluginName, here / PTD_PLUGIN_FOLDER / kPluginName}) {
    if (fs::is_regular_file(place, error)) return fs::canonical(place, error).string();
  }
  return {};
}

// In the child: becomes the emulator. Only returns if that fails.
void become_emulator(const EmulateOptions& options, const EmulatorCommand& command, const std::string& program) {
  exec_emulated(command, program, options.command, environ);
}

volatile sig_atomic_t g_program = 0;  // who gets the signals that ask this process to end

void pass_on(int number) {
  if (g_program > 0) (void)kill(static_cast<pid_t>(g_program), number);
}

/// Until this object goes, Ctrl-C is left to the program, which gets it too and decides; what asks to end is passed on to it.
class Signals {
 public:
  Signals() : interrupt_(std::signal(SIGINT, SIG_IGN)), terminate_(std::signal(SIGTERM, pass_on)), hangup_(std::signal(SIGHUP, pass_on)) {}
  ~Signals() {
    g_program = 0;
    (void)std::signal(SIGINT, interrupt_);
    (void)std::signal(SIGTERM, terminate_);
    (void)std::signal(SIGHUP, hangup_);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  using Handler = void (*)(int);
  Handler interrupt_, terminate_, hangup_;
};

/// Whether a file could be written there: better known before the program runs than after.
Status try_output(const std::string& path) {
  std::error_code error;
  const bool was_there = fs::exists(path, error);
  if (path == "-" || (was_there && !fs::is_regular_file(path, error)))
    return Error{ErrorKind::usage, "an emulated recording is written to a file, not to " + (path == "-" ? "standard output" : path), 0};
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return Error{ErrorKind::file_open, "cannot write " + path + ": " + std::strerror(errno), 0};
  close(fd);
  if (!was_there) fs::remove(path, error);
  return {};
}

Status try_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || access(path.c_str(), W_OK) != 0) {
    return Error{ErrorKind::file_open, "cannot write to the folder " + path + ": " + (error ? error.message() : std::strerror(errno)), 0};
  }
  return {};
}

// Waits for the program and, as this process takes in orphans, for all that it started.
int wait_for_all(pid_t program) {
  int result = 0;
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return result;
    if (pid == program) result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : std::string();
  const char* path = std::getenv("PATH");
  const std::string places = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t at = 0; at <= places.size();) {
    const size_t end = std::min(places.find(':', at), places.size());
    const std::string candidate = (end == at ? "." : places.substr(at, end - at)) + "/" + name;
    std::error_code error;
    if (access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate, error)) return candidate;
    at = end + 1;
  }
  return {};
}

Result<EmulateResult> emulate(const EmulateOptions& options) {
  const std::string program = options.command.empty() ? "" : find_program(options.command.front());
  if (program.empty()) {
    return Error{ErrorKind::usage, (options.command.empty() ? "" : options.command.front()) + ": not found, or it may not be run", 0};
  }
  EmulatorCommand command;
  command.machine = machine_of(program);
  if (command.machine != kMachineX86_64 && command.machine != kMachineAarch64) {
    return Error{ErrorKind::usage, program + ": no program for x86-64 or aarch64, nor a script for one", 0};
  }
  const std::string emulator = emulator_of(command.machine);
  command.qemu = find_program(options.qemu.empty() ? emulator : options.qemu);
  if (command.qemu.empty() && !options.qemu.empty()) return Error{ErrorKind::usage, options.qemu + " is no program that can be run", 0};
  if (command.qemu.empty()) return Error{ErrorKind::unsupported, emulator + " is not installed (Debian: apt install qemu-user)", 0};
  command.plugin = find_plugin(options.plugin);
  if (command.plugin.empty()) return Error{ErrorKind::unsupported, std::string(kPluginName) + " is not beside this program", 0};
  if (Status status = try_output(options.output); !status) return status.error();
  if (Status status = options.truth_folder.empty() ? Status() : try_folder(options.truth_folder); !status) return status.error();
  const WorkFolder folder(options.work_parent);
  if (folder.path().empty()) return Error{ErrorKind::file_open, "a working folder cannot be made in TMPDIR", 0};
  command.folder = folder.path();

  RecordingOptions recording;
  recording.config = options.config;
  recording.aarch64 = command.machine == kMachineAarch64;
  recording.config.truth = recording.aarch64 || !options.truth_folder.empty();  // of which the packets of aarch64 are made
  const ClockPair before = read_clocks();
  const timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
  const ClockPair start = read_clocks();
  const uint64_t ns = start.ns - before.ns, ratio = ((start.tsc - before.tsc) * 10 + ns / 2) / ns;  // of a bus clock of 100 MHz
  recording.config.pt.bus_ratio = static_cast<uint8_t>(std::clamp<uint64_t>(ratio, 1, 255));
  if (options.config.work_clock) {
    recording.config.pt.bus_ratio = kWorkTicksPerSecond / kBusHz;
    if (!WorkClock::create(folder.path())) return Error{ErrorKind::file_open, "the clock cannot be made in " + folder.path(), 0};
  }
  std::ofstream config(folder.path() + "/" + kConfigFile);
  config << to_text(recording.config) << std::flush;
  if (!config || !SharedCount::create(folder.path() + "/" + kMissingFile))
    return Error{ErrorKind::file_open, "cannot write to the working folder " + folder.path() + " (TMPDIR): " + std::strerror(errno), 0};

  prctl(PR_SET_CHILD_SUBREAPER, 1);
  EmulateResult result;
  {
    const Signals signals;
    const pid_t pid = fork();
    if (pid < 0) return Error{ErrorKind::file_open, "fork: " + std::string(std::strerror(errno)), 0};
    if (pid == 0) {
      for (const int number : {SIGINT, SIGPIPE, SIGTERM, SIGHUP, SIGXFSZ}) (void)std::signal(number, SIG_DFL);
      become_emulator(options, command, program);
      _exit(127);
    }
    g_program = pid;
    result.exit_status = wait_for_all(pid);
  }
  const ClockPair end = read_clocks();
  result.run_s = static_cast<double>(end.ns - start.ns) / static_cast<double>(kNsPerSecond);
  recording.time =
      options.config.work_clock ? conversion_of({0, kNsPerSecond}, {kWorkTicksPerSecond, 2 * kNsPerSecond}) : conversion_of(before, end);
  recording.work_folder = folder.path();
  recording.output = options.output;
  recording.truth_folder = options.truth_folder;
  recording.psb_period = options.psb_period;
  recording.command_line = options.command;
  Result<RecordingSummary> summary = write_recording(recording);
  if (!summary) return summary.error();
  result.summary = std::move(*summary);
  return result;
}

}  // namespace ptd::emulate
