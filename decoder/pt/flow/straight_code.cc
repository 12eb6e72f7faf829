// StraightCode: reading, and positions inside.
#include "decoder/pt/flow/straight_code.h"

#include <algorithm>

#include "decoder/insn/executed_insn.h"
#include "ptdecode/code_view.h"

namespace ptd::pt {
namespace {

Insn insn_at(Bytes code, size_t offset, ExecMode mode) {
  return reached_insn(code.subspan(offset, std::min<size_t>(code.size() - offset, kFetchSpanBytes)), mode);
}

}  // namespace

Step step_of(const Insn& insn, Ip ip, ExecMode mode) {
  const bool direct = insn.cls == InsnClass::jcc || insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::call_direct;
  return {insn.cls, insn.detail, insn.cls == InsnClass::call_direct && insn.displacement != 0, next_sequential(insn, ip, mode),
          direct ? direct_target(insn, ip, mode) : Ip{}};
}

void StraightCode::set_last(const Insn& insn, size_t offset) {
  const Step step = step_of(insn, Ip{ip.value + offset}, mode);
  last_at = static_cast<uint16_t>(offset);
  size = static_cast<uint16_t>(offset + insn.length_bytes);
  cls = step.cls;
  detail = step.detail;
  pushes = step.pushes;
  target = step.target;
}

void StraightCode::set(const Insn& insn, const std::byte* first) {
  first_byte = first;
  count = 1;
  set_last(insn, 0);
}

bool StraightCode::read(Bytes code) {
  Insn insn;
  size_t end = 0;
  first_byte = code.data();
  for (count = 0; count < kMost && end < code.size(); ++count) {
    const Insn next = insn_at(code, end, mode);
    if (next.cls == InsnClass::bad) break;
    insn = next;
    end += insn.length_bytes;
    if (!ends_straight(insn.cls, insn.detail)) continue;
    ++count;
    break;
  }
  set_last(insn, end - insn.length_bytes);
  return count != 0;
}

uint32_t StraightCode::size_of(uint32_t instructions) const {
  if (instructions >= count) return size;
  uint32_t end = 0;
  for (uint32_t i = 0; i < instructions; ++i) end += insn_at(bytes(), end, mode).length_bytes;
  return end;
}

uint32_t StraightCode::index_at(uint64_t offset) const {
  if (offset > last_at) return count;
  uint32_t index = 0;
  uint64_t at = 0;
  for (; at < offset; ++index) at += insn_at(bytes(), at, mode).length_bytes;
  return at == offset ? index : count;
}

}  // namespace ptd::pt
