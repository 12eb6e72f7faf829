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
    if (truth_[i].tsc) by_tsc_[*truth_[i].tsc & kTscMask].push_back(i);
    by_offset_.emplace(truth_[i].offset_bytes, i);
  }
}

std::optional<size_t> PsbMatcher::find(const PsbMark& decoded) {
  const auto at_offset = by_offset_.find(decoded.offset_bytes + shift_);
  const auto found = [&](size_t index) {
    next_ = index + 1;
    shift_ = truth_[index].offset_bytes - decoded.offset_bytes;
    return index;
  };
  const bool by_offset = at_offset != by_offset_.end() && at_offset->second >= next_;
  const auto same_time = decoded.tsc ? by_tsc_.find(*decoded.tsc & kTscMask) : by_tsc_.end();
  if (same_time == by_tsc_.end()) return by_offset ? std::optional(found(at_offset->second)) : std::nullopt;
  const std::vector<size_t>& indices = same_time->second;
  if (by_offset && std::ranges::binary_search(indices, at_offset->second)) return found(at_offset->second);
  const auto later = std::ranges::lower_bound(indices, next_);
  return later == indices.end() ? std::nullopt : std::optional(found(*later));
}

}  // namespace ptd::cli
