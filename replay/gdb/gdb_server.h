// GdbServer: GDB's remote protocol over a ReplaySession. It does no I/O: bytes of the peer go in, bytes for the peer come out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/gdb/monitor.h"
#include "replay/gdb/packets.h"
#include "replay/gdb/target_description.h"
#include "replay/replay_session.h"

namespace ptd::replay {

/// Serves one peer:
///
///     while (!server.done()) {
///       wait for input, but not while server.running();
///       server.receive(input);
///       server.work();
///       send(server.take_output());
///     }
///
/// The peer is not trusted: any bytes may come in. Each call does bounded work (a move of the monitor up to minutes, see set_input()), and
/// what is kept for the peer is bounded. Sources:
/// [GDB] "Remote Protocol", "Branch Trace Format". Not thread-safe. The recording must outlive it.
class GdbServer {
 public:
  static constexpr size_t kMostMemoryBytes = 1U << 14, kMostTransferBytes = 1U << 15, kMostBreakpoints = 1U << 16;

  /// `symbol_folder`: see Monitor.
  GdbServer(const Recording& recording, const ReplayFilter& filter, const std::string& symbol_folder);

  void receive(std::string_view bytes) { reader_.add(bytes); }
  /// `input`: returns the bytes that have arrived, without waiting for any. A long move of the monitor looks for an interrupt in them.
  void set_input(std::function<std::string()> input) {
    monitor_.set_interrupted([this, input = std::move(input)] {
      receive(input());
      return reader_.take_interrupt();
    });
  }
  /// Handles what has arrived, and continues a run for a short time.
  void work();
  [[nodiscard]] bool running() const { return running_; }
  /// Returns whether packets wait for another call of work().
  [[nodiscard]] bool has_input() const { return !running_ && !reader_.empty(); }
  /// Returns true after the peer has ended the session.
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] std::string take_output() { return std::exchange(output_, {}); }
  [[nodiscard]] ReplaySession& session() { return session_; }

 private:
  struct Range {
    uint64_t first = 0, end = 0;
  };
  void send(std::string_view text);
  void handle(std::string_view packet);
  std::optional<std::string> answer(std::string_view packet);
  std::optional<std::string> answer_letter(std::string_view packet);
  std::string query(std::string_view packet);
  std::string set(std::string_view packet);
  std::string supported(std::string_view features);
  std::string transfer(std::string_view request);
  std::optional<std::string> document(std::string_view object, std::string_view annex);
  std::string threads(bool first);
  std::string thread_info(std::string_view id);
  std::string select(std::string_view text);
  std::string registers();
  std::string one_register(std::string_view text);
  std::string memory(std::string_view text);
  std::string breakpoint(std::string_view text, bool insert);
  std::string monitor(std::string_view text);
  std::string branch_trace_setting(std::string_view text);
  std::optional<std::string> resume_all(std::string_view actions);
  /// Which threads a packet resumes.
  struct Resumed {
    ThreadKey step = kNoThread;   // of RunRequest
    std::vector<ThreadKey> only;  // of RunRequest
    std::optional<Range> range;   // of addresses: the step goes on within it
  };
  std::optional<std::string> resume(bool backward, Resumed resumed);
  [[nodiscard]] Resumed legacy(bool steps) const;
  [[nodiscard]] bool is_resumed(ThreadKey thread) const;
  [[nodiscard]] RunRequest request();
  void continue_run();
  void stop(const RunResult& result);
  void report(const RunResult& result);
  bool follow_program(const RunResult& result);
  bool ends_after_exec(RunResult& held);
  void warn_of_program();
  std::string stop_reply(const char* signal, const std::string& reason);
  [[nodiscard]] ThreadKey chosen(int64_t id) const;
  [[nodiscard]] ThreadKey selected() const;
  [[nodiscard]] ThreadKey stepping(int64_t id) const;
  [[nodiscard]] std::optional<int64_t> take_thread(std::string_view& text) const;

  ReplaySession session_;
  TargetDescription target_;
  Monitor monitor_;
  PacketReader reader_;
  std::string output_, last_reply_;
  bool acknowledges_ = true, running_ = false, done_ = false, backward_ = false;
  bool tells_breakpoints_ = false;                         // the peer understands swbreak and hwbreak
  std::set<ThreadKey> traced_;                             // of which the peer has the branch trace
  uint64_t branch_bytes_ = uint64_t{64} << 10;             // size of the branch trace buffer
  ThreadKey general_ = kNoThread, continued_ = kNoThread;  // of Hg and Hc
  ThreadKey selected_ = kNoThread;                         // see selected()
  bool arrives_ = false;                                   // the next step reports the position, and does not move
  Resumed resumed_;
  // The program whose symbols the peer has. Of one process, an exec event tells it of another one; of several, a message does.
  SpaceId program_space_ = kNoSpace;
  std::string program_;
  bool follows_programs_ = false, one_process_ = false;
  std::optional<RunResult> held_;                    // the stop that the exec event replaced
  std::set<std::pair<char, uint64_t>> breakpoints_;  // type '0' or '1', address
  size_t listed_ = 0;                                // threads sent so far
  std::string document_name_, document_;             // the last one transferred
};

}  // namespace ptd::replay
