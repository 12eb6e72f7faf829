// Runs a program in qemu-user with the plugin.
#include "capture/emulate/user_runner.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "capture/announce/announce_socket.h"
#include "capture/emulate/announce_log.h"
#include "capture/emulate/program_holder.h"
#include "capture/emulate/recording_plan.h"
#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/shared/plugin_place.h"
#include "capture/emulate/shared/user_exec.h"
#include "capture/emulate/shared/work_clock.h"
#include "capture/emulate/user_output.h"
#include "capture/emulate/work_folder.h"
#include "capture/emulators/emulator_query.h"
#include "image/base/environment.h"
#include "image/base/inherited_signals.h"
#include "image/base/system_error.h"
#include "image/base/whole_file.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPluginName = "ptdecode-emulate.so";
constexpr uint64_t kBusHz = 100'000'000;

volatile sig_atomic_t g_program = 0;  // gets the signals that ask this process to end
volatile sig_atomic_t g_asked = 0;    // this process was asked to end after the program itself had ended

void pass_on(int number) {
  if (g_program > 0) {
    (void)kill(static_cast<pid_t>(g_program), number);
  } else {
    g_asked = 1;
  }
}

/// Holds back the signals that ask this process to end, so that none ends it while its working folder exists and nobody waits for the
/// program.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : kNumbers) sigaddset(&held, number);
    (void)pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Also called by the program's process, before its exec.
  void release() const { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // Whether one of them has come that was not ignored when this process began.
  [[nodiscard]] static bool any() { return std::ranges::any_of(kNumbers, has_come); }
  [[nodiscard]] static bool has_come(int number) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1 && !was_ignored(number);
  }

 private:
  static constexpr std::array kNumbers = {SIGINT, SIGTERM, SIGHUP};
  sigset_t before_{};
};

/// While the program runs, Ctrl-C is left to it, which also gets it and decides; other requests to end are passed on to it. Once it has
/// ended, each of them is for this process.
class Signals {
 public:
  Signals(pid_t program, bool interrupted)
      : interrupt_(std::signal(SIGINT, SIG_IGN)), terminate_(std::signal(SIGTERM, pass_on)), hangup_(std::signal(SIGHUP, pass_on)) {
    g_asked = 0;
    g_program = program;
    if (interrupted) (void)kill(program, SIGINT);  // Ctrl-C may have come before the program could get it
  }
  ~Signals() {
    g_program = 0;
    (void)std::signal(SIGINT, interrupt_);
    (void)std::signal(SIGTERM, terminate_);
    (void)std::signal(SIGHUP, hangup_);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // What the caller ignored, as nohup does, stays ignored.
  static void program_ended() {
    g_program = 0;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) (void)std::signal(number, was_ignored(number) ? SIG_IGN : pass_on);
  }
  static bool asked() { return g_asked != 0; }

 private:
  using Handler = void (*)(int);
  Handler interrupt_, terminate_, hangup_;
};

/// Calls `on_stopped` once, when a process of the program can no longer be recorded.
class StopWatcher {
 public:
  StopWatcher(const std::string& folder, const std::function<void(const std::string&)>& on_stopped) {
    if (on_stopped) thread_ = std::thread([this, folder, on_stopped] { watch(folder, on_stopped); });
  }
  ~StopWatcher() {
    {
      const std::lock_guard hold(lock_);
      done_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

 private:
  void watch(const std::string& folder, const std::function<void(const std::string&)>& on_stopped) {
    constexpr std::chrono::milliseconds kPause{100};
    std::unique_lock hold(lock_);
    while (SharedCount::read(folder + "/" + kStoppedFile) == 0) {
      if (done_) return;
      (void)changed_.wait_for(hold, kPause, [this] { return done_; });
    }
    hold.unlock();
    on_stopped(folder);
  }
  std::mutex lock_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

// Errors: as execve() would report them.
Result<std::string> check_executable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return Error{ErrorCode::is_directory, "cannot run " + path + ": it is a directory", 0};
  if (fs::exists(status) && !fs::is_regular_file(status))
    return Error{ErrorCode::not_regular_file, "cannot run " + path + ": it is not a file", 0};
  if (access(path.c_str(), X_OK) == 0) return path;
  const int number = errno;
  Error refused = system_error("cannot run " + path, ErrorCode::permission_denied, number);
  if (number == ENOTDIR) refused.code = ErrorCode::start_failed;  // env exits with 126 for it, as for a program that exists
  return refused;
}

// Looks in PATH as a shell does: a file there that cannot be run is named only if no other can.
Result<std::string> find_executable(const std::string& name) {
  if (name.empty()) return Error{ErrorCode::not_found, "cannot run a program without a name", 0};
  if (name.find('/') != std::string::npos) return check_executable(name);
  Error refused{ErrorCode::not_found, "cannot run " + name + ": it is not in PATH", 0};
  const std::string places = environment::search_path();
  for (size_t at = 0; at <= places.size();) {
    const size_t end = std::min(places.find(':', at), places.size());
    Result<std::string> candidate = check_executable((end == at ? "." : places.substr(at, end - at)) + "/" + name);
    if (candidate) return candidate;
    const bool exists = candidate.error().code == ErrorCode::is_directory || candidate.error().code == ErrorCode::permission_denied;
    if (exists && refused.code == ErrorCode::not_found) refused = candidate.error();
    at = end + 1;
  }
  return refused;
}

// Errors: bad_option for a given emulator that cannot be used; missing_program names what helps.
Result<std::string> choose_emulator(const EmulateOptions& options, const std::string& name) {
  emulators::EmulatorSearch search;
  search.name = name;
  search.given = options.qemu;
  search.path = environment::search_path();
  search.built = emulators::built_emulators();
  const emulators::Emulator chosen = emulators::choose_emulator(search);
  if (chosen.fitness == emulators::Fitness::works) return chosen.path;
  if (!options.qemu.empty()) return Error{ErrorCode::bad_option, "--emulator: " + chosen.found, 0};
  const bool installed = chosen.fitness != emulators::Fitness::missing;
  return Error{ErrorCode::missing_program,
               chosen.found + (installed ? ": build one that can be used with 'ptdecode emulator build', or name one with --emulator"
                                         : " (Debian 12: apt install qemu-user; elsewhere: ptdecode emulator build)"),
               0};
}

/// Whether a file could be written there: better known before the program runs than after.
Status try_output(const std::string& path, const std::string& program = {}) {
  std::error_code error;
  if (Status status = check_not_program(path, program); !status) return status;
  if (path == "-" || (fs::exists(path, error) && !fs::is_regular_file(path, error)))
    return Error{ErrorCode::bad_output, "an emulated recording is written to a file, not to " + (path == "-" ? "standard output" : path),
                 0};
  const auto file = WholeFile::open(path, kRecordingOutput);  // removed again, as it is not finished
  return file.ok() ? Status() : file.error();
}

Status try_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || access(path.c_str(), W_OK) != 0) {
    const int number = error ? error.value() : errno;
    return system_error("cannot write to the folder " + path, ErrorCode::write_failed, number);
  }
  return {};
}

// The working folder is at `now`, not where the plan has it: a folder above it was renamed, or the folder itself. An output whose folder
// was renamed with it follows.
void follow(RecordingOptions& recording, const std::string& now) {
  const fs::path output = recording.output, truth = recording.truth_folder;
  const fs::path before = output.parent_path(), after = fs::path(now).parent_path();
  std::error_code error;
  const bool beside = fs::path(recording.work_folder).filename().string().starts_with(output.filename().string() + ".work-") &&
                      fs::path(recording.work_folder).filename() == fs::path(now).filename();
  recording.work_folder = now;
  if (!beside || fs::exists(before, error)) return;
  recording.output = (after / output.filename()).string();
  const fs::path inside = truth.lexically_relative(before);
  if (!inside.empty() && *inside.begin() != ".." && !fs::exists(truth, error))
    recording.truth_folder = (after / inside).lexically_normal().string();
}

// The recording, and the folder's end if it could be made or never can be. If not yet (a full disk), its error says where the logs are.
Result<RecordingSummary> complete(RecordingPlan& plan, const WorkFolder& folder) {
  const std::string now = folder.current_path();
  if (now.empty()) {
    return Error{
        ErrorCode::no_trace,
        "nothing was recorded: the working folder " + folder.path() +
            " was removed while the program ran. If it was moved to another file system, complete the recording with ptdecode record "
            "--recover FOLDER",
        0};
  }
  const bool moved = now != plan.recording.work_folder;
  if (moved) follow(plan.recording, now);
  set_time(plan);
  Result<RecordingSummary> summary = write_recording(plan.recording);
  if (moved && summary) {
    summary->warnings.push_back("the working folder was moved to " + now + " while the program ran: the recording is " +
                                plan.recording.output + ", and programs that were started after the move are not recorded");
  }
  if (summary || summary.error().kind() != ErrorKind::file_open || !has_user_output(now)) {
    folder.remove();
    return summary;
  }
  Error error = summary.error();
  error.message += "; what was recorded is in " + now + ", for ptdecode record --recover";
  return error;
}

// The plugin's configuration, and what makes a recording of its logs.
Status prepare(const EmulateOptions& options, const EmulatorCommand& command, RecordingPlan& plan) {
  RecordingOptions& recording = plan.recording;
  std::error_code error;
  recording.work_folder = command.folder;
  recording.config = options.config;
  recording.aarch64 = command.machine == kMachineAarch64;
  if (recording.aarch64 && recording.config.aux_sample_bytes != 0)
    return Error{ErrorCode::contradictory_options,
                 "record: --aux-sample is for Intel PT, and " + options.command.front() + " is a program for aarch64", 0};
  recording.config.truth = recording.aarch64 || !options.truth_folder.empty();  // of which the packets of aarch64 are made
  recording.output = fs::absolute(options.output, error).string();
  if (!options.truth_folder.empty()) recording.truth_folder = fs::absolute(options.truth_folder, error).string();
  recording.psb_period = options.psb_period;
  recording.command_line = options.command;
  plan.boot = this_boot();
  plan.before = read_clocks();
  const timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
  plan.start = read_clocks();
  const uint64_t ns = plan.start.ns - plan.before.ns;
  const uint64_t ratio = ((plan.start.tsc - plan.before.tsc) * 10 + ns / 2) / ns;  // of a bus clock of 100 MHz
  recording.config.pt.bus_ratio = static_cast<uint8_t>(std::clamp<uint64_t>(ratio, 1, 255));
  if (options.config.work_clock) {
    recording.config.pt.bus_ratio = kWorkTicksPerSecond / kBusHz;
    if (!WorkClock::create(command.folder)) return Error{ErrorCode::write_failed, "cannot create the clock in " + command.folder, 0};
  }
  std::ofstream config(command.folder + "/" + kConfigFile);
  config << to_text(recording.config) << std::flush;
  bool written = !config.fail();
  for (const char* name : {kMissingFile, kStoppedFile, kEndedFile, kSpaceFile})
    written = written && SharedCount::create(command.folder + "/" + name);
  if (!written) return system_error("cannot write to the working folder " + command.folder, ErrorCode::write_failed);
  return write_plan(plan);
}

// The program's environment. With announcements, one variable more, unless it is set.
std::vector<char*> variables_of(const UserConfig& config, std::string& announce) {
  std::vector<char*> all;
  bool known = !config.announce || announce.empty();
  for (char** at = environment::variables(); *at != nullptr; ++at) {
    known = known || std::string_view(*at).starts_with("PTD_ANNOUNCE=");
    all.push_back(*at);
  }
  if (!known) all.push_back(announce.data());
  all.push_back(nullptr);
  return all;
}

// Whether a shell runs the file: text without an interpreter line. execve refuses it, and execvp then starts /bin/sh.
bool is_plain_script(const std::string& path) {
  const std::string read = head_of(path);
  return machine_of(path) == 0 && missing_interpreter(path).empty() && !read.starts_with("#!") && !read.starts_with("\177ELF") &&
         read.find('\0') == std::string_view::npos;
}

/// Completes the recording of a program that has ended.
Result<EmulateResult> finish(const EmulateOptions& options, const ProgramToRun& program, RecordingPlan& plan, const WorkFolder& folder,
                             EmulateResult result) {
  const bool gone = folder.current_path().empty();
  const std::string planned = plan.recording.output;
  Result<RecordingSummary> summary = complete(plan, folder);
  if (!summary) {
    Error error = summary.error();
    const std::string linker = error.code == ErrorCode::no_trace && !gone ? missing_linker(program.path) : std::string();
    if (!linker.empty()) {
      error.message = "the program did not start: its dynamic linker " + linker +
                      " is not on this machine. Set QEMU_LD_PREFIX to the folder below which it is" +
                      (program.machine == kMachineAarch64 ? ", for example QEMU_LD_PREFIX=/usr/aarch64-linux-gnu" : "");
    }
    if (gone) error.message += ". The program's exit status is " + std::to_string(result.exit_status);
    return error;
  }
  result.output = plan.recording.output == planned ? options.output : plan.recording.output;
  result.summary = std::move(*summary);
  return result;
}

}  // namespace

Result<std::string> find_program(const std::string& name) { return find_executable(name); }

Result<ProgramToRun> find_program_to_run(const std::vector<std::string>& words) {
  if (words.empty()) return Error{ErrorCode::bad_option, "no program is given", 0};
  const Result<std::string> found = find_executable(words.front());
  if (!found) return found.error();
  ProgramToRun program{*found, words, 0};
  if (is_plain_script(program.path)) {
    program.words.front() = program.path;
    program.words.insert(program.words.begin(), "sh");
    program.path = "/bin/sh";
  }
  program.machine = machine_of(program.path);
  if (program.machine == kMachineX86_64 || program.machine == kMachineAarch64) return program;
  const std::string missing = missing_interpreter(program.path);
  const int number = errno;
  if (!missing.empty()) return system_error(program.path + ": cannot run its interpreter " + missing, ErrorCode::permission_denied, number);
  if (head_of(program.path).starts_with("\177ELF\1"))
    return Error{ErrorCode::start_failed, program.path + ": a 32-bit program; record --emulate runs 64-bit programs for x86-64 and aarch64",
                 0};
  return Error{ErrorCode::start_failed, program.path + ": neither a program for x86-64 or aarch64 nor a script for one", 0};
}

Result<EmulateResult> emulate(const EmulateOptions& options) {
  const Result<ProgramToRun> program = find_program_to_run(options.command);
  if (!program) return program.error();
  EmulatorCommand command;
  command.machine = program->machine;
  const Result<std::string> emulator = choose_emulator(options, emulator_of(command.machine));
  if (!emulator) return emulator.error();
  command.qemu = *emulator;
  command.plugin = find_plugin_file(options.plugin, kPluginName);
  if (command.plugin.empty())
    return Error{ErrorCode::missing_program,
                 std::string(kPluginName) +
                     " was not found next to this program: name "
                     "it with --plugin",
                 0};
  const Result<std::string> file = find_executable(options.command.front());
  if (Status status = try_output(options.output, file ? *file : std::string()); !status) return status.error();
  if (Status status = options.truth_folder.empty() ? Status() : try_folder(options.truth_folder); !status) return status.error();
  const HeldSignals held;
  const Result<WorkFolder> folder = WorkFolder::create(options.output, options.work_parent);
  if (!folder) return folder.error();
  command.folder = folder->path();
  RecordingPlan plan;
  if (Status status = prepare(options, command, plan); !status) {
    folder->remove();
    return status.error();
  }
  EmulateResult result;
  std::unique_ptr<announce::AnnounceSocket> socket;
  if (options.config.announce) {
    if (auto made = announce::AnnounceSocket::create(); made.ok()) socket = std::move(*made);
  }
  std::string announce = socket ? socket->variable() : "PTD_ANNOUNCE=ring";
  const std::vector<char*> variables = variables_of(options.config, announce);
  const auto become_program = [&] {
    held.release();
    exec_emulated(command, program->path, program->words, variables.data());
  };
  const auto ended = [&] {
    const std::string now = options.config.work_clock ? "" : folder->current_path();
    if (!now.empty()) SharedCount::write(now + "/" + kEndedFile, read_clocks().tsc);
  };
  if (HeldSignals::any()) {
    folder->remove();
    held.release();  // this ends the process, unless its user handles the signal
    return Error{ErrorCode::start_failed, "interrupted before the program was started", 0};
  }
  const auto holder = ProgramHolder::start({become_program, ended, [&] { (void)complete(plan, *folder); }});
  if (!holder) {
    folder->remove();
    return holder.error();
  }
  std::vector<std::string> troubles;
  {
    const Signals signals((*holder)->program(), HeldSignals::has_come(SIGINT));
    held.release();
    const StopWatcher watcher(command.folder, options.on_stopped);
    std::optional<AnnounceWatcher> listener;
    if (options.config.announce) listener.emplace(command.folder, socket.get(), troubles);
    const auto running = [&](const std::vector<pid_t>& pids) {
      if (options.on_survivors && !pids.empty()) options.on_survivors(pids);
    };
    result.exit_status = (*holder)->wait({Signals::program_ended, running, Signals::asked});
  }
  result.run_s = static_cast<double>(read_clocks().ns - plan.start.ns) / static_cast<double>(kNsPerSecond);
  Result<EmulateResult> done = finish(options, *program, plan, *folder, std::move(result));
  if (done) done->summary.warnings.insert(done->summary.warnings.end(), troubles.begin(), troubles.end());
  return done;
}

Result<EmulateResult> recover(const std::string& folder, const std::string& output) {
  const Result<WorkFolder> adopted = WorkFolder::adopt(folder);
  if (!adopted) return adopted.error();
  Result<RecordingPlan> plan = read_plan(adopted->path());
  if (!plan) return plan.error();
  if (!output.empty()) plan->recording.output = output;
  if (Status status = try_output(plan->recording.output); !status) return status.error();
  Result<RecordingSummary> summary = complete(*plan, *adopted);
  if (!summary) return summary.error();
  EmulateResult result;
  result.output = plan->recording.output;
  result.summary = std::move(*summary);
  return result;
}

}  // namespace ptd::emulate
