// LandingPads: where exceptions go on in the functions of a file. Private to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "image/source/elf_file.h"
#include "ptdecode/symbols.h"

namespace ptd {

/// A function's table of call sites (LSDA).
struct CallSiteTable {
  uint64_t function = 0;  ///< its first address
  uint64_t address = 0;   ///< of the table
};

/// Returns whether a file has such tables (.gcc_except_table).
[[nodiscard]] bool has_landing_pads(const ElfFile& file);

/// The landing pads of a file: an exception that leaves a call goes on at the landing pad of that call. Addresses are in the file's own
/// address space.
class LandingPads {
 public:
  LandingPads() = default;
  /// Reads the tables in .gcc_except_table, as gcc, clang and rustc write them; at most 4,194,304 call sites in all. The rest of a table
  /// that cannot be read is skipped. [LSB] "Exception Frames"
  LandingPads(const ElfFile& elf, const std::vector<CallSiteTable>& tables);
  /// Uses previously selected call sites.
  explicit LandingPads(std::vector<CallSite> sites);
  /// Returns the call site that contains an address.
  [[nodiscard]] const CallSite* find(uint64_t address) const;
  [[nodiscard]] bool is_landing(uint64_t address) const;
  /// Returns the call sites, by address.
  [[nodiscard]] const std::vector<CallSite>& all() const { return sites_; }
  /// Calls `visit` with each call site whose landing pad is `landing`.
  template <typename Visit>
  void visit_sites_of(uint64_t landing, Visit visit) const {
    if (!is_landing(landing)) return;
    for (const CallSite& site : sites_) {
      if (site.landing == landing) visit(site);
    }
  }

 private:
  void sort();
  std::vector<CallSite> sites_;  // by address
  std::vector<uint64_t> pads_;   // sorted, each once
};

}  // namespace ptd
