// Jitdump: the file in which a JIT compiler logs the code that it makes (tools/perf "jitdump-specification").
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "image/base/result.h"
#include "image/base/types.h"

namespace ptd {

/// File header facts.
struct JitdumpHeader {
  uint32_t version = 0;
  uint32_t elf_machine = 0;
  uint32_t pid = 0;
  uint64_t timestamp = 0;
  bool tsc_clock = false;  ///< JITDUMP_FLAGS_ARCH_TIMESTAMP: times are TSC ticks; else CLOCK_MONOTONIC nanoseconds
};

/// JIT_CODE_LOAD (code came into being) or JIT_CODE_MOVE (the same code at another address).
struct JitCode {
  bool move = false;
  uint64_t time = 0;  ///< in the header's clock
  uint32_t pid = 0, tid = 0;
  uint64_t address = 0;      ///< where the code stands now
  uint64_t old_address = 0;  ///< move: where it stood
  uint64_t size_bytes = 0;
  uint64_t index = 0;  ///< the JIT's own number of the function; a move names its load by it
  std::string name;    ///< load only
  Bytes code;          ///< load only; views the file; empty if the JIT logged no bytes
};

/// What stood at the end of the file.
struct JitdumpResult {
  JitdumpHeader header;
  uint64_t records = 0, skipped = 0;
  bool closed = false;            ///< JIT_CODE_CLOSE was seen
  bool cut = false;               ///< the file ends inside a record, or a record's size contradicts itself
  uint64_t end_offset_bytes = 0;  ///< first byte not read
};

/// True if the bytes begin as a jitdump does.
[[nodiscard]] bool is_jitdump(Bytes bytes);

/// Reads a jitdump in file order. Records of other types (debug info, unwinding info) are skipped by their size; a malformed record ends
/// the reading with `cut` set and what came before it kept. Errors: file_format for a bad magic, version or header; unsupported for the
/// other byte order.
Result<JitdumpResult> read_jitdump(Bytes bytes, const std::function<void(const JitCode&)>& on_code);

}  // namespace ptd
