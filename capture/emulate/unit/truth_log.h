// TruthLog: the raw ground truth of one thread or vcpu, written while it runs.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::emulate {

/// Records of a truth stream, each a LEB128 number that says which, then its fields as LEB128 numbers (docs/FORMAT-truth.md).
enum class TruthTag : uint8_t {
  define,   ///< number, ip, count, then `count` lengths and the code bytes: what block `number` is
  part,     ///< number, first, count: instructions [first, first + count) of a block retired
  lose,     ///< packets are lost from here on (overflow)
  recover,  ///< packets are written again from here on
  psb,      ///< stream offset, tsc: a PSB precedes the next instruction
  event,    ///< kind, ip: see TruthEvent
  end,      ///< the last instruction is known; nothing follows
  time,     ///< tsc: the time between two instructions. Only in raw logs: it becomes a timestamp packet
  block,    ///< and all above: block number (value - block) retired as a whole
};
enum class TruthEvent : uint8_t {
  software_interrupt,  ///< INT3, INT n: trapped at ip
  interrupt,           ///< taken before the instruction at ip
  context,             ///< only in raw logs of an arm64 machine, in place of ip: context id << 8 | exception level
  exception = 16,      ///< and up to 31 above, only there: [ETMv4] exception type (kind - exception), with the preferred return address
};

inline constexpr uint64_t kMaxInsns = 4096;  ///< of a block

/// Appends records to a byte vector, which must outlive it and may be emptied by its owner.
class TruthLog {
 public:
  explicit TruthLog(std::vector<std::byte>& out) : out_(out) {}
  void block(uint32_t number) { put(uint64_t{number} + static_cast<uint64_t>(TruthTag::block)); }
  void part(uint32_t number, unsigned first, unsigned count) { tag(TruthTag::part), put(number), put(first), put(count); }
  void lose() { tag(TruthTag::lose); }
  void recover() { tag(TruthTag::recover); }
  void psb(uint64_t offset_bytes, uint64_t tsc) { tag(TruthTag::psb), put(offset_bytes), put(tsc); }
  void event(TruthEvent kind, uint64_t ip) { tag(TruthTag::event), put(static_cast<uint64_t>(kind)), put(ip); }
  void time(uint64_t tsc) { tag(TruthTag::time), put(tsc); }
  void end() { tag(TruthTag::end); }
  void put(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<std::byte>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<std::byte>(value));
  }

 private:
  void tag(TruthTag tag) { put(static_cast<uint64_t>(tag)); }
  std::vector<std::byte>& out_;
};

/// Takes one number off the front, as TruthLog::put() writes it. False: the bytes end inside of it.
inline bool take_number(Bytes& bytes, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value |= uint64_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) {
      bytes = bytes.subspan(i + 1);
      return true;
    }
  }
  return false;
}

}  // namespace ptd::emulate
