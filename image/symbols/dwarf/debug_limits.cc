// DebugLimits: see debug_limits.h.
#include "image/symbols/dwarf/debug_limits.h"

#include <sys/mman.h>

#include <algorithm>

namespace ptd {
namespace {

struct Limit {
  const char* what;
  uint64_t always, times;  // the limit is `always` plus `times` bytes of the file
  uint64_t divisor = 1;    // of that multiple
};

// A range takes at least 2 bytes of a file. A compiler writes a name or path once; libdw joins each file name with its folder, and
// compressed sections contain a multiple of their size. A byte of a line table produces at most one row, which takes 100 bytes as long as
// the file is open; compilers write a row for three bytes, or for one that is compressed, and the table is a third of the debug
// information. libdw keeps 80 bytes for an abbreviation of a unit. Units that have one table, as after link-time optimization of LLVM, are
// far longer than it.
constexpr Limit kLimits[] = {
    {"address ranges", 1U << 20, 1},       {"bytes of names", 64U << 20, 8},        {"bytes of file names in line tables", 64U << 20, 32},
    {"bytes of line tables", 1U << 20, 4}, {"rows of line tables", 4U << 20, 1, 2}, {"bytes of entries", 16U << 20, 16},
    {"abbreviations", 1U << 20, 1, 2},     {"attributes", 16U << 20, 16},           {"steps between nested functions", 64U << 20, 16},
};

}  // namespace

DebugLimits::DebugLimits(uint64_t file_bytes) {
  for (size_t i = 0; i < kKinds; ++i) {
    most_[i] = kLimits[i].always + kLimits[i].times * std::min(file_bytes, uint64_t{1} << 48) / kLimits[i].divisor;
    left_[i] = most_[i];
  }
}

std::string DebugLimits::text() const {
  const auto at = static_cast<size_t>(kind_);
  return exceeded_ ? "more than " + std::to_string(most_[at]) + " " + kLimits[at].what : std::string();
}

bool memory_for_debug_info() {
  constexpr size_t kBytes = size_t{64} << 20;  // of address space, which is returned at once
  void* probe = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return probe != MAP_FAILED && ::munmap(probe, kBytes) == 0;
}

}  // namespace ptd
