// read_kernel_dump(): code and names of the kernel in a dump of a machine's memory. Loads libkdumpfile at run time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "image/source/code_bytes.h"
#include "image/source/kernel/kallsyms.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// The kernel of a dump. What VMCOREINFO does not say is empty or 0.
struct KernelDump {
  std::string build_id;               ///< hex, in kernels since 5.9
  uint64_t stext = 0;                 ///< address of _stext, which differs between boots
  std::vector<MemoryRange> ranges;    ///< in address order; without the pages that are not in the dump
  std::vector<KernelSymbol> symbols;  ///< of the kernel proper, sorted by address; in kernels since 6.0
  bool has_bad_names = false;         ///< the dump has tables of names, but they are malformed or contradict _stext
};

/// Reads the parts of a kernel's memory that are within `wanted` (address and size), at most 512 MiB, from a dump that libkdumpfile reads:
/// ELF (/proc/vmcore), or compressed as makedumpfile writes it. `arch` is uname's machine, for dumps that do not name it.
/// Errors: as MappedFile::open; missing_program (libkdumpfile is not installed); unknown_format (not a dump); missing_part (the
/// dump has no VMCOREINFO, or nothing of the kernel); start_failed (no process); bad_format (libkdumpfile crashed or found no end).
/// libkdumpfile runs in a forked process (ForkedWork), with at most 60 s of processor time and 2 GiB of memory. Calls check_interrupt().
[[nodiscard]] Result<KernelDump> read_kernel_dump(const std::string& path, const std::string& arch,
                                                  const std::vector<std::pair<Ip, uint64_t>>& wanted);

}  // namespace ptd
