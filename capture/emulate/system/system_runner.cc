// Boots an emulated machine and makes a recording of it.
#include "capture/emulate/system/system_runner.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "capture/emulate/shared/plugin_place.h"
#include "capture/emulate/shared/pt_config.h"
#include "capture/emulate/shared/user_exec.h"
#include "capture/emulate/system/guest_archive.h"
#include "capture/emulate/system/kernel_image.h"
#include "capture/emulate/system/terminal_relay.h"
#include "capture/emulate/user_runner.h"
#include "capture/emulate/work_folder.h"
#include "capture/emulators/emulator_query.h"
#include "capture/emulators/run_command.h"
#include "image/base/environment.h"
#include "image/base/system_error.h"
#include "image/base/whole_file.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using emulators::MachineArch;
using Clock = std::chrono::steady_clock;

/// What differs between the machines.
struct MachineKind {
  MachineArch arch;
  const char *plugin, *guest, *package;
  std::initializer_list<const char*> words;
  const char* console;
};
const MachineKind kX86 = {MachineArch::x86_64,
                          "ptdecode-emulate-system.so",
                          "ptdecode-guest",
                          "qemu-system-x86",
                          {"-machine", "pc", "-cpu", "Skylake-Client-v1"},
                          "console=ttyS0 vdso=0 vdso32=0"};
const MachineKind kArm64 = {MachineArch::arm64,
                            "ptdecode-emulate-system-arm.so",
                            "ptdecode-guest-arm64",
                            "qemu-system-arm",
                            {"-machine", "virt,gic-version=3", "-cpu", "max"},
                            "console=ttyAMA0 vdso=0"};

/// What a machine needs, where it was found.
struct SystemParts {
  ProgramToRun program;
  MachineKind kind;
  std::string emulator, plugin, guest;  // the plugin's file, and the machine's init
  KernelImage kernel;
};

double seconds(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

std::string on_off(bool on) { return on ? "on" : "off"; }

// A comma ends a value in QEMU's options unless it is doubled.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out.append(c == ',' ? 2 : 1, c);
  return out;
}

std::string plugin_option(const SystemOptions& options, const SystemParts& parts, const std::string& work) {
  if (parts.kind.arch == MachineArch::arm64) return quoted(parts.plugin) + ",out=" + quoted(work);
  const PtEncoderOptions& pt = options.pt;
  return quoted(parts.plugin) + ",out=" + quoted(work) + ",boot=" + on_off(options.boot) +
         ",truth=" + on_off(!options.truth_folder.empty()) + ",retcomp=" + on_off(pt.return_compression) +
         ",long_tnt=" + on_off(pt.long_tnt) + ",mtc=" + on_off(pt.mtc) + ",mtc_period=" + std::to_string(pt.mtc_period) +
         ",cyc=" + on_off(pt.cyc) + ",cyc_threshold=" + std::to_string(pt.cyc_threshold) +
         ",psb_bytes=" + std::to_string(pt.psb_period_bytes);
}

// One thread runs all cpus, and time is the number of executed instructions: the plugin's clock is then the guest's. While all cpus are
// idle, time jumps to the next timer.
Words emulator_words(const SystemOptions& options, const SystemParts& parts, const GuestConfig& config, int channel) {
  const std::string& work = config.work;
  const auto share = [](const std::string& name, const std::string& path, bool writable) {
    return Words{"-fsdev",
                 "local,id=" + name + ",path=" + quoted(path) + ",security_model=none,multidevs=remap" + (writable ? "" : ",readonly=on"),
                 "-device", "virtio-9p-pci,fsdev=" + name + ",mount_tag=" + name};
  };
  Words words = {parts.emulator,
                 "-m",
                 std::to_string(options.memory_bytes >> 20) + "M",
                 "-smp",
                 std::to_string(options.cpus),
                 "-accel",
                 "tcg,thread=single,tb-size=512",
                 "-icount",
                 "shift=3,sleep=off",
                 "-rtc",
                 "clock=vm",
                 "-nodefaults",
                 "-display",
                 "none",
                 "-no-reboot",
                 "-serial",
                 "file:" + quoted(work) + "/console",
                 "-kernel",
                 parts.kernel.path,
                 "-initrd",
                 work + "/initramfs",
                 "-append",
                 std::string(parts.kind.console) + " quiet panic=-1",
                 "-device",
                 "virtio-serial-pci",
                 "-chardev",
                 "socket,id=channel,fd=" + std::to_string(channel),
                 "-device",
                 std::string("virtserialport,chardev=channel,name=") + kGuestPort,
                 "-plugin",
                 plugin_option(options, parts, work)};
  words.insert(words.end(), parts.kind.words.begin(), parts.kind.words.end());
  for (const Words& more : {share("host", "/", false), share("work", work, true)}) words.insert(words.end(), more.begin(), more.end());
  if (config.modules.empty()) return words;
  const Words more = share("modules", parts.kernel.modules, false);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

GuestConfig config_of(const SystemOptions& options, const SystemParts& parts, const std::string& work) {
  GuestConfig config;
  std::error_code error;
  config.program = fs::absolute(parts.program.path, error).string();
  config.words = parts.program.words;
  for (char** at = environment::variables(); *at != nullptr; ++at) config.variables.emplace_back(*at);
  config.folder = fs::current_path(error).string();
  config.work = work;
  config.guest = parts.guest;
  if (!fs::equivalent(parts.kernel.modules, "/lib/modules/" + parts.kernel.release, error)) config.modules = parts.kernel.release;
  config.events = options.events;
  for (int fd = 0; fd < 3; ++fd) config.terminal[fd] = isatty(fd) != 0;
  winsize size{};
  for (int fd = 0; fd < 3; ++fd) {
    if (!config.terminal[fd] || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) continue;
    config.rows = size.ws_row;
    config.columns = size.ws_col;
    break;
  }
  config.trace_config = pt_config(options.pt, options.psb_period);
  return config;
}

/// The last lines of a text file, for a message: without what QEMU always says of this cpu.
std::string tail_of(const std::string& path) {
  constexpr size_t kMostLines = 4;
  std::vector<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.find("TCG doesn't support requested feature") != std::string::npos) continue;
    lines.push_back(line);
    if (lines.size() > kMostLines) lines.erase(lines.begin());
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : " | ") + line;
  return text;
}

/// A pair of connected sockets. The machine's end is inherited by the emulator.
class ChannelPair {
 public:
  ChannelPair() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
    own_ = ends[0];
    machine_ = ends[1];
    (void)fcntl(own_, F_SETFD, FD_CLOEXEC);
  }
  ~ChannelPair() {
    close_machine();
    if (own_ >= 0) close(own_);
  }
  ChannelPair(const ChannelPair&) = delete;
  ChannelPair& operator=(const ChannelPair&) = delete;
  void close_machine() {
    if (machine_ >= 0) close(machine_);
    machine_ = -1;
  }
  [[nodiscard]] int own() const { return own_; }
  [[nodiscard]] int machine() const { return machine_; }

 private:
  int own_ = -1, machine_ = -1;
};

/// The emulator, on a thread that waits for it.
class Machine {
 public:
  /// `on_end` is called on another thread when it has ended.
  Machine(Words words, const std::string& log, std::function<void()> on_end)
      : words_(std::move(words)), log_(log), on_end_(std::move(on_end)) {
    thread_ = std::thread([this] {
      emulators::CommandOptions options;
      options.see = [this](std::string_view text) { log_ << text << std::flush; };
      options.stop = [this] { return stop_.load(); };
      outcome_ = emulators::run_command(words_, options);
      on_end_();
    });
  }
  ~Machine() { (void)wait(true); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  /// Waits for its end, or ends it.
  const emulators::CommandOutcome& wait(bool end) {
    if (end) stop_ = true;
    if (thread_.joinable()) thread_.join();
    return outcome_;
  }

 private:
  const Words words_;
  std::ofstream log_;
  const std::function<void()> on_end_;
  std::atomic<bool> stop_ = false;
  emulators::CommandOutcome outcome_;
  std::thread thread_;
};

Status prepare(const SystemParts& parts, const GuestConfig& config) {
  const Result<Words> modules = early_modules(parts.kernel, parts.kind.arch);
  if (!modules) return modules.error();
  const std::string text = to_text(config);
  std::ofstream file(config.work + "/" + kGuestConfigFile, std::ios::binary);
  if (!(file << text << std::flush)) return system_error("cannot write to the working folder " + config.work, ErrorCode::write_failed);
  std::error_code error;
  fs::create_directory(config.work + "/guest", error);
  return write_guest_archive(config.work + "/initramfs", parts.guest, text, *modules);
}

Result<RelayOutcome> boot(const SystemOptions& options, const SystemParts& parts, const GuestConfig& config) {
  ChannelPair channel;
  if (channel.own() < 0) return system_error("cannot create a socket", ErrorCode::resources);
  const std::string log = config.work + "/emulator.log";
  TerminalRelay relay(channel.own());
  Machine machine(emulator_words(options, parts, config, channel.machine()), log, [&channel] { channel.close_machine(); });
  RelayOutcome outcome = relay.run();
  const emulators::CommandOutcome& ended = machine.wait(!outcome.finished);
  if (outcome.finished) return outcome;
  if (outcome.given_up) return Error{ErrorCode::cancelled, "record: ended before the program was done; there is no recording", 0};
  std::string why =
      outcome.failure.empty() ? "the emulated machine ended early (exit status " + std::to_string(ended.status) + ")" : outcome.failure;
  const std::string said = tail_of(log), console = tail_of(config.work + "/console");
  if (!said.empty()) why += "; the emulator says: " + said;
  if (!console.empty()) why += "; the end of its console: " + console;
  return Error{ErrorCode::start_failed, why, 0};
}

Result<SystemParts> find_parts(const SystemOptions& options) {
  const Result<ProgramToRun> program = find_program_to_run(options.command);
  if (!program) return program.error();
  const MachineKind& kind = program->machine == kMachineAarch64 ? kArm64 : kX86;
  if (kind.arch == MachineArch::arm64 && options.boot) return Error{ErrorCode::bad_option, "--boot is for x86-64 machines", 0};
  SystemParts parts{*program, kind, {}, {}, {}, {}};
  emulators::EmulatorSearch search;
  search.name = emulators::system_emulator(kind.arch);
  search.given = options.emulator;
  search.path = environment::search_path();
  search.built = emulators::built_emulators();
  const emulators::Emulator chosen = emulators::choose_emulator(search);
  if (chosen.fitness != emulators::Fitness::works) {
    if (!options.emulator.empty()) return Error{ErrorCode::bad_option, "--emulator: " + chosen.found, 0};
    return Error{ErrorCode::missing_program,
                 chosen.found + ": apt install " + kind.package +
                     " (Debian 13; Debian 12: from bookworm-backports), or without root: ptdecode emulator fetch" +
                     (kind.arch == MachineArch::arm64 ? " --machine arm64" : ""),
                 0};
  }
  parts.emulator = chosen.path;
  parts.plugin = find_plugin_file(options.plugin, kind.plugin);
  parts.guest = find_plugin_file({}, kind.guest);
  for (const auto& [path, name] : {std::pair{&parts.plugin, kind.plugin}, std::pair{&parts.guest, kind.guest}}) {
    if (path->empty())
      return Error{ErrorCode::missing_program,
                   std::string(name) + " was not found next to this program: this build has no system mode" +
                       (kind.arch == MachineArch::arm64 ? " for arm64 (building it needs g++-aarch64-linux-gnu)" : ""),
                   0};
  }
  const Result<KernelImage> kernel = find_kernel(default_kernel_search(options.kernel, kind.arch));
  if (!kernel) return kernel.error();
  parts.kernel = *kernel;
  return parts;
}

}  // namespace

Result<SystemResult> emulate_system(const SystemOptions& options) {
  const Result<SystemParts> parts = find_parts(options);
  if (!parts) return parts.error();
  std::error_code error;
  const std::string output = fs::absolute(options.output, error).string();
  if (Status status = check_output(output, kRecordingOutput); !status) return status.error();
  if (!options.truth_folder.empty() && !fs::create_directories(options.truth_folder, error) && error)
    return system_error("cannot create the folder " + options.truth_folder, ErrorCode::write_failed, error.value());
  const Result<WorkFolder> folder = WorkFolder::create(output, {});
  if (!folder) return folder.error();
  const auto run = [&]() -> Result<SystemResult> {
    const GuestConfig config = config_of(options, *parts, folder->path());
    if (Status status = prepare(*parts, config); !status) return status.error();
    const Clock::time_point begun = Clock::now();
    const Result<RelayOutcome> outcome = boot(options, *parts, config);
    if (!outcome) return outcome.error();
    if (const Result<bool> kept = keep_old_recording(output); !kept) return kept.error();
    SystemResult result;
    Result<SystemSummary> summary =
        write_system_recording({folder->path(), output, options.truth_folder, options.pt.psb_period_bytes, options.ete, options.command});
    if (!summary) return summary.error();
    result.summary = *summary;
    result.exit_status = outcome->exit_status.value_or(0);
    result.boot_s = seconds(begun, outcome->started);
    result.run_s = seconds(outcome->started, outcome->ended);
    result.end_s = seconds(outcome->ended, Clock::now());
    result.kernel = parts->kernel.release;
    result.messages = outcome->messages;
    return result;
  };
  Result<SystemResult> result = run();
  folder->remove();
  return result;
}

}  // namespace ptd::emulate
