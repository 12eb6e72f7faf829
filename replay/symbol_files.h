// Symbol files for debuggers: a GDB script, and an ELF file with the names that the recording has.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/recording.h"
#include "replay/process_image.h"

namespace ptd::replay {

struct SymbolRequest {
  SpaceId space = kNoSpace;
  TimeNs when;
  std::string comm;
  uint16_t machine = 0;  ///< e_machine of the ELF file
  bool is_64bit = true;
  std::string folder;    ///< which exists
  std::string commands;  ///< further commands for the script
};

/// What was written.
struct SymbolFiles {
  std::string script;  ///< path
  size_t files = 0;    ///< ELF files of the process that the script names
  size_t names = 0;    ///< symbols of code that no such file has: of the kernel, of JIT code, of bundles
};

/// Writes FOLDER/symbols.gdb and FOLDER/recorded.sym. The script names the files of the process with their addresses, and recorded.sym, a
/// 64-bit or 32-bit ELF file with symbols but no code. Errors: those of writing.
Result<SymbolFiles> write_symbol_files(const Recording& recording, ReplayMemory& memory, const SymbolRequest& request);

}  // namespace ptd::replay
