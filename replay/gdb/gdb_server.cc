// GdbServer: see gdb_server.h. This file: packets in general, threads, registers, memory, breakpoints, and runs.
#include "replay/gdb/gdb_server.h"

#include <algorithm>

#include "replay/text.h"

namespace ptd::replay {

namespace {

constexpr const char* kOk = "OK";

TargetDescription description_of(ReplaySession& session) {
  if (const auto place = session.place_of(session.current())) return TargetDescription(machine_of(place->block->mode));
  return TargetDescription(session.recording().arm_config(0) != nullptr ? Machine::aarch64 : Machine::amd64);
}

}  // namespace

GdbServer::GdbServer(const Recording& recording, const ReplayFilter& filter, const std::string& symbol_folder)
    : session_(recording, filter),
      target_(description_of(session_)),
      monitor_(session_, symbol_folder, target_.elf_machine(), target_.word_bytes() == 8),
      one_process_(session_.threads().pids().size() == 1) {
  if (const auto place = session_.place_of(session_.current())) program_space_ = place->space;
}

void GdbServer::send(std::string_view text) {
  last_reply_ = packet_of(text);
  output_ += last_reply_;
}

void GdbServer::work() {
  constexpr int kMostPackets = 64;
  if (running_ && reader_.take_interrupt()) {
    running_ = false;
    send(stop_reply("02", ""));
  }
  for (int i = 0; i < kMostPackets && !running_ && !done_ && !reader_.empty(); ++i) {
    const PacketReader::Item item = reader_.next();
    switch (item.kind) {
      case PacketReader::Kind::packet:
        if (acknowledges_) output_ += '+';
        handle(item.text);
        break;
      case PacketReader::Kind::bad:
        if (acknowledges_) output_ += '-';
        break;
      case PacketReader::Kind::repeat:
        if (acknowledges_) output_ += last_reply_;
        break;
      default:
        break;  // an interrupt while nothing runs
    }
  }
  if (running_) continue_run();
}

void GdbServer::handle(std::string_view packet) {
  if (packet == "QStartNoAckMode") {
    send(kOk);
    acknowledges_ = false;
    reader_.set_checked(false);
    return;
  }
  if (const auto reply = answer(packet)) send(*reply);
}

std::optional<std::string> GdbServer::answer(std::string_view packet) {
  if (packet == "?") return stop_reply("05", "");
  if (packet == "bs") return resume(true, legacy(true));
  if (packet == "bc") return resume(true, legacy(false));
  if (packet == "vCont?") return "vCont;c;C;s;S;r";
  if (take(packet, "vCont;")) return resume_all(packet);
  if (packet.starts_with("vKill") || packet == "k") {
    done_ = true;
    return packet == "k" ? std::nullopt : std::optional<std::string>(kOk);
  }
  if (packet.starts_with("v") || packet.empty()) return "";
  if (packet.starts_with("q")) return query(packet.substr(1));
  if (packet.starts_with("Q")) return set(packet.substr(1));
  return answer_letter(packet);
}

std::optional<std::string> GdbServer::answer_letter(std::string_view packet) {
  const char letter = packet.front();
  std::string_view rest = packet.substr(1);
  switch (letter) {
    case 'g':
      return registers();
    case 'p':
      return one_register(rest);
    case 'G':
    case 'P':
    case 'M':
    case 'X':
      return kError;  // the past does not change
    case 'm':
      return memory(rest);
    case 'H':
      return select(rest);
    case 'T': {
      const auto id = take_thread(rest);
      if (!id || !rest.empty() || !session_.threads().contains(*id)) return kError;
      selected_ = *id;
      return kOk;
    }
    case 'Z':
    case 'z':
      return breakpoint(rest, letter == 'Z');
    case 's':
      return rest.empty() ? resume(false, legacy(true)) : kError;  // an address would be a jump
    case 'c':
      return rest.empty() ? resume(false, legacy(false)) : kError;
    case 'S':
      return rest.find(';') == std::string_view::npos ? resume(false, legacy(true)) : kError;
    case 'C':
      return rest.find(';') == std::string_view::npos ? resume(false, legacy(false)) : kError;
    case 'D':
      done_ = true;
      return kOk;
    default:
      return "";
  }
}

// Threads

std::optional<int64_t> GdbServer::take_thread(std::string_view& text) const {
  if (take(text, "-1")) return -1;
  const auto id = take_hex(text);
  if (!id || *id > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(*id);
}

ThreadKey GdbServer::chosen(int64_t id) const { return id > 0 ? id : session_.current(); }

// The thread that the user works with. Neither qRcmd nor the `bs` of a reverse-stepi names it, and Hg is for the registers that GDB reads
// last:
// after `info threads`, those of the last thread. `thread N` asks whether the thread is alive (T), and GDB selects the thread of a stop.
ThreadKey GdbServer::selected() const { return selected_ > 0 ? selected_ : session_.current(); }

// Without a thread, the next instruction of any thread is a step.
ThreadKey GdbServer::stepping(int64_t id) const {
  if (id == -1) return kAnyThread;
  return id > 0 ? id : selected();
}

std::string GdbServer::select(std::string_view text) {
  if (text.empty()) return kError;
  const char what = text.front();
  text.remove_prefix(1);
  const auto id = take_thread(text);
  if (!id || !text.empty() || (*id > 0 && !session_.threads().contains(*id))) return kError;
  if (what == 'g') {
    general_ = *id;
  } else if (what == 'c') {
    continued_ = *id;
  } else {
    return kError;
  }
  return kOk;
}

std::string GdbServer::threads(bool first) {
  constexpr size_t kOnce = 256;
  if (first) listed_ = 0;
  const auto& all = session_.threads().all();
  if (listed_ >= all.size()) return "l";
  std::string text = "m";
  auto at = std::next(all.begin(), static_cast<std::ptrdiff_t>(listed_));
  for (size_t i = 0; i < kOnce && at != all.end(); ++i, ++at, ++listed_)
    text += (i == 0 ? "" : ",") + hex(static_cast<uint64_t>(at->first)).substr(2);
  return text;
}

std::string GdbServer::thread_info(std::string_view id) {
  const auto thread = take_thread(id);
  if (!thread || !session_.threads().contains(*thread)) return kError;
  return to_hex(session_.threads().name(*thread, session_.cursor().time()));
}

// Registers, memory, breakpoints

std::string GdbServer::registers() {
  const auto place = session_.place_of(chosen(general_));
  return target_.all_registers(place ? &place->ip.value : nullptr);
}

std::string GdbServer::one_register(std::string_view text) {
  const auto number = take_hex(text);
  if (!number || !text.empty()) return kError;
  const auto place = session_.place_of(chosen(general_));
  const std::string value = target_.one_register(*number, place ? &place->ip.value : nullptr);
  return value.empty() ? kError : value;
}

std::string GdbServer::memory(std::string_view text) {
  const auto address = take_hex(text);
  if (!address || !take(text, ",")) return kError;
  const auto size = take_hex(text);
  if (!size || !text.empty()) return kError;
  std::string bytes(std::min<uint64_t>(*size, kMostMemoryBytes), '\0');
  const size_t known = session_.read(chosen(general_), Ip{*address}, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  if (known == 0 && *size != 0) return kError;
  return to_hex(std::string_view(bytes).substr(0, known));
}

std::string GdbServer::breakpoint(std::string_view text, bool insert) {
  if (text.size() < 2 || (text.front() != '0' && text.front() != '1')) return "";  // no watchpoints: a trace has no data
  const char type = text.front();
  text.remove_prefix(1);
  if (!take(text, ",")) return kError;
  const auto address = take_hex(text);
  if (!address || !text.starts_with(",") || text.find(';') != std::string_view::npos) return kError;
  if (insert) {
    if (breakpoints_.size() >= kMostBreakpoints) return kError;
    breakpoints_.emplace(type, *address);
    session_.run().breaks().add(Ip{*address});
    return kOk;
  }
  breakpoints_.erase({type, *address});
  if (!breakpoints_.contains({type == '0' ? '1' : '0', *address})) session_.run().breaks().remove(Ip{*address});
  return kOk;
}

// Runs

// ACTION[:THREAD];... An action without a thread is for all threads that no other action names. The whole recording moves, so the first
// action that steps decides; without one, all continue.
std::optional<std::string> GdbServer::resume_all(std::string_view actions) {
  Resumed resumed;
  bool steps = false, all = false;
  do {
    const size_t end = std::min(actions.find(';'), actions.size());
    std::string_view action = actions.substr(0, end);
    actions.remove_prefix(std::min(end + 1, actions.size()));
    if (action.empty()) return kError;
    const char letter = action.front();
    action.remove_prefix(1);
    std::optional<Range> range;
    if (letter == 'S' || letter == 'C') {
      if (!take_hex(action)) return kError;
    } else if (letter == 'r') {
      const auto first = take_hex(action);
      if (!first || !take(action, ",")) return kError;
      const auto last = take_hex(action);
      if (!last) return kError;
      range = Range{*first, *last};
    } else if (letter != 's' && letter != 'c') {
      return kError;
    }
    int64_t id = -1;
    if (take(action, ":")) {
      const auto thread = take_thread(action);
      if (!thread || (*thread > 0 && !session_.threads().contains(*thread))) return kError;
      id = *thread;
    }
    if (!action.empty()) return kError;
    all = all || id == -1;
    resumed.only.push_back(id > 0 ? id : selected());
    if (steps || letter == 'c' || letter == 'C') continue;
    steps = true;
    resumed.step = stepping(id);
    resumed.range = range;
  } while (!actions.empty());
  if (all) resumed.only.clear();
  return resume(false, std::move(resumed));
}

// The packets s, c, bs and bc resume the thread that Hc chose, and without one, all.
GdbServer::Resumed GdbServer::legacy(bool steps) const {
  Resumed resumed;
  if (steps) resumed.step = stepping(continued_);
  if (continued_ > 0) resumed.only = {continued_};
  return resumed;
}

bool GdbServer::is_resumed(ThreadKey thread) const {
  return resumed_.only.empty() || std::binary_search(resumed_.only.begin(), resumed_.only.end(), thread);
}

RunRequest GdbServer::request() {
  RunRequest request;
  request.backward = backward_;
  request.step = resumed_.step;
  request.resumed = resumed_.step > kNoThread ? resumed_.step : session_.current();
  request.only = resumed_.only;
  request.times = monitor_.stops();
  if (follows_programs_) request.space = program_space_;
  return request;
}

std::optional<std::string> GdbServer::resume(bool backward, Resumed resumed) {
  if (session_.current() == kNoThread) return stop_reply("05", backward ? "replaylog:begin;" : "replaylog:end;");
  std::sort(resumed.only.begin(), resumed.only.end());
  resumed_ = std::move(resumed);
  // GDB takes the stop of a thread that it did not resume for an error of its own.
  const bool other = !is_resumed(session_.current());
  if (other) session_.set_current(resumed_.step > kNoThread ? resumed_.step : resumed_.only.front());
  if (auto held = std::exchange(held_, std::nullopt); held && backward == backward_) {
    if (other) held->reason = StopReason::stepped;
    if (ends_after_exec(*held)) return report(*held), std::nullopt;
  }
  // GDB selects another thread at a stop only. Signal 0: it takes the signal of a step for the end of the step.
  if (std::exchange(arrives_, false) && resumed_.step != kNoThread) return stop_reply("00", "");
  backward_ = backward;
  session_.run().begin(request());
  running_ = true;
  return std::nullopt;
}

void GdbServer::continue_run() {
  constexpr int kMostSteps = 1024;
  for (int i = 0; i < kMostSteps; ++i) {
    const RunResult result = session_.run().go_on();
    session_.moved();
    if (result.reason == StopReason::budget) return;
    const auto& range = resumed_.range;
    if (result.reason != StopReason::stepped || !range || resumed_.step == kAnyThread) return stop(result);
    const auto place = session_.place_of(resumed_.step);
    if (!place || place->ip.value < range->first || place->ip.value >= range->end || session_.run().breaks().contains(place->ip))
      return stop(result);
    RunRequest further = request();
    further.keeps_notes = true;
    session_.run().begin(further);
  }
}

void GdbServer::stop(const RunResult& result) {
  running_ = false;
  resumed_.range.reset();
  session_.moved();
  const auto next = resumed_.step == kAnyThread && result.reason == StopReason::stepped ? session_.cursor().next_place() : std::nullopt;
  if (const ThreadKey thread = next ? next->thread : result.thread; thread != kNoThread && is_resumed(thread)) session_.set_current(thread);
  if (!follow_program(result)) report(result);
}

// GDB inserts the breakpoints of a program after its exec event: one at the next instruction ends the run, and backward, a step ends there.
bool GdbServer::ends_after_exec(RunResult& held) {
  if (held.reason != StopReason::space) return true;
  const auto place = session_.cursor().next_place();
  if (!place || !is_resumed(place->thread)) return false;
  if (backward_ && (resumed_.step == place->thread || resumed_.step == kAnyThread))
    held.reason = StopReason::stepped;
  else if (session_.run().breaks().contains(place->ip))
    held.reason = StopReason::breakpoint;
  return held.reason != StopReason::space;
}

// An exec event makes GDB read the symbols of the process's program, and resume. Returns whether it, or a run that goes on, replaces the
// stop.
bool GdbServer::follow_program(const RunResult& result) {
  const bool passed = result.reason != StopReason::space;
  const auto place = passed ? session_.place_of(session_.current()) : session_.cursor().next_place();
  if (!follows_programs_ || !place || place->space == program_space_ || place->space == kKernelSpace || place->space == kNoSpace)
    return false;
  program_space_ = place->space;
  program_ = session_.image_at(*place).program();
  held_ = result;
  // Without a file GDB keeps the names that it has; the run went no further than this.
  if (program_.empty()) {
    const std::string line = "thread " + std::to_string(place->thread) +
                             " executes another program, whose file is not at hand: load its names with 'monitor symbols'\n";
    send("O" + to_hex(line));
    if (!passed) return resume(backward_, resumed_), true;
    held_.reset();
    return false;
  }
  send(stop_reply("05", "exec:" + to_hex(program_) + ";"));
  return true;
}

// Of several processes GDB has the symbols of one.
void GdbServer::warn_of_program() {
  const auto place = session_.place_of(session_.current());
  if (!place || place->space == program_space_ || place->space == kKernelSpace || place->space == kNoSpace) return;
  const std::string program = session_.image_at(*place).program(), thread = "thread " + std::to_string(place->thread);
  if (!program_.empty() && program != program_) {
    const std::string end =
        one_process_ ? " up to the next stop\n" : ": 'ptdecode replay --pid " + std::to_string(place->pid) + "' has the right ones\n";
    send("O" + to_hex(thread + " executes " + plain(program.empty() ? "another program" : program) +
                      ", and the names of user code are those of " + plain(program_) + end));
  } else if (program_.empty() && monitor_.symbol_space() != kNoSpace && monitor_.symbol_space() != place->space) {
    send("O" + to_hex(thread + " is of another process than the names of user code: 'monitor symbols' writes its names\n"));
  }
}

void GdbServer::report(const RunResult& result) {
  if (!one_process_) warn_of_program();
  const auto say = [&](const std::string& line) { send("O" + to_hex(line + "\n")); };
  for (const ReplayNote& note : session_.run().notes())
    say("[" + seconds(note.time) + " s, thread " + std::to_string(note.thread) + "] " + note.text);
  if (const uint64_t more = session_.run().more_notes(); more != 0)
    say("and " + std::to_string(more) + " more gaps and asynchronous branches; 'monitor events' lists the nearest");
  if (const uint64_t windows = session_.run().windows(); windows != 0)
    say("passed " + std::to_string(windows) + (windows == 1 ? " edge" : " edges") +
        " between windows of trace (snapshots or AUX samples): what ran there is not traced");
  if (session_.run().passed_others())
    say("threads that GDB did not resume ran too, as the recording has one time: 'maintenance flush register-cache' shows where they are "
        "now");
  std::string reason;
  const char* signal = "05";
  if (result.reason == StopReason::breakpoint && tells_breakpoints_) {
    const auto place = session_.place_of(session_.current());
    const bool hardware = place && breakpoints_.contains({'1', place->ip.value}) && !breakpoints_.contains({'0', place->ip.value});
    reason = hardware ? "hwbreak:;" : "swbreak:;";
  } else if (result.reason == StopReason::edge) {
    reason = backward_ ? "replaylog:begin;" : "replaylog:end;";
  } else if (result.reason == StopReason::gap) {
    signal = "00";  // stops a step of a source line, too
  } else if (result.reason == StopReason::time) {
    signal = "00";
    const TimeNs now = session_.cursor().time();
    say("stopped at " + seconds(now) + " s; a stop-at time holds once");
    auto& stops = monitor_.stops();
    const auto nearest = std::min_element(stops.begin(), stops.end(), [&](TimeNs a, TimeNs b) {
      const auto far = [&](TimeNs time) { return std::max(time, now).value - std::min(time, now).value; };
      return far(a) < far(b);
    });
    if (nearest != stops.end()) stops.erase(nearest);
  }
  send(stop_reply(signal, reason));
}

std::string GdbServer::stop_reply(const char* signal, const std::string& reason) {
  const ThreadKey thread = session_.current();
  if (thread == kNoThread) return std::string("S") + signal;
  general_ = selected_ = thread;  // GDB selects the thread of a stop
  std::string text = std::string("T") + signal;
  if (const auto place = session_.place_of(thread))
    text += hex(target_.pc_register()).substr(2) + ":" + target_.one_register(target_.pc_register(), &place->ip.value) + ";";
  return text + "thread:" + hex(static_cast<uint64_t>(thread)).substr(2) + ";" + reason;
}

}  // namespace ptd::replay
