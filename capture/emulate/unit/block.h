// Block: a straight sequence of instructions as translated by an emulator, with what following the flow needs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ptdecode/insn.h"
#include "ptdecode/types.h"

namespace ptd::emulate {

/// What the last instruction of a block does to the flow.
enum class BlockEnd : uint8_t {
  plain,      ///< continues after it: the emulator ended the block for its own reasons; also MOV CR3 and PTWRITE
  jump,       ///< direct, to Block::target
  jcc,        ///< to the target or the next instruction
  call,       ///< direct, to target
  call_next,  ///< direct, to the next instruction: no return stack sees it
  indirect,
  indirect_call,
  ret,
  far,                 ///< SYSCALL, IRET and all that may change privilege or mode
  software_interrupt,  ///< INT3, INT1, INT n, INTO: an event at the instruction, which does not retire
};

struct Block {
  uint64_t ip = 0, end = 0;          ///< first byte; first byte after the last instruction
  uint64_t last_ip = 0;              ///< of the last instruction
  uint64_t target = 0;               ///< of jump, jcc, call
  const uint8_t* lengths = nullptr;  ///< bytes of each instruction
  const std::byte* bytes = nullptr;
  uint32_t number = 0;  ///< in its store, from 0, in the order of first translation
  uint16_t insns = 0, size_bytes = 0;
  BlockEnd kind = BlockEnd::plain;
  InsnDetail detail = InsnDetail::none;  ///< of the last instruction
  ExecMode mode = ExecMode::bits64;
  bool kernel = false;        ///< upper half
  bool single_plain = false;  ///< one instruction, no branch
  bool mismatch = false;      ///< the emulator's lengths are not the classifier's
  bool stale = false;  ///< others of its bytes were seen since: where it runs all the same, its memory was written through another address
  bool watched = false;  ///< the emulator's glue wants to look before it is entered (handlers, IDT entries)

  /// Index of the instruction that starts at `at`, or -1.
  [[nodiscard]] int index_of(uint64_t at) const;
  [[nodiscard]] Bytes code() const { return {bytes, size_bytes}; }
};

/// One instruction as an emulator reports it.
struct SeenInsn {
  const void* data = nullptr;
  size_t size_bytes = 0;
};

/// All blocks that were ever translated: equal ones (address, mode, lengths, bytes) are one. Blocks live as long as the store. Not
/// thread-safe.
class BlockStore {
 public:
  struct Added {
    Block* block = nullptr;
    bool is_new = false;
  };
  /// A last instruction that the classifier finds cut short, after others, is left out: QEMU 7.2 reports an instruction that crosses into
  /// another page with the block before it too, where it does not run. Null for no instruction at all.
  Added add(uint64_t ip, ExecMode mode, std::span<const SeenInsn> insns);
  [[nodiscard]] size_t size() const { return blocks_.size(); }
  [[nodiscard]] const Block& at(size_t number) const { return blocks_[number]; }
  /// Calls f(Block&) for the blocks that start at `ip`.
  template <class F>
  void for_each_at(uint64_t ip, F&& f) {
    const auto [first, last] = by_ip_.equal_range(ip);
    for (auto it = first; it != last; ++it) f(*it->second);
  }

 private:
  std::byte* allocate(size_t bytes);
  std::deque<Block> blocks_;
  std::unordered_multimap<uint64_t, Block*> by_ip_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_used_ = 0;
  std::vector<std::byte> scratch_;
  std::vector<uint8_t> lengths_;
};

}  // namespace ptd::emulate
