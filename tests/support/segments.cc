// Splits a raw Intel PT stream into segments at its PSBs.
#include "tests/support/segments.h"

#include <algorithm>

#include "decoder/pt/packet/overflows.h"

namespace ptd::test {
namespace {

constexpr size_t kPsbBytes = 16;

bool psb_at(Bytes stream, size_t at) {
  if (at + kPsbBytes > stream.size()) return false;
  for (size_t i = 0; i < kPsbBytes; ++i) {
    if (stream[at + i] != ((i & 1) == 0 ? std::byte{0x02} : std::byte{0x82})) return false;
  }
  return true;
}

// Returns an end that certainly includes the PSB+ that starts at `psb`. (A PSBEND cannot be found by its bytes alone, because a payload may
// contain them.)
size_t psb_plus_end(Bytes stream, size_t psb) { return std::min(stream.size(), psb + 256); }

}  // namespace

std::vector<uint64_t> psb_offsets(Bytes stream) {
  std::vector<uint64_t> out;
  for (size_t at = 0; at + kPsbBytes <= stream.size(); ++at) {
    if (!psb_at(stream, at)) continue;
    while (psb_at(stream, at + 2)) at += 2;
    out.push_back(at);
    at += kPsbBytes - 1;
  }
  return out;
}

std::vector<AuxSegment> cut_segments(Bytes stream, int32_t cpu) {
  const auto psbs = psb_offsets(stream);
  std::vector<AuxSegment> out;
  for (size_t i = 0; i < psbs.size(); ++i) {
    const bool last = i + 1 == psbs.size();
    const size_t end = last ? stream.size() : psb_plus_end(stream, psbs[i + 1]);
    AuxSegment segment;
    segment.bytes = stream.subspan(psbs[i], end - psbs[i]);
    segment.tail_bytes = last ? 0 : end - psbs[i + 1];
    segment.stream_offset_bytes = psbs[i];
    segment.cpu = cpu;
    segment.break_before = i == 0 ? AuxBreak::stream_start : AuxBreak::none;
    segment.break_after = last;
    segment.after_overflow = i != 0 && pt::ends_in_overflow(stream.subspan(psbs[i - 1], psbs[i] - psbs[i - 1]));
    out.push_back(segment);
  }
  return out;
}

}  // namespace ptd::test
