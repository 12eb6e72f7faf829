// LineWriter: the columns of `ptdecode script`, one stream's context at a time.
#pragma once

#include <optional>
#include <string>

#include "cli/branch_kind.h"
#include "cli/node_cache.h"
#include "cli/output.h"
#include "cli/script_options.h"
#include "cli/source_cache.h"
#include "cli/symbol_cache.h"
#include "decoder/insn/disassembler.h"
#include "recording/recording.h"

namespace ptd::cli {

/// A branch as it is listed. `from` / `to` absent: outside of what was traced.
struct BranchLine {
  std::optional<Ip> from, to;
  BranchKind kind;
  Bytes insn;  ///< bytes of the branch instruction, may be empty
  uint16_t block_flags = 0;
};

/// Not thread-safe; one per stream.
class LineWriter {
 public:
  LineWriter(const Recording& recording, const ScriptOptions& options, int32_t cpu);

  /// The context from here on.
  void set_mark(const Mark& mark);
  [[nodiscard]] const Mark& mark() const { return mark_; }
  /// Whether the context passes --pid, --tid, --comm and --time.
  [[nodiscard]] bool wanted() const { return wanted_; }
  /// Whether --symbols lets this address pass.
  bool symbol_wanted(Ip ip);

  void instruction(TextBuffer& out, Ip ip, Bytes insn, const CachedInsn& cached, uint16_t block_flags, uint64_t period);
  void branch(TextBuffer& out, const BranchLine& line);
  void event(TextBuffer& out, const Event& event);
  void gap(TextBuffer& out, const Gap& gap);
  /// One line of a call tree: `depth` levels deep, entering (or leaving) the function at `ip`.
  void call_tree(TextBuffer& out, Ip ip, size_t depth, bool leaves, std::string_view note, uint16_t block_flags);

 private:
  void prefix(TextBuffer& out);
  void make_prefix();
  void address(TextBuffer& out, Ip ip, bool padded);
  void symbol(TextBuffer& out, Ip ip);
  void source_line(TextBuffer& out, Ip ip);
  void insn_columns(TextBuffer& out, Ip ip, Bytes insn);
  void mark_column(TextBuffer& out, uint16_t block_flags);
  void event_name(TextBuffer& out, std::string_view name);
  bool context_wanted();

  const Recording& recording_;
  const ScriptOptions& options_;
  const int32_t cpu_;
  SymbolCache symbols_;
  SourceCache sources_;
  Disassembler disassembler_;
  Mark mark_;
  std::string comm_;
  TextBuffer prefix_;
  bool prefix_made_ = false, wanted_ = true, needs_comm_ = false;
};

/// Seconds with six digits (rounded down as perf does) or nine.
void append_time(TextBuffer& out, TimeNs time, bool nanoseconds);
/// The time of day, local: "2026-11-21 14:03:05.123456", as --time takes it.
void append_time_of_day(TextBuffer& out, TimeNs time, int64_t wall_offset_ns, bool nanoseconds);
/// The words of --itrace-independent details of an event: "value 0x10 ...".
void append_event_details(TextBuffer& out, const Event& event);

}  // namespace ptd::cli
