// DebugFile: the debug information of one ELF file, opened so that libdw opens no other file. Private to the module.
#pragma once

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "image/base/fd.h"
#include "image/symbols/dwarf/debug_limits.h"
#include "image/symbols/dwarf/shared_tables.h"
#include "image/symbols/line_table.h"
#include "ptdecode/types.h"

namespace ptd {

/// libdw would open any path given by the file, and therefore opens none. Names that dwz has moved to another file (.gnu_debugaltlink) are
/// read from an ELF file with the build id that the link gives, at the linked path or in the same tree; .dwo files are not read. libdw
/// reports a failed allocation as std::bad_alloc.
struct DebugFile {
  Fd fd;
  Elf* elf = nullptr;
  Bytes mapping;  // of the file by libelf; empty if it is not watched
  Dwarf* dwarf = nullptr;
  Dwfl* layout = nullptr;                // owns `dwarf`, if it is set
  std::unique_ptr<DebugFile> alternate;  // of .gnu_debugaltlink; null if there is none or it is missing
  std::string missing_alternate;         // its recorded path
  Elf* empty_elf = nullptr;
  Dwarf* empty = nullptr;  // in place of the alternate file
  LineSections sections;
  TableSections tables;
  uint64_t file_bytes = 0;  // without holes
  DebugLimits limits;

  /// Returns null if the file is not regular, has no DWARF, or uncompresses to far more than its size.
  static std::unique_ptr<DebugFile> open(const std::string& path);
  /// Opens a relocatable file, laid out by libdwfl. Returns null if `wanted` rejects the layout.
  static std::unique_ptr<DebugFile> open_relocatable(const std::string& path, const std::function<bool(Dwfl_Module*)>& wanted);
  DebugFile() = default;
  DebugFile(const DebugFile&) = delete;
  DebugFile& operator=(const DebugFile&) = delete;
  ~DebugFile();

 private:
  static std::unique_ptr<DebugFile> open_checked(const std::string& path, bool relocatable);
  bool prepare();
  void open_alternate(const std::string& path);
};

}  // namespace ptd
