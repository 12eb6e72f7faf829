// The -F option: which columns a line of `ptdecode script` has, in perf's names.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptdecode/error.h"

namespace ptd::cli {

enum class Field : uint32_t {
  comm = 1U << 0,
  tid = 1U << 1,
  pid = 1U << 2,
  cpu = 1U << 3,
  time = 1U << 4,
  event = 1U << 5,
  period = 1U << 6,
  ip = 1U << 7,
  sym = 1U << 8,
  symoff = 1U << 9,
  dso = 1U << 10,
  addr = 1U << 11,
  flags = 1U << 12,
  insn = 1U << 13,
  insnlen = 1U << 14,
  disasm = 1U << 15,
  callindent = 1U << 16,
  mark = 1U << 17,  ///< ours: how sure the decoder is of the code ("ambiguous", "suspect", "healed", ...)
  srcline = 1U << 18,
  tod = 1U << 19,          ///< times as time of day
  brstack = 1U << 20,      ///< branches by the stack, for perf2bolt
  machine_pid = 1U << 21,  ///< the process that runs the guest
  vcpu = 1U << 22,         ///< the guest's cpu
};

/// A set of fields.
class Fields {
 public:
  constexpr Fields() = default;
  constexpr explicit Fields(uint32_t bits) : bits_(bits) {}
  [[nodiscard]] constexpr bool has(Field field) const { return (bits_ & static_cast<uint32_t>(field)) != 0; }
  constexpr void add(Field field) { bits_ |= static_cast<uint32_t>(field); }
  constexpr void remove(Field field) { bits_ &= ~static_cast<uint32_t>(field); }
  [[nodiscard]] constexpr uint32_t bits() const { return bits_; }
  friend constexpr bool operator==(Fields, Fields) = default;

 private:
  uint32_t bits_ = 0;
};

/// What a line has when -F is not given.
[[nodiscard]] Fields default_fields();

/// Reads `text` over `start`: "a,b" replaces, "+a,-b" changes; perf's "type:" prefixes are accepted and apply to all lines.
/// Unknown names are an error of kind usage that lists the known ones, or names the nearest equivalent of one of perf's.
[[nodiscard]] Result<Fields> parse_fields(std::string_view text, Fields start);

}  // namespace ptd::cli
