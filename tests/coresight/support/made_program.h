// Generated programs of A64, A32 and T32 instructions, with the effect of each: known from the generator, not from a decoder.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::test {

struct Place {
  ExecMode mode = ExecMode::a64;
  uint64_t address = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// What an instruction may do.
struct MadeInsn {
  enum class Kind : uint8_t { plain, direct, indirect, returns, exception_return, isb, wait };
  Kind kind = Kind::plain;
  unsigned size = 4;
  bool conditional = false, link = false;
  Place target;  ///< of a direct branch
  uint32_t word = 0;
};

/// Each region of an instruction set ends in a branch, so that no flow leaves it but by a branch.
class MadeProgram {
 public:
  static constexpr uint64_t kRegionBytes = 0x200;

  /// A64 at `base`; with `with_aarch32` A32 after it and T32 after that.
  MadeProgram(std::mt19937& random, uint64_t base, bool with_aarch32);

  [[nodiscard]] uint64_t base() const { return base_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] const MadeInsn& at(const Place& place) const { return insns_.at(place); }
  [[nodiscard]] Place any_of(ExecMode mode);
  [[nodiscard]] bool has_aarch32() const { return with_aarch32_; }

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((*random_)() % bound); }
  void lay_out(ExecMode mode);
  void encode(const Place& place, MadeInsn& insn, bool last);
  void encode_a64(const Place& place, MadeInsn& insn, unsigned choice);
  void encode_a32(const Place& place, MadeInsn& insn, unsigned choice);
  void encode_t32(const Place& place, MadeInsn& insn, unsigned choice);
  void write(const Place& place, const MadeInsn& insn);

  std::mt19937* random_;
  uint64_t base_;
  bool with_aarch32_;
  std::vector<std::byte> bytes_;
  std::map<Place, MadeInsn> insns_;
  std::map<ExecMode, std::vector<Place>> places_;
};

}  // namespace ptd::test
