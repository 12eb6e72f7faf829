// Sorts payloads by offset and compares those that overlap.
#include "recording/trace/payloads.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxPayloadOffset = ~uint64_t{0} / 2;  // so that no sum wraps

struct Sortable {
  AuxPayload payload;
  uint32_t ring = 0;     // numbered in order of appearance
  bool is_wild = false;  // its offset is beyond kMaxPayloadOffset
  bool is_late = false;
};

/// Places the payloads of one ring, which come in order of offset.
class RingPlacer {
 public:
  RingPlacer(PlacedPayloads& out, uint64_t shift) : out_(out), first_chunk_(out.chunks.size()), shift_(shift) {}

  void add(const Sortable& sortable) {
    const AuxPayload& payload = sortable.payload;
    const uint64_t at = payload.offset_bytes + shift_;
    if (at > kMaxPayloadOffset || payload.size_bytes > kMaxPayloadOffset - at) {
      if (at > kMaxPayloadOffset || payload.bytes.size() > kMaxPayloadOffset - at) {
        out_.unplaced = true;
        return;
      }
    } else {
      announced_ = std::max(announced_, at + payload.size_bytes);
    }
    Bytes bytes = payload.bytes;
    if (bytes.empty()) return;
    if (at < end_) {
      drop_padding(at, at + bytes.size());
      const uint64_t shared = std::min<uint64_t>(end_ - at, bytes.size());
      if (shared != 0) compare(at, bytes.first(shared), at + bytes.size());
      bytes = bytes.subspan(std::min<uint64_t>(end_ - at, bytes.size()));
    }
    if (bytes.empty()) return;
    const uint64_t begin = std::max(at, end_);
    if (sortable.is_late && out_.late_payloads++ == 0) out_.first_late = begin;
    out_.chunks.push_back({begin, bytes});
    end_ = begin + bytes.size();
  }
  [[nodiscard]] uint64_t announced() const { return announced_; }

 private:
  // What the payload up to `stop` repeats of the end of the last chunk, if it is short enough, is padding.
  void drop_padding(uint64_t at, uint64_t stop) {
    AuxChunk& last = out_.chunks.back();
    if (end_ - at > kMaxPaddingBytes || at <= last.offset_bytes || stop < end_) return;
    cut_last(at);
  }

  void cut_last(uint64_t at) {
    AuxChunk& last = out_.chunks.back();
    last.bytes = last.bytes.first(at - last.offset_bytes);
    end_ = at;
  }

  void compare(uint64_t at, Bytes bytes, uint64_t stop) {
    const auto begin = out_.chunks.begin() + static_cast<std::ptrdiff_t>(first_chunk_);
    auto chunk = std::upper_bound(begin, out_.chunks.end(), at, [](uint64_t value, const AuxChunk& one) { return value < one.end(); });
    uint64_t differing = 0;
    for (; chunk != out_.chunks.end() && chunk->offset_bytes < at + bytes.size(); ++chunk) {
      const uint64_t from = std::max(at, chunk->offset_bytes), to = std::min(at + bytes.size(), chunk->end());
      const Bytes one = chunk->bytes.subspan(from - chunk->offset_bytes, to - from), other = bytes.subspan(from - at, to - from);
      const auto first = static_cast<uint64_t>(std::mismatch(one.begin(), one.end(), other.begin()).first - one.begin());
      if (first == one.size()) continue;
      const Bytes rest = one.subspan(first);
      const bool is_padding =
          rest.size() <= kMaxPaddingBytes && std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; });
      if (is_padding && to == end_ && stop > end_ && from + first > chunk->offset_bytes) {
        cut_last(from + first);
        break;
      }
      const auto same_at_end = static_cast<uint64_t>(std::mismatch(one.rbegin(), one.rend(), other.rbegin()).first - one.rbegin());
      out_.conflicts.push_back({from + first, to - same_at_end});
      differing += one.size() - first - same_at_end;
    }
    if (differing == bytes.size()) return;
    if (out_.doubled_bytes == 0) out_.first_doubled = at;
    out_.doubled_bytes += bytes.size() - differing;
  }

  PlacedPayloads& out_;
  size_t first_chunk_;
  uint64_t shift_, end_ = 0, announced_ = 0;
};

/// Joins the conflicts and takes them out of the chunks.
void take_conflicts_out(PlacedPayloads& placed) {
  std::vector<PlacedPayloads::Range>& conflicts = placed.conflicts;
  if (conflicts.empty()) return;
  for (auto& [first, last] : conflicts) {
    first = first / arm::kFrameBytes * arm::kFrameBytes;
    last = (last + arm::kFrameBytes - 1) / arm::kFrameBytes * arm::kFrameBytes;
  }
  std::sort(conflicts.begin(), conflicts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PlacedPayloads::Range> joined;
  for (const PlacedPayloads::Range& range : conflicts) {
    if (!joined.empty() && range.first <= joined.back().last) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  conflicts = std::move(joined);
  std::vector<AuxChunk> kept;
  auto range = conflicts.begin();
  for (const AuxChunk& chunk : placed.chunks) {
    uint64_t from = chunk.offset_bytes;
    while (range != conflicts.end() && range->last <= from) ++range;
    for (auto cut = range; from < chunk.end(); ++cut) {
      const uint64_t to = cut == conflicts.end() ? chunk.end() : std::min(chunk.end(), std::max(from, cut->first));
      if (to > from) kept.push_back({from, chunk.bytes.subspan(from - chunk.offset_bytes, to - from)});
      if (cut == conflicts.end() || to == chunk.end()) break;
      from = std::min(chunk.end(), cut->last);
    }
  }
  placed.chunks = std::move(kept);
}

std::vector<Sortable> sorted(std::vector<AuxPayload> payloads) {
  std::vector<Sortable> all;
  all.reserve(payloads.size());
  std::map<uint32_t, std::pair<uint32_t, uint64_t>> rings;  // ring -> its number, and its largest offset so far
  for (AuxPayload& payload : payloads) {
    const auto [known, is_new] = rings.try_emplace(payload.ring, static_cast<uint32_t>(rings.size()), 0);
    auto& [ring, largest] = known->second;
    if (payload.bytes.size() > payload.size_bytes) payload.bytes = payload.bytes.first(payload.size_bytes);
    const bool is_wild = payload.offset_bytes > kMaxPayloadOffset;
    all.push_back({payload, ring, is_wild, payload.offset_bytes < largest});
    if (!is_wild) largest = std::max(largest, payload.offset_bytes);
  }
  std::stable_sort(all.begin(), all.end(), [](const Sortable& a, const Sortable& b) {
    return std::tuple(a.ring, a.is_wild, a.payload.offset_bytes) < std::tuple(b.ring, b.is_wild, b.payload.offset_bytes);
  });
  return all;
}

}  // namespace

PlacedPayloads place_payloads(std::vector<AuxPayload> payloads) {
  PlacedPayloads placed;
  const std::vector<Sortable> all = sorted(std::move(payloads));
  for (size_t i = 0; i < all.size();) {
    const Sortable& first = all[i];
    const bool is_first = i == 0;
    // Later rings, and offsets that no ring reaches, follow what is placed.
    const uint64_t begin = placed.chunks.empty() ? 0 : placed.chunks.back().end();
    const uint64_t shift = is_first && !first.is_wild ? 0 : begin - first.payload.offset_bytes;
    const size_t chunks = placed.chunks.size();
    RingPlacer ring(placed, shift);
    for (; i < all.size() && all[i].ring == first.ring && all[i].is_wild == first.is_wild; ++i) ring.add(all[i]);
    if (is_first) {
      placed.announced_end_bytes = ring.announced();
    } else if (placed.chunks.size() > chunks) {
      placed.breaks.push_back(placed.chunks[chunks].offset_bytes);
    }
  }
  take_conflicts_out(placed);
  return placed;
}

}  // namespace ptd
