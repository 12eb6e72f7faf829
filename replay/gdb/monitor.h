// Monitor: the commands that GDB passes through with `monitor`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/call_moves.h"

namespace ptd::replay {

/// Executes commands and returns what they print. Not thread-safe. The session must outlive it.
class Monitor {
 public:
  /// `folder`: in which `symbols` writes its files, "" for none. The words of a peer never choose it.
  Monitor(ReplaySession& session, std::string folder, uint16_t elf_machine, bool is_64bit)
      : session_(&session), moves_(session), folder_(std::move(folder)), elf_machine_(elf_machine), is_64bit_(is_64bit) {}

  /// See CallMoves::set_interrupted().
  void set_interrupted(std::function<bool()> interrupted) { moves_.set_interrupted(std::move(interrupted)); }
  /// `thread`: the one that the debugger has selected. If the recording has several, the output names it.
  std::string execute(std::string_view command, ThreadKey thread);
  /// Times at which a run stops; see RunRequest::times.
  [[nodiscard]] std::vector<TimeNs>& stops() { return stops_; }
  /// Returns whether the last command moved the position.
  [[nodiscard]] bool moved() const { return moved_; }
  /// Returns the process that `symbols` last wrote a script for; kNoSpace: none.
  [[nodiscard]] SpaceId symbol_space() const { return symbol_space_; }

 private:
  std::string of(ThreadKey thread) const;
  std::string time(ThreadKey thread);
  std::string seek(std::string_view word);
  std::string percent(std::string_view word);
  std::string stop_at(std::string_view word);
  std::string list(FlowItem kind);
  std::string marks(ThreadKey thread);
  std::string versions(std::string_view word, ThreadKey thread);
  std::string symbols(ThreadKey thread);
  std::string item_text(const ReplayCursor& cursor) const;
  std::string after_move();

  ReplaySession* session_;
  CallMoves moves_;
  std::string folder_;
  uint16_t elf_machine_;
  bool is_64bit_;
  SpaceId symbol_space_ = kNoSpace;
  bool moved_ = false;
  std::vector<TimeNs> stops_;
};

}  // namespace ptd::replay
