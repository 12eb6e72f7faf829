// Lists of the modules of a Windows process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"

namespace ptd {

/// A module, as a list names it.
struct ListedModule {
  uint64_t base = 0, size_bytes = 0;
  std::string path;                   ///< as in the list: C:\Windows\System32\ntdll.dll
  std::optional<uint32_t> timestamp;  ///< TimeDateStamp of the file, if the list has it
};

/// Reads a list of modules, by base address. Two forms:
///  - CSV with a header of column names: BaseAddress (or base), ModuleMemorySize (or size), FileName (or path), and optionally
///    TimeDateStamp; other columns are ignored. Numbers are decimal, or hex with 0x. Export-Csv of PowerShell writes this form.
///  - The output of WinDbg's `lm f`: start, end, name and path, numbers in hex. Lines that do not begin with two addresses are ignored.
/// Errors: bad_format with the line; too_large: more than 8192 modules or 16 MiB.
[[nodiscard]] Result<std::vector<ListedModule>> read_module_list(const std::string& path);
/// Same for the text of a list; `name` is that of its file, for messages.
[[nodiscard]] Result<std::vector<ListedModule>> parse_module_list(std::string_view text, const std::string& name);

}  // namespace ptd
