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

bool StraightCode::read(Bytes code) {
  count = 0;
  in_timeline = code.data();
  for (size_t offset = 0; count < kMost && offset < code.size(); offset += last.length_bytes) {
    const Insn insn = insn_at(code, offset, mode);
    if (insn.cls == InsnClass::bad) break;
    last = insn;
    last_at = static_cast<uint16_t>(offset);
    ++count;
    if (ends_straight(insn)) break;
  }
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
