// PsbMatcher: by time, else by offset.
#include "cli/verify/psb_match.h"

#include <algorithm>
#include <utility>

#include "ptdecode/pt/packet_reader.h"

namespace ptd::cli {
namespace {

constexpr uint64_t kTscMask = (uint64_t{1} << 56) - 1;  // what a TSC packet has
constexpr int kMostPackets = 64;                        // of a PSB+

}  // namespace

PsbMark psb_mark(const AuxSegment& segment) {
  PsbMark mark{segment.stream_offset_bytes, {}};
  pt::PacketReader reader(segment.bytes);
  pt::Packet packet;
  for (int i = 0; i < kMostPackets && reader.next(packet) == pt::PacketReader::Status::ok; ++i) {
    if (packet.kind == pt::PacketKind::psbend) break;
    if (packet.kind == pt::PacketKind::tsc) mark.tsc = packet.value;
  }
  return mark;
}

PsbMatcher::PsbMatcher(std::vector<PsbMark> truth) : truth_(std::move(truth)) {
  for (size_t i = 0; i < truth_.size(); ++i) {
    if (truth_[i].tsc) by_tsc_.emplace_back(*truth_[i].tsc & kTscMask, i);
    by_offset_.emplace_back(truth_[i].offset_bytes, i);
  }
  std::ranges::sort(by_tsc_);
  std::ranges::sort(by_offset_);
}

/// Returns the first index of `key` that is not less than `from`.
std::optional<size_t> PsbMatcher::first_in(const Index& index, uint64_t key, size_t from) {
  const auto at = std::ranges::lower_bound(index, std::pair(key, from));
  return at != index.end() && at->first == key ? std::optional(at->second) : std::nullopt;
}

std::optional<size_t> PsbMatcher::find(const PsbMark& decoded) {
  std::optional<size_t> at_offset = first_in(by_offset_, decoded.offset_bytes + shift_, 0);
  if (at_offset && *at_offset < next_) at_offset.reset();
  std::optional<size_t> found = at_offset;
  const uint64_t tsc = decoded.tsc.value_or(0) & kTscMask;
  if (decoded.tsc && first_in(by_tsc_, tsc, 0)) {
    const bool has_both = at_offset && std::ranges::binary_search(by_tsc_, std::pair(tsc, *at_offset));
    if (!has_both) found = first_in(by_tsc_, tsc, next_);
  }
  if (!found) return std::nullopt;
  next_ = *found + 1;
  shift_ = truth_[*found].offset_bytes - decoded.offset_bytes;
  return found;
}

}  // namespace ptd::cli
