// `ptdecode replay`: a recording in a debugger.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/calls/call_input.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/thread_filters.h"
#include "cli/report/missing_report.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "image/base/fd.h"
#include "replay/gdb/gdb_server.h"

namespace ptd::cli {

namespace {

struct ReplayWords {
  InputOptions input;
  std::string cpus, pids, tids, time, symbols;
  bool gdb = false;
  int port = -1;
};

/// A folder for symbol files: the user's, or one that is removed at the end.
class SymbolFolder {
 public:
  explicit SymbolFolder(const std::string& chosen) : path_(chosen) {
    if (!path_.empty()) return;
    std::error_code ignored;
    std::string name = (std::filesystem::temp_directory_path(ignored) / "ptdecode-replay-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return;
    path_ = name;
    temporary_ = true;
  }
  ~SymbolFolder() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove_all(path_, ignored);
  }
  SymbolFolder(const SymbolFolder&) = delete;
  SymbolFolder& operator=(const SymbolFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool temporary_ = false;
};

Error system_failure(const std::string& what) { return Error{ErrorCode::read_failed, what + ": " + std::strerror(errno), 0}; }

/// Takes SIGINT, SIGTERM and SIGHUP as events, so that what is to be removed at the end is removed. Those that are ignored stay ignored.
class EndSignals {
 public:
  EndSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction now {};  // a blocked signal is readable even if it is ignored
      if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
    }
    if (sigprocmask(SIG_BLOCK, &signals, nullptr) == 0) fd_ = Fd(signalfd(-1, &signals, SFD_CLOEXEC));
  }
  /// Waits until `in` is ready, at most `timeout_ms`, and returns whether it is; -1 on an error. Sets ended() if a signal has come.
  int wait(int in, int timeout_ms) {
    pollfd wanted[] = {{in, POLLIN, 0}, {fd_.get(), POLLIN, 0}};
    const int ready = poll(wanted, fd_.ok() ? 2 : 1, timeout_ms);
    if (signalfd_siginfo come{}; ready > 0 && wanted[1].revents != 0 && read(fd_.get(), &come, sizeof come) == sizeof come)
      number_ = static_cast<int>(come.ssi_signo);
    return ready > 0 ? wanted[0].revents != 0 : ready;
  }
  [[nodiscard]] bool ended() const { return number_ != 0; }
  [[nodiscard]] int exit_status() const { return ended() ? 128 + number_ : kExitOk; }

 private:
  Fd fd_;
  int number_ = 0;  ///< of the signal that came last
};

/// Waits on the loopback interface for one peer.
Result<Fd> accept_one(int port, EndSignals& signals) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  const int reuse = 1;
  if (!listener.ok()) return system_failure("--port");
  (void)setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener.get(), 1) != 0)
    return system_failure(fmt::format("--port {}", port));
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return system_failure("--port");
  say_on_error(fmt::format("ptdecode: waiting for a debugger: target remote 127.0.0.1:{}\n", ntohs(address.sin_port)));
  while (true) {
    (void)signals.wait(listener.get(), -1);
    if (signals.ended()) return Error{ErrorCode::cancelled, "--port: a signal ends the program", 0};
    Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.ok()) return peer;
    if (errno != EINTR && errno != ECONNABORTED) return system_failure("--port");
  }
}

/// Returns what has arrived; an interrupt if nothing can arrive any more.
std::string arrived(EndSignals& signals, int in) {
  constexpr const char* kInterrupt = "\x03";
  char buffer[1 << 12];
  if (const int ready = signals.wait(in, 0); ready <= 0) return signals.ended() ? kInterrupt : "";
  const ssize_t size = read(in, buffer, sizeof buffer);
  return size <= 0 || signals.ended() ? kInterrupt : std::string(buffer, static_cast<size_t>(size));
}

/// Exchanges bytes until the peer ends the session or goes away, or a signal ends the program.
void serve(replay::GdbServer& server, EndSignals& signals, int in, int out) {
  char buffer[1 << 16];
  server.set_input([&signals, in] { return arrived(signals, in); });
  while (!server.done()) {
    const int ready = signals.wait(in, server.running() ? 0 : -1);
    if ((ready < 0 && errno != EINTR) || signals.ended()) return;
    if (ready > 0) {
      const ssize_t size = read(in, buffer, sizeof buffer);
      if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) return;
      if (size > 0) server.receive({buffer, static_cast<size_t>(size)});
    }
    do {
      server.work();
      if (const std::string text = server.take_output(); !text.empty() && !write_all(out, text.data(), text.size())) return;
    } while (server.has_input() && !server.done() && !signals.ended());
  }
}

/// Says why there is nothing to replay: the gaps, and the files to supply.
int report_no_flow(const Recording& recording, replay::ReplayCursor cursor, bool filtered) {
  constexpr uint64_t kMostItems = 1U << 20;
  GapTally gaps;
  for (uint64_t i = 0; i < kMostItems && cursor.enter_next(); ++i) {
    if (cursor.item().kind == FlowItem::gap) gaps.add(cursor.gap());
    cursor.leave_forward();
  }
  uint64_t total_bytes = 0;
  for (const StreamInfo& stream : recording.streams()) total_bytes += stream.size_bytes;
  const int status = report_error(
      {ErrorCode::no_such_thread, filtered ? "replay: these threads have no flow at these times" : "replay: no instruction is known", 0});
  say_on_error(gap_summary(gaps, recording, total_bytes));
  return status;
}

/// Of user programs a debugger has one at a time, so one process is replayed: the first, unless filters choose. With a kernel's flow, all.
void choose_process(const Recording& recording, replay::ReplayFilter& filter) {
  if (!filter.cpus.empty() || !filter.pids.empty() || !filter.tids.empty()) return;
  replay::ReplaySession session(recording, filter);
  const std::vector<int32_t> pids = session.threads().pids();
  const auto first = session.place_of(session.current());
  if (pids.size() < 2 || !first || !session.memory().sections(kKernelSpace, first->time).empty()) return;
  filter.pids = {first->pid};
  std::string others;
  constexpr size_t kMostListed = 20;
  for (size_t i = 0, listed = 0; i < pids.size() && listed <= kMostListed; ++i) {
    if (pids[i] == first->pid) continue;
    others += ++listed > kMostListed ? " ..." : fmt::format("{}{}", others.empty() ? " " : ", ", pids[i]);
  }
  say_on_error(fmt::format("ptdecode: replays process {} ({}); --pid chooses another of this recording:{}\n", first->pid,
                           shown(recording.comm_at(first->tid, first->time)), others));
}

int run_replay(const ReplayWords& words) {
  ScriptOptions options;
  if (const Status status = parse_thread_filters({words.cpus, words.pids, words.tids}, options); !status)
    return report_error(status.error());
  if (const Status status = words.time.empty() ? Status{} : check_time_words(words.time); !status) return report_error(status.error());
  if (!words.gdb) return report_error({ErrorCode::bad_option, "replay: name the protocol: --gdb", 0});
  if (!words.symbols.empty() && !std::filesystem::is_directory(words.symbols))
    return report_error({ErrorCode::bad_option, "--symbol-dir " + words.symbols + ": no such folder", 0});
  Result<std::unique_ptr<Recording>> recording = open_traced(words.input);
  if (!recording) return report_error(recording.error());
  replay::ReplayFilter filter{{}, options.cpus, options.pids, options.tids};
  if (!words.time.empty()) {
    const Result<Interval> range = read_time(words.time, **recording);
    if (!range) return report_error(range.error());
    filter.time = *range;
  }
  choose_process(**recording, filter);
  const SymbolFolder folder(words.symbols);
  replay::GdbServer server(**recording, filter, folder.path());
  if (server.session().current() == replay::kNoThread)
    return report_no_flow(**recording, replay::ReplayCursor(server.session().cursor()),
                          !(words.cpus + words.pids + words.tids + words.time).empty());
  // Ctrl-C is for the debugger, which runs this program in its terminal and sends a packet.
  if (words.port < 0) std::signal(SIGINT, SIG_IGN);  // NOLINT
  EndSignals signals;
  if (words.port < 0) {
    serve(server, signals, 0, 1);
    return signals.exit_status();
  }
  const Result<Fd> peer = accept_one(words.port, signals);
  if (!peer) return signals.ended() ? signals.exit_status() : report_error(peer.error());
  serve(server, signals, peer->get(), peer->get());
  return signals.exit_status();
}

}  // namespace

Command add_replay(CLI::App& app) {
  auto words = std::make_shared<ReplayWords>();
  CLI::App& command = *app.add_subcommand("replay", "Step through a recording in a debugger, forward and backward");
  add_input_options(command, words->input);
  command.add_flag("--gdb", words->gdb, "serve GDB's remote protocol, on standard input and output unless --port is given");
  command.add_option("--port", words->port, "wait for one client on this port of 127.0.0.1 (0: any free port)")
      ->check(CLI::Range(0, 65535));
  add_thread_filters(command, words->cpus, words->pids, words->tids);
  command.add_option("--time", words->time, "from A to B: A,B in seconds; see 'ptdecode script --help'");
  command.add_option("--symbol-dir", words->symbols, "the folder for the files of 'monitor symbols' (default: a temporary one)");
  command.footer(
      "The recording holds the flow of instructions and the code, not data: the pc is known, all other registers are unavailable, and so "
      "is memory other than code and the read-only data of the recorded files. 'monitor help' in GDB lists the commands of the replay.\n"
      "Any user of this machine can connect to a port of 127.0.0.1.\n"
      "Examples:\n"
      "  gdb -ex 'target remote | ptdecode replay --gdb -i perf.data --tid 1234'\n"
      "  ptdecode replay --gdb --port 2345 --time 24.1,24.3");
  return [words] { return run_replay(*words); };
}

}  // namespace ptd::cli
