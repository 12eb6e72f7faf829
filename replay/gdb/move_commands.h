// The commands of the monitor that move by calls and lines: GDB's own need the stack pointer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "replay/call_moves.h"

namespace ptd::replay {

/// The help of these commands, a line each.
extern const std::string_view kMoveHelp;
/// The same commands for the user: GDB functions `replay-next` and so on, which also make GDB forget the old registers.
[[nodiscard]] std::string move_script();

/// Executes a command and returns what it prints; nothing if `verb` is none of these. Sets `moved` if the position changed.
std::optional<std::string> move_command(ReplaySession& session, CallMoves& moves, std::string_view verb, ThreadKey thread, bool& moved);
struct CodePlace {
  Ip ip;
  /// A call comes before it, whose function and line are meant: those of `ip` may be others if the call does not return.
  bool is_return = false;
};
/// Returns "0x401136 in leaf (loops.c:12)" for an address of a thread's code.
[[nodiscard]] std::string place_text(ReplaySession& session, CallMoves& moves, ThreadKey thread, const CodePlace& code);

}  // namespace ptd::replay
