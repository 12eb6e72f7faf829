// branch_type(): see branch_types.h.
#include "cli/export/branch_types.h"

#include <algorithm>
#include <iterator>

namespace ptd::cli {

namespace {

// [linux] tools/perf/util/event.h, PERF_IP_FLAG_*.
constexpr int64_t kBranch = 1, kCall = 2, kReturn = 4, kConditional = 8, kSyscall = 16, kAsync = 32, kInterrupt = 64, kTraceBegin = 256,
                  kTraceEnd = 512, kVmEntry = 2048, kVmExit = 4096;
// Ours.
constexpr int64_t kBreakpoint = 1 << 20, kExceptionReturn = 1 << 21;

struct Kind {
  std::string_view flags;
  int64_t number;
  std::string_view name;  // [linux] tools/perf/util/db-export.c, branch_types
};
constexpr Kind kKinds[] = {
    {"jmp", kBranch, "unconditional jump"},
    {"jcc", kBranch | kConditional, "conditional jump"},
    {"call", kBranch | kCall, "call"},
    {"return", kBranch | kReturn, "return"},
    {"int", kBranch | kCall | kInterrupt, "software interrupt"},
    {"iret", kBranch | kReturn | kInterrupt, "return from interrupt"},
    {"syscall", kBranch | kCall | kSyscall, "system call"},
    {"sysret", kBranch | kReturn | kSyscall, "return from system call"},
    {"async", kBranch | kAsync, "asynchronous branch"},
    {"hw int", kBranch | kCall | kAsync | kInterrupt, "hardware interrupt"},
    {"int3", kBranch | kCall | kAsync | kInterrupt | kBreakpoint, "breakpoint"},
    {"eret", kBranch | kReturn | kInterrupt | kExceptionReturn, "exception return"},
    {"vmentry", kBranch | kCall | kVmEntry, "vm entry"},
    {"vmexit", kBranch | kCall | kVmExit, "vm exit"},
};
constexpr std::string_view kStart = "tr strt", kEnd = "tr end  ";

}  // namespace

BranchType branch_type(std::string_view flags) {
  if (flags == kStart) return {kBranch | kTraceBegin, "trace begin"};
  const bool ends = flags.starts_with(kEnd);
  const std::string_view kind = ends ? flags.substr(kEnd.size()) : flags;
  const auto* const known = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& each) { return each.flags == kind; });
  if (known == std::end(kKinds)) return {0, "no branch"};
  if (!ends) return {known->number, std::string(known->name)};
  return {known->number | kTraceEnd, std::string(known->name) + " / trace end"};
}

}  // namespace ptd::cli
