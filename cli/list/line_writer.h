// LineWriter: the columns of `ptdecode script`, one stream's context at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "analysis/names/branch_kind.h"
#include "cli/cache/node_cache.h"
#include "cli/cache/source_cache.h"
#include "cli/cache/symbol_cache.h"
#include "cli/list/call_stacks.h"
#include "cli/options/script_options.h"
#include "cli/text/output.h"
#include "ptdecode/disassembler.h"
#include "ptdecode/guest.h"
#include "ptdecode/recording.h"
#include "recording/data/other_events.h"

namespace ptd::cli {

class JsonLine;

/// A branch as it is listed. `from` / `to` absent: outside of what was traced.
struct BranchLine {
  std::optional<Ip> from, to;
  BranchKind kind;
  Bytes insn;  ///< bytes of the branch instruction, may be empty
  uint16_t block_flags = 0;
};

/// Where a branch is in a tree of calls: `depth` levels deep, entering (or leaving) the function at `ip`, which may be unknown.
struct TreePlace {
  std::optional<Ip> ip;
  size_t depth = 0;
  bool leaves = false;
  std::string_view note;
};

/// Not thread-safe; one per stream.
class LineWriter {
 public:
  LineWriter(const Recording& recording, const ScriptOptions& options, int32_t cpu);

  /// For lines of several cpus, before set_mark().
  void set_cpu(int32_t cpu) { cpu_ = cpu; }
  /// The context from here on.
  void set_mark(const Mark& mark);
  [[nodiscard]] const Mark& mark() const { return mark_; }
  /// Whether the context passes --pid, --tid, --comm and --time.
  [[nodiscard]] bool wanted() const { return wanted_; }
  /// Whether --symbols lets this address pass.
  bool symbol_wanted(Ip ip);
  /// As SymbolCache::function_at().
  uint64_t function_at(Ip ip) { return symbols_.function_at(mark_.space, ip, mark_.time.first); }

  CallStacks::Target call_target(Ip ip);
  /// As Symbolizer::landing_of(); 0: none.
  uint64_t landing_of(Ip ip) { return symbols_.landing_of(mark_.space, ip, mark_.time.first); }

  void instruction(TextBuffer& out, Ip ip, Bytes insn, const CachedInsn& cached, uint16_t block_flags, uint64_t period);
  void branch(TextBuffer& out, const BranchLine& line);
  void event(TextBuffer& out, const Event& event);
  void gap(TextBuffer& out, const Gap& gap);
  /// Branches of one flow, the oldest first, as perf lists a branch stack: the newest first.
  void branch_stack(TextBuffer& out, std::span<const std::pair<Ip, Ip>> branches);
  /// A sample of another event of the recording, in its own context: set_mark() it first.
  void sample(TextBuffer& out, const OtherEvent& event, std::string_view name);
  /// One line of a call tree, with ScriptOptions::tree_fields.
  void call_tree(TextBuffer& out, const BranchLine& line, const TreePlace& place);

 private:
  void prefix(TextBuffer& out);
  void make_prefix();
  void address(TextBuffer& out, Ip ip, bool padded, Field field = Field::ip);
  void symbol(TextBuffer& out, Ip ip);
  void source_line(TextBuffer& out, Ip ip);
  void insn_columns(TextBuffer& out, Ip ip, Bytes insn);
  void branch_details(TextBuffer& out, const BranchLine& line);
  void mark_column(TextBuffer& out, uint16_t block_flags);
  void event_name(TextBuffer& out, std::string_view name);
  void columns_of(TextBuffer& out, std::string_view name, uint64_t period, std::string_view flags);
  bool context_wanted();
  [[nodiscard]] Guest guest() const;
  void make_guest_prefix();
  struct JsonNames {
    std::string_view ip, symbol, offset, module, source;
  };
  void make_json_prefix();
  void json_context(JsonLine& line);
  void json_place(JsonLine& line, Ip ip, const JsonNames& names, Field address = Field::ip);
  void json_insn(JsonLine& line, Ip ip, Bytes insn);
  void json_instruction(TextBuffer& out, Ip ip, Bytes insn, const CachedInsn& cached, uint16_t block_flags);
  void json_branch(TextBuffer& out, const BranchLine& line);
  void json_event(TextBuffer& out, const Event& event);
  void json_gap(TextBuffer& out, const Gap& gap);
  void json_sample(TextBuffer& out, const OtherEvent& event, std::string_view name);

  const Recording& recording_;
  const ScriptOptions& options_;
  Fields fields_;  ///< of the line that is written
  int32_t cpu_;
  SymbolCache symbols_;
  SourceCache sources_;
  Disassembler disassembler_;
  Mark mark_;
  std::string comm_;
  TextBuffer prefix_;
  const std::string instructions_, branches_;  ///< names of the events
  size_t name_columns_ = 0;
  bool prefix_made_ = false, wanted_ = true, needs_comm_ = false;
};

/// Seconds with six digits (rounded down as perf does) or nine.
void append_time(TextBuffer& out, TimeNs time, bool nanoseconds);
/// The time of day, local: "2026-11-21 14:03:05.123456", as --time takes it.
void append_time_of_day(TextBuffer& out, TimeNs time, int64_t wall_offset_ns, bool nanoseconds);
/// What a sample's payload says: " name=value ...".
void append_sample_fields(TextBuffer& out, const OtherEvent& event);
/// The words of --itrace-independent details of an event: "value 0x10 ...".
void append_event_details(TextBuffer& out, const Event& event);

}  // namespace ptd::cli
