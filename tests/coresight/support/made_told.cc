// Converts batches to instructions and exceptions: see made_told.h.
#include "tests/coresight/support/made_told.h"

#include "image/source/code_bytes.h"
#include "ptdecode/arm_insn.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {

void take(const Batch& batch, const BlockTable& blocks, Decoded& decoded) {
  size_t event = 0;
  for (size_t block = 0; block <= batch.blocks.size(); ++block) {
    for (; event < batch.events.size() && batch.events[event].before_block <= block; ++event) {
      const Event& told = batch.events[event];
      if (told.kind == EventKind::async_branch) decoded.told.push_back({true, told.from.value, told.payload});
    }
    if (block == batch.blocks.size()) break;
    const BlockInfo& info = blocks.info(batch.blocks[block].node);
    const Bytes code = blocks.bytes(batch.blocks[block].node);
    for (uint64_t at = 0; at < code.size(); at += classify_arm(code.subspan(at), info.mode).length_bytes)
      decoded.told.push_back({false, info.ip.value + at, 0});
    decoded.marked += has(batch.blocks[block].flags, BlockFlag::suspect) ? 1 : 0;
  }
  for (const Gap& gap : batch.gaps) {
    const bool overflow = gap.reason == GapReason::overflow;
    (overflow ? decoded.overflows : decoded.other_gaps) += 1;
    if (!overflow && decoded.first_gap.empty())
      decoded.first_gap = std::to_string(static_cast<int>(gap.reason)) + " at " + std::to_string(gap.stream_offset_bytes);
  }
}

Decoded decode_segment(FlowDecoder& decoder, const std::vector<uint8_t>& bytes, size_t capacity) {
  AuxSegment segment;
  segment.bytes = std::as_bytes(std::span(bytes));
  decoder.begin(segment);
  Decoded decoded;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch, capacity);
    take(batch, decoder.blocks(), decoded);
  }
  return decoded;
}

Timeline timeline_of(const MadeProgram& program, SpaceId& space) {
  TimelineBuilder builder;
  Section section;
  space = section.space = builder.add_space();
  section.ip = Ip{program.base()};
  section.code = own_bytes(program.bytes());
  section.size_bytes = program.bytes().size();
  builder.add_section(std::move(section));
  return builder.build();
}

}  // namespace ptd::test
