// FunctionFinder: which function an address belongs to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "image/base/growing_cache.h"
#include "image/placed_name.h"
#include "ptdecode/code_view.h"
#include "ptdecode/function_table.h"
#include "ptdecode/symbols.h"

namespace ptd {

/// The function that an address belongs to.
struct FunctionAt {
  FunctionId id = kNoFunction;
  uint32_t module = 0;  ///< a number for the module; it means something to this finder only
  bool entry = false;   ///< the address is the function's first
  bool named = false;   ///< a symbol or .eh_frame gives its bounds; otherwise `id` is shared by all unnamed code of the module
  bool part = false;    ///< by .eh_frame, a compiler has split it off a function without a name
};

/// An answer of FunctionFinder.
struct FoundFunction : FunctionAt {
  Interval valid{kTimeMax, kTimeMin};  ///< moments at which the same question surely has this answer
};

/// Returns the moments at which functions of a segment may be looked up, at least one. `time`: AuxSegment::time. The moment that a stream's
/// flow has come to may lie outside of it, where clocks are damaged.
[[nodiscard]] constexpr Interval look_up_time(Interval time) { return {time.first, std::max(time.first, time.last)}; }

/// Remembers answers; one per thread. What a compiler split off a function (NAME.cold) counts as the function.
class FunctionFinder {
 public:
  FunctionFinder(const Symbolizer& symbolizer, Timeline timeline, FunctionTable& table)
      : symbolizer_(symbolizer), timeline_(std::move(timeline)), view_(timeline_), table_(table) {}
  FoundFunction find(SpaceId space, Ip ip, TimeNs when);
  /// Whose code is met from here on; no two processes share a space.
  void set_process(int32_t pid) { pid_ = pid; }
  /// Whether a function's name is that of code that returns in place of a RET: __x86_return_thunk, srso_return_thunk and others (linux
  /// "arch/x86/lib/retpoline.S"; gcc's -mfunction-return=thunk).
  [[nodiscard]] bool is_return_thunk(FunctionId id) const { return table_.info(id).name.find("return_thunk") != std::string::npos; }
  /// Whether a function's name is that of code that stands for an indirect jump: __x86_indirect_thunk_rax and others.
  [[nodiscard]] bool is_indirect_thunk(FunctionId id) const { return table_.info(id).name.starts_with("__x86_indirect_"); }
  /// Whether a function is a stub of a procedure linkage table. It may go on in the first entry of the table, which has no name.
  [[nodiscard]] bool is_plt_stub(FunctionId id) const { return table_.info(id).name.ends_with(kPltMark); }
  /// Whether code of a function is in slots of kprobes: a copy of a probed instruction, or what an optimised probe jumps to (linux
  /// "kernel/kprobes.c", kprobe_insn_slots).
  [[nodiscard]] bool is_probe_slot(FunctionId id, Ip ip) const {
    const auto is_slot = [](std::string_view name) { return name.ends_with("kprobe_insn_page") || name.ends_with("kprobe_optinsn_page"); };
    return is_kernel_half(ip) && is_slot(table_.info(id).name);
  }
  /// Whether a function saves the place that it returns to, for longjmp: setjmp, its other names, and PLT entries that jump to it.
  [[nodiscard]] bool is_setjmp(FunctionId id) const;
  /// Returns kBySyscall or kByInterrupt if a function of the kernel is where the processor enters it, by Linux' name of it (linux
  /// "arch/x86/entry/entry_64.S", "entry_64_compat.S", "entry_32.S", "arch/x86/include/asm/idtentry.h"); else 0.
  [[nodiscard]] int32_t entry_of(FunctionId id) const;
  [[nodiscard]] bool is_landing(SpaceId space, Ip ip, TimeNs when) const { return symbolizer_.is_landing(space, ip, when); }
  /// FlowStep::landing of a call or interrupt: `call` is an address of the instruction.
  [[nodiscard]] int32_t landing_of(SpaceId space, Ip call, Ip return_to, TimeNs when) const;
  /// Returns whether `ip` directly follows an ENDBR64 at the first address of function `id`, or what the kernel has replaced it by (linux
  /// arch/x86/include/asm/ibt.h). A direct call may skip it.
  [[nodiscard]] bool skips_endbr(FunctionId id, SpaceId space, Ip ip, TimeNs when);
  /// Returns whether a CALL ends directly before `ip`, in the bytes that the section was mapped with.
  [[nodiscard]] bool follows_call(SpaceId space, Ip ip, ExecMode mode, TimeNs when) const;
  /// Returns whether the code at `start`, which has no name, is a part of function `into`: direct jumps lead from it into the middle of the
  /// function. Limitation: only the first kMostWayInsns instructions are read.
  [[nodiscard]] bool leads_back(SpaceId space, Ip start, FunctionId into, ExecMode mode, TimeNs when);
  /// The function that begins at `ip`, in code that no symbol names.
  FunctionId unnamed_entry(SpaceId space, Ip ip, TimeNs when);

 private:
  static constexpr unsigned kEntryBits = 12;
  static constexpr size_t kMostWayInsns = 256;
  /// Where direct jumps lead out of unnamed code.
  struct WaysOut {
    std::vector<FunctionId> into;  ///< into the middle of these functions
    Interval valid{kTimeMax, kTimeMin};
  };
  [[nodiscard]] bool returns_from(const FoundFunction& callee) const;
  WaysOut ways_out(SpaceId space, Ip start, ExecMode mode, TimeNs when);
  Bytes code_at(SpaceId space, Ip ip, TimeNs when, Interval& valid);
  struct Entry {
    Ip ip;
    SpaceId space = kNoSpace;
    int32_t pid = -1;  ///< that the names of unnamed code are for
    FoundFunction found;
    FunctionId unnamed_entry = kNoFunction;  ///< the function that begins here; kNoFunction: it was not looked up
    WaysOut ways_out;                        ///< of code without a name, once it was looked up
  };
  Entry& entry_at(SpaceId space, Ip ip, TimeNs when);
  static constexpr uint64_t kEndbrBytes = 4;
  /// The bytes before `ip` that the section was mapped with, at most `most`.
  [[nodiscard]] Bytes code_before(SpaceId space, Ip ip, uint64_t most, TimeNs when) const;
  FoundFunction look_up(SpaceId space, Ip ip, TimeNs when);
  std::string_view owner_of(const Symbol& symbol);
  void add_names(FunctionId id, const Symbol& symbol, SpaceId space, TimeNs when);
  struct Place {
    std::string module;         ///< short file name, "[kernel.kallsyms]", "[anon 4711]"
    uint64_t offset_bytes = 0;  ///< in the file, else the address
    Interval valid;             ///< moments at which this surely is so
  };
  void add_code(FunctionId id, SpaceId space, Ip start, TimeNs when);
  [[nodiscard]] Place place_of(SpaceId space, Ip ip, TimeNs when) const;
  /// The function, without a name, that begins at `start`.
  FunctionId add_unnamed(SpaceId space, Ip start, TimeNs when);
  uint32_t module_number(std::string_view module);
  const Symbolizer& symbolizer_;
  const Timeline timeline_;
  CodeView view_;
  FunctionTable& table_;
  GrowingCache<Entry> entries_{kEntryBits};
  std::map<std::string, uint32_t, std::less<>> modules_;
  std::vector<bool> names_added_;                     ///< by function
  std::map<std::string, bool> owners_;                ///< whether a function has the name
  std::vector<std::pair<SectionId, Ip>> code_added_;  ///< by function: the last place
  std::map<SectionId, std::string> code_names_;
  int32_t pid_ = -1;
};

}  // namespace ptd
