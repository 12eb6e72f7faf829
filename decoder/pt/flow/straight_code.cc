// StraightCode: reading, and positions inside.
#include "decoder/pt/flow/straight_code.h"

#include <algorithm>

#include "ptdecode/code_view.h"

namespace ptd::pt {
namespace {

Insn insn_at(Bytes code, size_t offset, ExecMode mode) {
  return classify(code.subspan(offset, std::min<size_t>(code.size() - offset, kFetchSpanBytes)), mode);
}

}  // namespace

Step step_of(const Insn& insn, Ip ip, ExecMode mode) {
  const bool direct = insn.cls == InsnClass::jcc || insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::call_direct;
  return {insn, next_sequential(insn, ip, mode), direct ? direct_target(insn, ip, mode) : Ip{}};
}

bool StraightCode::read(Bytes code) {
  Insn insn;
  size_t offset = 0;
  count = 0;
  while (count < kMost && offset < code.size()) {
    const Insn next = insn_at(code, offset, mode);
    if (next.cls == InsnClass::bad) break;
    insn = next;
    ++count;
    offset += insn.length_bytes;
    if (ends_straight(insn)) break;
  }
  last_at = static_cast<uint16_t>(offset - insn.length_bytes);
  last = step_of(insn, Ip{ip.value + last_at}, mode);
  in_timeline = code.data();
  return count != 0;
}

uint32_t StraightCode::size_of(uint32_t instructions) const {
  if (instructions >= count) return size_bytes();
  uint32_t size = 0;
  for (uint32_t i = 0; i < instructions; ++i) size += insn_at(bytes(), size, mode).length_bytes;
  return size;
}

uint32_t StraightCode::index_at(uint64_t offset) const {
  if (offset > last_at) return count;
  uint32_t index = 0;
  uint64_t at = 0;
  for (; at < offset; ++index) at += insn_at(bytes(), at, mode).length_bytes;
  return at == offset ? index : count;
}

}  // namespace ptd::pt
