// TruthWalk: see truth_walk.h.
#include "cli/verify/truth_walk.h"

#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd::cli {
namespace {

// A branch of 32-bit code is one of 64-bit code too, except for those that are no instruction there: those are taken for none.
bool leaves_packet(InsnClass cls) {
  return cls != InsnClass::other && cls != InsnClass::jump_direct && cls != InsnClass::call_direct && cls != InsnClass::bad;
}
bool leaves_packet(ArmClass cls) { return cls == ArmClass::direct || cls == ArmClass::indirect || cls == ArmClass::isb; }

}  // namespace

bool TruthWalk::next(TruthSegment& segment) {
  segment.insns.clear();
  segment.lost.clear();
  segment.told_end = 0;
  segment.valid = have_mark_;
  segment.offset_bytes = mark_;
  segment.psbs = psbs_;
  size_t losing_from = 0;
  emulate::TruthRecord record;
  while (reader_.next(record)) {
    switch (record.tag) {
      case emulate::TruthTag::block:
      case emulate::TruthTag::part:
        // An atom is written when the flow is known to go on: of the last branch there is none.
        if (!is_pt_ && branch_before_) segment.told_end = segment.insns.size();
        add(segment, *record.block, record.first, record.count);
        branch_before_ = gives_packet(*record.block, record.first + record.count);
        if (is_pt_ && branch_before_) segment.told_end = segment.insns.size();
        break;
      case emulate::TruthTag::event:
        if (!is_pt_) segment.told_end = segment.insns.size();
        break;
      case emulate::TruthTag::lose:
        losing_from = segment.insns.size();
        break;
      case emulate::TruthTag::recover:
        segment.lost.emplace_back(losing_from, segment.insns.size());
        break;
      case emulate::TruthTag::psb:
        mark_ = record.offset_bytes;
        have_mark_ = true;
        ++psbs_;
        if (segment.valid || segment.insns.size() != 0) return true;
        segment.valid = true;
        segment.offset_bytes = mark_;
        segment.psbs = psbs_;
        break;
      case emulate::TruthTag::end:
        ended_ = true;
        break;
      default:
        break;
    }
  }
  have_mark_ = false;
  return segment.valid || segment.insns.size() != 0;
}

void TruthWalk::add(TruthSegment& segment, const emulate::TruthBlock& block, uint32_t first, uint32_t count) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < first + count; ++i) {
    const uint8_t length = block.lengths[i];
    if (i >= first) segment.insns.add(Ip{block.ip + at}, Bytes(block.bytes).subspan(at, length), false);
    at += length;
  }
}

// Returns whether a packet covers some of the block's first `end` instructions.
bool TruthWalk::gives_packet(const emulate::TruthBlock& block, uint32_t end) {
  if (end < block.lengths.size()) return false;
  const auto [known, fresh] = packet_.try_emplace(&block, true);
  if (fresh && !block.lengths.empty()) {
    const Bytes last = Bytes(block.bytes).last(block.lengths.back());
    known->second = is_pt_ ? leaves_packet(classify(last, ExecMode::bits64).cls) : leaves_packet(classify_arm(last, ExecMode::a64).cls);
  }
  return known->second;
}

}  // namespace ptd::cli
