// MappingHistories: collects the mappings of an address in order of time, and joins equal contents.
#include "image/mapping_history.h"

#include <algorithm>
#include <tuple>

namespace ptd {
namespace {

constexpr size_t kPiecesKept = 1U << 16;

/// Two pieces with equal keys show the same bytes at each address of the range.
using ContentKey = std::tuple<uintptr_t, uint64_t, bool, bool>;

ContentKey key_of(const TimelineData& data, const SpaceData& space, const MappingHistory::Piece& piece, uint64_t address) {
  if (!piece.mapped && space.inherits()) return {0, 0, false, true};
  if (piece.section == kNoSection) return {0, 0, false, false};
  const Section& section = data.sections[piece.section];
  const uint64_t skip = address - section.ip.value;
  if (skip >= section.code.bytes.size()) return {0, 0, false, false};
  const uint64_t size = std::min<uint64_t>(section.code.bytes.size() - skip, piece.last_address - address + 1);
  return {reinterpret_cast<uintptr_t>(section.code.bytes.data()) + skip, size, section.assumed, false};
}

MappingHistory collect(const TimelineData& data, const SpaceData& space, SectionIndex::Span span) {
  std::vector<SectionRect> rects;
  space.sections.find(span.first, {}, rects);
  MappingHistory history;
  history.mappings = rects.size();
  TimeNs from = kTimeMin;
  bool open = true;  // time from `from` on is not covered yet
  for (const SectionRect& rect : rects) {
    if (from < rect.live.first) history.pieces.push_back({{from, before(rect.live.first)}});
    history.pieces.push_back({rect.live, rect.last_address, rect.section, true});
    open = rect.live.last < kTimeMax;
    from = after(rect.live.last);
  }
  if (open) history.pieces.push_back({{from, kTimeMax}});
  std::map<ContentKey, size_t> places;
  for (const MappingHistory::Piece& piece : history.pieces) {
    const auto [place, is_new] = places.try_emplace(key_of(data, space, piece, span.first), history.contents.size());
    if (is_new) {
      history.contents.push_back({piece, piece.live, piece.live});
    } else {
      MappingHistory::Content& content = history.contents[place->second];
      content.possible.last = piece.live.last;
      content.certain = join_certain(content.certain, piece.live, {});
    }
  }
  return history;
}

}  // namespace

Interval join_certain(Interval a, Interval b, Interval when) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  if (b.first < a.first) std::swap(a, b);
  if (b.first <= after(a.last)) return hull(a, b);
  return a.overlaps(when) ? a : b;
}

std::shared_ptr<const MappingHistory> MappingHistories::at(const TimelineData& data, SpaceId id, uint64_t address) {
  const SpaceData& space = data.spaces[data.index_of(id)];
  const SectionIndex::Span span = space.sections.uniform_span(address);
  const std::pair key(id.value, span.first);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  auto history = std::make_shared<const MappingHistory>(collect(data, space, span));
  collected_ += history->pieces.size();
  if (pieces_ + history->pieces.size() > std::max(kPiecesKept, 4 * space.sections.size())) {
    known_.clear();
    pieces_ = 0;
  }
  pieces_ += history->pieces.size();
  known_.emplace(key, history);
  return history;
}

}  // namespace ptd
