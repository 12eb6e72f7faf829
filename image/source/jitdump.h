// Jitdump: the file in which a JIT compiler logs its generated code (tools/perf "jitdump-specification").
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// Value of the header's reserved word: the file contains every byte of executed code that is in no other file. Written by `ptdecode record
/// --emulate`, which uses addresses as names.
inline constexpr uint32_t kCompleteJitdump = 0x4c4c4154;

/// Returns the name of code without a name: "code_7f0012340000".
[[nodiscard]] std::string jit_address_name(uint64_t address);

/// Facts from the file header.
struct JitdumpHeader {
  uint32_t version = 0;
  uint32_t size_bytes = 0;
  uint32_t elf_machine = 0;
  uint32_t pid = 0;
  uint64_t timestamp = 0;
  bool complete = false;   ///< see kCompleteJitdump
  bool tsc_clock = false;  ///< JITDUMP_FLAGS_ARCH_TIMESTAMP: times are TSC ticks; else CLOCK_MONOTONIC nanoseconds
};

/// JIT_CODE_LOAD (new code) or JIT_CODE_MOVE (the same code at another address).
struct JitCode {
  bool move = false;
  uint64_t time = 0;  ///< in the header's clock
  uint32_t pid = 0, tid = 0;
  uint64_t address = 0;      ///< the code's new address
  uint64_t old_address = 0;  ///< move: its previous address
  uint64_t size_bytes = 0;
  uint64_t index = 0;  ///< the JIT's id of the function, by which a move refers to a load
  std::string name;    ///< load only
  Bytes code;          ///< load only; views the file; empty if the JIT logged no bytes
};

/// State at the end of the file.
struct JitdumpResult {
  JitdumpHeader header;
  uint64_t records = 0, skipped = 0;
  bool closed = false;            ///< JIT_CODE_CLOSE was seen
  bool cut = false;               ///< the file ends inside a record, or a record's size contradicts itself
  uint64_t end_offset_bytes = 0;  ///< first byte not read
};

/// Returns true if the bytes begin like a jitdump.
[[nodiscard]] bool is_jitdump(Bytes bytes);

/// Returns true for ".../jit-123.dump".
[[nodiscard]] bool is_jitdump_path(const std::string& path);

/// Reads only the header. Errors: as for read_jitdump().
Result<JitdumpHeader> read_jitdump_header(Bytes bytes);

/// Reads a jitdump in file order. Records of other types (debug info, unwinding info) are skipped by their size. A malformed record ends
/// reading and sets `cut`; the records before it are kept. Errors: file_format for a bad magic, version or header; unsupported for the
/// other byte order.
Result<JitdumpResult> read_jitdump(Bytes bytes, const std::function<void(const JitCode&)>& on_code);

}  // namespace ptd
