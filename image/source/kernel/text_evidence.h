// TextEvidence: whether copies of a kernel's text are of the same boot as the recording and as each other.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "image/source/code_bytes.h"
#include "image/source/elf_file.h"
#include "image/source/kernel/extents.h"
#include "image/source/kernel/kallsyms.h"
#include "ptdecode/types.h"

namespace ptd {

/// A copy of the kernel proper, without modules: its text and what follows it.
struct KernelTextCopy {
  std::string path;
  std::vector<MemoryRange> ranges;       ///< disjoint, in address order
  Ip text_end;                           ///< what follows may be data
  bool is_end_known = false;             ///< what follows is data
  std::vector<uint64_t> functions = {};  ///< addresses of its text symbols, in order, each once; empty: unknown
};

/// Returns the kernel proper in a copy: what follows _stext or, without _stext and _etext, `reference`, the start of the kernel's text (0:
/// unknown). Other code is left out, because what had been at its addresses before may be unknown. `modules` are sorted by address.
[[nodiscard]] KernelTextCopy kernel_text_in(const std::string& path, const std::vector<MemoryRange>& ranges,
                                            const std::vector<KernelSymbol>& symbols, const std::vector<KernelModule>& modules,
                                            Ip reference);

/// Bounds of the differences that are another kernel's. A kernel changes at most an instruction of each function: 60,000 ftrace sites of 5
/// bytes are 2 % of 14 MiB, and pages of which most bytes change have tables of short stubs only (static calls), which are a few pages.
/// In other builds, and in the same build at another address, nearly all pages from the first moved function on have mostly other bytes.
inline constexpr uint64_t kMostChangedPages = 16, kPagesForOneChanged = 64;

/// Not thread-safe.
class TextEvidence {
 public:
  /// Adds a change in place that a record tells of.
  void add_poke(Ip ip, Bytes old_bytes, Bytes new_bytes);
  /// Returns why the copy is not of the recorded boot or not of that of a copy before; a sentence fragment, "" if nothing says so.
  [[nodiscard]] std::string contradiction_of(const KernelTextCopy& copy, CodeFamily family) const;
  /// Returns the kernel's data that copies before this one have: it changes without records, and the difference says nothing of the text.
  /// It begins at _etext. If no copy names that, it begins past text_end, at the first page in which mostly other things differ than
  /// instructions that a kernel writes.
  [[nodiscard]] Extents known_data(const KernelTextCopy& copy, CodeFamily family) const;
  /// Makes the copy one with which later ones are compared.
  void add_copy(KernelTextCopy copy) { copies_.push_back(std::move(copy)); }

 private:
  [[nodiscard]] std::string poke_contradiction(const KernelTextCopy& copy, CodeFamily family) const;
  std::unordered_map<uint64_t, std::vector<std::vector<std::byte>>> versions_;  // by address: bytes that records name
  std::vector<KernelTextCopy> copies_;
};

}  // namespace ptd
