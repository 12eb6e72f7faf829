// Code and trace that tests make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "image/source/code_bytes.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::pt {

/// "jmp *%rax" at every sixteenth of `size_bytes`, and NOPs.
inline std::vector<std::byte> jumps(uint64_t size_bytes) {
  std::vector<std::byte> code(size_bytes, std::byte{0x90});
  for (uint64_t i = 0; i < size_bytes; i += 16) {
    code[i] = std::byte{0xff};
    code[i + 1] = std::byte{0xe0};
  }
  return code;
}

inline void add_made_code(TimelineBuilder& builder, SpaceId space, uint64_t ip, const std::vector<std::byte>& code, Interval live = {}) {
  Section section;
  section.space = space;
  section.ip = Ip{ip};
  section.size_bytes = code.size();
  section.code = own_bytes(code);
  section.path = "code";
  section.live = live;
  builder.add_section(std::move(section));
}

/// The packets as all of a stream of cpu 0, which begins at 1000 ns.
inline AuxSegment made_stream(Bytes packets) {
  AuxSegment segment;
  segment.bytes = packets;
  segment.time = {TimeNs{1000}, kTimeMax};
  segment.break_before = AuxBreak::stream_start;
  segment.cpu = 0;
  return segment;
}

}  // namespace ptd::pt
