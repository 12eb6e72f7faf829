// Jitdump: the file in which a JIT compiler logs its generated code (tools/perf "jitdump-specification").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "image/base/fnv.h"
#include "image/mapped_kind.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// Value of the header's reserved word: the file contains every byte of executed code that is in no other file. Written by `ptdecode record
/// --emulate`, which uses addresses as names.
inline constexpr uint32_t kCompleteJitdump = 0x4c4c4154;

/// Where `ptdecode record --emulate` says that it mapped a complete jitdump: below what any program may map.
inline constexpr uint64_t kCompleteJitdumpAddress = 0x1000;

/// Checksum of a complete jitdump's bytes. The record of its mapping has it as file offset, so a file that was changed later is noticed.
class JitdumpSum {
 public:
  void add(Bytes bytes);
  /// Returns the checksum of all bytes so far, in their order; never 0, which means unknown.
  [[nodiscard]] uint64_t value() const { return sum_ == 0 ? 1 : sum_; }

 private:
  uint64_t sum_ = kFnvStart;
};

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

/// A part of the file that cannot be read: one malformed record of code, or bytes up to where records follow again.
struct JitdumpDamage {
  uint64_t offset_bytes = 0, size_bytes = 0;
  bool record = false;    ///< one record, whose size is plausible
  bool has_time = false;  ///< a record precedes it
  uint64_t time = 0;      ///< of that record, in the header's clock; of a malformed record, its own if that is earlier
};

/// State at the end of the file.
struct JitdumpResult {
  JitdumpHeader header;
  uint64_t records = 0;               ///< of every type
  bool closed = false;                ///< JIT_CODE_CLOSE was seen
  uint64_t malformed = 0;             ///< records of code that were skipped
  bool cut = false;                   ///< the file ends inside a record, or a complete dump lacks its last one
  uint64_t lost_bytes = 0;            ///< skipped bytes that are not part of any record
  std::vector<JitdumpDamage> damage;  ///< the first ones, at most kMaxJitdumpDamage
  uint64_t end_offset_bytes = 0;      ///< first byte not read
};
inline constexpr size_t kMaxJitdumpDamage = 32;

/// Returns true if the bytes begin like a jitdump.
[[nodiscard]] bool is_jitdump(Bytes bytes);

/// Reads only the header. Errors: as for read_jitdump().
Result<JitdumpHeader> read_jitdump_header(Bytes bytes);

/// Reads a jitdump in file order. Records of other types (debug info, unwinding info) are skipped by their size, and records after
/// JIT_CODE_CLOSE are read too, as perf inject does. After a record whose size is not plausible, reading continues where a code record
/// follows that is consistent in all its fields. Errors: file_format for a bad magic, version or header; unsupported for the other byte
/// order.
Result<JitdumpResult> read_jitdump(Bytes bytes, const std::function<void(const JitCode&)>& on_code);

}  // namespace ptd
