// A very small x86-64 machine: executes the hand-written kernel of the demonstration from the bytes in memory. For tests only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ptd::demo {

/// Bytes by address; bytes that were never written read as 0.
class Memory {
 public:
  [[nodiscard]] uint8_t byte(uint64_t address) const;
  [[nodiscard]] uint64_t value(uint64_t address, unsigned bytes) const;
  [[nodiscard]] std::vector<std::byte> copy(uint64_t address, size_t bytes) const;
  void set_value(uint64_t address, unsigned bytes, uint64_t value);
  void write(uint64_t address, const std::vector<std::byte>& bytes);

 private:
  static constexpr uint64_t kPageBytes = 4096;
  std::map<uint64_t, std::array<uint8_t, kPageBytes>> pages_;
};

enum Register : uint8_t { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi };

struct Cpu {
  int number = 0;
  uint64_t ip = 0, gs_base = 0, tsc = 0, trap_stack = 0;
  std::array<uint64_t, 8> regs{};
  bool zero = false;
  bool interrupts = true;
};

/// The effect of one instruction, as needed by a trace.
enum class Did : uint8_t { plain, conditional, indirect, breakpoint, stuck };
struct Step {
  Did did = Did::plain;
  bool taken = false;
  uint64_t ip = 0;
  unsigned length_bytes = 0;
};

/// Executes one instruction. breakpoint: an INT3 that entered `breakpoint_entry` (it does not retire). stuck: bytes that the machine does
/// not support; nothing was changed.
[[nodiscard]] Step run_one(Memory& memory, Cpu& cpu, uint64_t breakpoint_entry);
/// Enters an interrupt handler: pushes the five words that IRET pops.
void enter_interrupt(Memory& memory, Cpu& cpu, uint64_t handler);

void push(Memory& memory, Cpu& cpu, uint64_t value);
[[nodiscard]] uint64_t pop(Memory& memory, Cpu& cpu);

/// Writes instructions into a code section; labels of all sections are in one table and are resolved by link().
class Assembler {
 public:
  using Labels = std::map<std::string, uint64_t, std::less<>>;
  Assembler(uint64_t base, Labels& labels) : base_(base), labels_(labels) {}

  [[nodiscard]] uint64_t here() const { return base_ + code_.size(); }
  [[nodiscard]] const std::vector<std::byte>& code() const { return code_; }
  void label(const std::string& name) { labels_[name] = here(); }
  /// A function: aligned to 16 bytes, INT3s before it.
  void function(const std::string& name);
  /// Appends bytes: "55 48 89 e5".
  void bytes(std::string_view hex);
  /// Appends bytes, then the distance to a label as 1 or 4 bytes.
  void relative(std::string_view hex, const std::string& target, unsigned size_bytes);
  /// Appends bytes, then 4 bytes of a label's address (sign-extended by the instruction).
  void absolute(std::string_view hex, const std::string& target);
  void call(const std::string& target) { relative("e8", target, 4); }
  void jump(const std::string& target) { relative("e9", target, 4); }
  void if_not_zero(const std::string& target) { relative("75", target, 1); }
  void if_zero(const std::string& target) { relative("74", target, 1); }
  void enter() { bytes("55 48 89 e5"); }  ///< push %rbp; mov %rsp,%rbp
  void leave() { bytes("5d c3"); }        ///< pop %rbp; ret
  void nop5() { bytes("0f 1f 44 00 00"); }
  /// Resolves the labels. Returns false if one is missing or too far.
  [[nodiscard]] bool link();
  void pad_to(size_t size_bytes) { code_.resize(size_bytes, std::byte{0xcc}); }

 private:
  struct Fixup {
    size_t at;
    unsigned size_bytes;
    bool is_relative;
    std::string target;
  };
  uint64_t base_;
  Labels& labels_;
  std::vector<std::byte> code_;
  std::vector<Fixup> fixups_;
};

/// Converts "55 48 89 e5" to bytes.
[[nodiscard]] std::vector<std::byte> from_hex(std::string_view hex);

}  // namespace ptd::demo
