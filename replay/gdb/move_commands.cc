// Commands that move by calls and lines: see move_commands.h.
#include "replay/gdb/move_commands.h"

#include <algorithm>
#include <array>

#include "ptdecode/guest.h"
#include "replay/text.h"

namespace ptd::replay {

const std::string_view kMoveHelp =
    "next, step        to the next line of the function, or of its caller; step enters calls\n"
    "nexti             to the next instruction of the function, over calls and interrupts\n"
    "until             to a higher line of the function: past a loop\n"
    "finish            after the return of the function\n"
    "reverse-next, reverse-step, reverse-nexti, reverse-finish: the same backward; reverse-finish stops before the call\n"
    "backtrace         the open calls, as far back as the flow tells\n";

namespace {

struct Command {
  std::string_view verb;
  MoveResult (*move)(CallMoves&, ThreadKey);
};
constexpr std::array kCommands = {
    Command{"next", [](CallMoves& moves, ThreadKey thread) { return moves.next(thread, {MoveUnit::line}); }},
    Command{"step",
            [](CallMoves& moves, ThreadKey thread) {
              return moves.next(thread, {MoveUnit::line, true});
            }},
    Command{"nexti", [](CallMoves& moves, ThreadKey thread) { return moves.next(thread, {MoveUnit::instruction}); }},
    Command{"until",
            [](CallMoves& moves, ThreadKey thread) {
              return moves.next(thread, {MoveUnit::line, false, true});
            }},
    Command{"finish", [](CallMoves& moves, ThreadKey thread) { return moves.finish(thread); }},
    Command{"reverse-next", [](CallMoves& moves, ThreadKey thread) { return moves.reverse_next(thread, MoveUnit::line, false); }},
    Command{"reverse-step", [](CallMoves& moves, ThreadKey thread) { return moves.reverse_next(thread, MoveUnit::line, true); }},
    Command{"reverse-nexti", [](CallMoves& moves, ThreadKey thread) { return moves.reverse_next(thread, MoveUnit::instruction, false); }},
    Command{"reverse-finish", [](CallMoves& moves, ThreadKey thread) { return moves.reverse_finish(thread); }},
};

std::string_view reason_text(MoveResult::Why why) {
  switch (why) {
    case MoveResult::Why::breakpoint:
      return "stopped at a breakpoint\n";
    case MoveResult::Why::gap:
      return "stopped at a gap: flow is missing here; 'monitor gaps' says why\n";
    case MoveResult::Why::window:
      return "stopped at the edge of a window of trace (snapshot or AUX sample): what ran between two windows is not traced\n";
    case MoveResult::Why::edge:
      return "this is the end of the recorded flow in this direction\n";
    case MoveResult::Why::budget:
      return "not there yet: the same command goes on\n";
    case MoveResult::Why::unknown:
      return "the call of this function is not in the flow that was looked at: not moved\n";
    default:
      return "";
  }
}

std::string backtrace_text(ReplaySession& session, CallMoves& moves, ThreadKey thread) {
  constexpr size_t kMostFrames = 200;
  const Backtrace trace = moves.backtrace(thread);
  if (trace.frames.empty()) return "the thread has no instruction near here\n";
  std::string text;
  for (size_t i = 0; i < std::min(trace.frames.size(), kMostFrames); ++i) {
    const CallFrame& frame = trace.frames[i];
    if (frame.is_interrupted) text += "    <interrupt or signal>\n";
    const bool is_return = i != 0 && !frame.is_interrupted;
    text += "#" + std::to_string(i) + "  " + place_text(session, moves, thread, {frame.ip, is_return}) + "\n";
  }
  if (trace.frames.size() > kMostFrames) text += "and " + std::to_string(trace.frames.size() - kMostFrames) + " more\n";
  return text + (trace.is_whole ? "" : "callers whose call came before the last gap or window of trace, or long ago, are not known\n");
}

}  // namespace

std::string move_script() {
  std::string script;
  for (const Command& command : kCommands) {
    const std::string verb(command.verb);
    script += "define replay-" + verb + "\n  monitor " + verb +
              "\n  maintenance flush register-cache\n  maintenance flush dcache\n  frame\nend\n";
  }
  return script + "define replay-backtrace\n  monitor backtrace\nend\n";
}

std::string place_text(ReplaySession& session, CallMoves& moves, ThreadKey thread, const CodePlace& code) {
  std::string text = hex(code.ip);
  const auto place = session.place_of(thread);
  if (!place) return text;
  const uint64_t back = code.is_return ? 1 : 0;
  const Ip within{code.ip.value - back};
  const SpaceId space = space_at(place->space, within);
  const TimeNs when = session.code_time(*place);
  if (const auto symbol = session.recording().symbolizer().find(space, within, when)) {
    const uint64_t offset = symbol->offset_bytes + back;
    text += " in " + plain(symbol->name) + (offset != 0 ? "+" + hex(offset) : "");
  }
  const CallMoves::Line& line = moves.line_of(space, within, when);
  if (line.line == 0) return text;
  return text + " (" + plain(line.file.substr(line.file.rfind('/') + 1)) + ":" + std::to_string(line.line) + ")";
}

std::optional<std::string> move_command(ReplaySession& session, CallMoves& moves, std::string_view verb, ThreadKey thread, bool& moved) {
  if (verb == "backtrace" || verb == "bt") return backtrace_text(session, moves, thread);
  const auto command = std::find_if(kCommands.begin(), kCommands.end(), [verb](const Command& each) { return each.verb == verb; });
  if (command == kCommands.end()) return std::nullopt;
  const MoveResult result = command->move(moves, thread);
  moved = result.why != MoveResult::Why::unknown;
  const auto place = session.place_of(thread);
  return std::string(reason_text(result.why)) + (place ? "at " + place_text(session, moves, thread, {place->ip}) + "\n" : "");
}

}  // namespace ptd::replay
