// SegmentOrder: compares the first timestamps after A-Syncs, and all of them if those are not in order.
#include "decoder/arm/packet/segment_order.h"

#include <algorithm>
#include <optional>

#include "decoder/arm/packet/timestamps.h"
#include "ptdecode/arm/packet_reader.h"

namespace ptd::arm {
namespace {

constexpr uint64_t kSyncBytes = 256;               // in which the first timestamp comes
constexpr uint32_t kTimestamps = 0x800;            // TRCCONFIGR.TS
constexpr uint64_t kMostBack = uint64_t{1} << 32;  // ticks; no order of the trace explains more

struct Piece : TracePiece {
  uint64_t from = 0, to = 0;  ///< its first and last timestamp
  uint64_t stamps = 0;
};
using Pieces = std::vector<Piece>;

// The first timestamp after the A-Sync at `at`, and before the next one.
uint64_t first_timestamp(Bytes bytes, uint64_t at, uint64_t next, const TraceConfig& config) {
  PacketReader reader(bytes.subspan(at, std::min(next - at, kSyncBytes)), config);
  Packet packet;
  while (reader.next(packet) == PacketReader::Status::ok) {
    if (packet.kind == PacketKind::timestamp && packet.value != 0) return packet.value;
  }
  return 0;
}

// Whether the shorter one repeats the other, perhaps up to the end of the trace only.
bool is_copy(Bytes bytes, const Piece& a, const Piece& b) {
  const uint64_t size = std::min(a.last - a.first, b.last - b.first);
  return std::ranges::equal(bytes.subspan(a.first, size), bytes.subspan(b.first, size));
}

class Order {
 public:
  Order(Bytes bytes, const TraceConfig& config) : bytes_(bytes), config_(config) { config_.configr |= kTimestamps; }

  /// Divides the bytes at A-Syncs. Returns whether the first timestamps after them are in order.
  bool divide() {
    bool in_order = true;
    for (uint64_t at = std::min<uint64_t>(find_async(bytes_, 0), bytes_.size()), next = 0; at < bytes_.size(); at = next) {
      next = std::min<uint64_t>(find_async(bytes_, at + kAsyncBytes), bytes_.size());
      const uint64_t time = first_timestamp(bytes_, at, next, config_);
      if (time == 0 && !pieces_.empty()) {
        pieces_.back().last = next;
        continue;
      }
      Piece piece{{at, next}, time, time, 0};
      in_order = in_order && (pieces_.empty() || pieces_.back().from < time ||
                              (pieces_.back().from == time && !is_copy(bytes_, pieces_.back(), piece)));
      pieces_.push_back(piece);
    }
    return in_order;
  }

  SegmentOrder find() {
    if (!read_all()) return {};
    SegmentOrder order;
    Pieces sorted = pieces_;
    std::ranges::stable_sort(
        sorted, [](const Piece& a, const Piece& b) { return a.from != b.from ? a.from < b.from : a.last - a.first > b.last - b.first; });
    order.copies = drop_copies(sorted);
    for (size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i].from < sorted[i - 1].to) return {};
    }
    if (cut_ && sorted.front().first != *cut_) return {};
    for (size_t i = 1; i < pieces_.size(); ++i) {
      if (!goes_back(i)) continue;
      if (pieces_[i - 1].to - pieces_[i].from > kMostBack) return {};
      if (order.places++ == 0) order.first_offset_bytes = pieces_[i].first;
    }
    if (order.places == 0 || is_damage() || may_be_two_clocks(order.places)) return {};
    const bool may_be_restart = order.places == 1 && order.copies == 0 && pieces_.back().to <= pieces_.front().from;
    if (!may_be_restart && cut_) return {};
    if (!may_be_restart) join(sorted, order.pieces);
    return order;
  }

 private:
  // Reads all timestamps. Returns false if they go back inside segments, and the end of a ring does not explain it.
  bool read_all() {
    for (Piece& piece : pieces_) piece.from = piece.to = 0;
    Pieces cut;
    size_t i = 0;
    bool is_ordered = true;
    visit_timestamps(bytes_, config_, [&](uint64_t offset, uint64_t value) {
      while (i + 1 < pieces_.size() && pieces_[i + 1].first <= offset) ++i;
      Piece& piece = cut.empty() || cut_in_ != i ? pieces_[i] : cut.back();
      if (value == 0) return;
      if (piece.stamps++ == 0) piece.from = value;
      if (value < piece.to) {
        is_ordered = is_ordered && cut.empty();
        cut.assign(1, {{offset, pieces_[i].last}, value, value, 1});
        cut_in_ = i;
      } else {
        piece.to = value;
      }
    });
    for (const Piece& piece : pieces_) is_ordered = is_ordered && piece.stamps != 0;
    if (is_ordered && !cut.empty()) {
      cut_ = cut.front().first;
      pieces_[cut_in_].last = *cut_;
      pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(cut_in_ + 1), cut.front());
    }
    return is_ordered;
  }

  [[nodiscard]] bool goes_back(size_t i) const { return pieces_[i].from < pieces_[i - 1].to; }

  // Segments with the same bytes are one if time passes in them. The longest is kept.
  uint64_t drop_copies(Pieces& sorted) const {
    const auto repeats = [&](const Piece& a, const Piece& b) { return a.from == b.from && a.from < a.to && is_copy(bytes_, a, b); };
    const size_t all = sorted.size();
    sorted.erase(std::unique(sorted.begin(), sorted.end(), repeats), sorted.end());
    return all - sorted.size();
  }

  // Whether one wrong byte explains each place at which timestamps go back: that of the segment before it or after it.
  [[nodiscard]] bool is_damage() const {
    const auto [least, most] = std::ranges::minmax_element(pieces_, {}, &Piece::from);
    const uint64_t span = most->to - least->from;
    const auto is_explained = [&](size_t i) {
      const Piece &piece = pieces_[i], *before = i == 0 ? nullptr : &pieces_[i - 1],
                  *after = i + 1 == pieces_.size() ? nullptr : &pieces_[i + 1];
      if (before == nullptr && after == nullptr) return false;
      TickRange bounds;
      bounds.first = before != nullptr ? before->to : after->from - std::min(after->from, span);
      bounds.last = after != nullptr ? after->from : before->to + std::min(span, ~before->to);
      if (bounds.first > bounds.last) return false;
      return !check_timestamps(bytes_.subspan(piece.first, piece.last - piece.first), config_, bounds, true).repairs.empty();
    };
    for (size_t i = 1; i < pieces_.size(); ++i) {
      if (goes_back(i) && !is_explained(i - 1) && !is_explained(i)) return false;
    }
    return true;
  }

  // Whether the segments up to some time, and those after it, are in order each. A trace with many timestamps shows that inside segments,
  // too.
  [[nodiscard]] bool may_be_two_clocks(uint64_t places) const {
    uint64_t stamps = 0, highest = 0, low = 0, high = ~uint64_t{0}, lowest = ~uint64_t{0};
    for (const Piece& piece : pieces_) {
      stamps += piece.stamps;
      if (piece.from < highest) low = std::max(low, piece.from);
      highest = std::max(highest, piece.from);
    }
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
      if (piece->from > lowest) high = std::min(high, piece->from);
      lowest = std::min(lowest, piece->from);
    }
    const bool returns = places > 1 || pieces_.back().to > pieces_.front().from;
    return stamps < 2 * pieces_.size() && returns && low < high;
  }

  void join(const Pieces& sorted, std::vector<TracePiece>& joined) const {
    const auto add = [&](const TracePiece& piece) {
      if (piece.first == piece.last) return;
      if (!joined.empty() && joined.back().last == piece.first) {
        joined.back().last = piece.last;
      } else {
        joined.push_back(piece);
      }
    };
    add({0, pieces_.front().first});  // before the first A-Sync
    for (const Piece& piece : sorted) add(piece);
  }

  Bytes bytes_;
  TraceConfig config_;           ///< with timestamps, whatever the recording says
  Pieces pieces_;                ///< as they are in the trace
  std::optional<uint64_t> cut_;  ///< where a segment is cut, `cut_in_` of the pieces
  size_t cut_in_ = 0;
};

}  // namespace

SegmentOrder order_of_segments(Bytes bytes, const TraceConfig& config) {
  const bool restates = config.protocol == Protocol::etmv4 || config.protocol == Protocol::ete;
  if (!restates) return {};
  Order order(bytes, config);
  return order.divide() ? SegmentOrder{} : order.find();
}

}  // namespace ptd::arm
