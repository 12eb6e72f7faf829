// Ranges of mapped memory while records are read: LatestMappings, the last mapping of each kind at an address; AnonymousRanges, the
// executable anonymous memory of each space; MappedFiles, the files in each; WritableCode, the code of files that a program may have
// changed. Private to recording.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"
#include "recording/image/fresh_memory.h"
#include "recording/image/shared_ranges.h"

namespace ptd {

/// Each kind has a map of disjoint ranges. A mapping replaces what it covers, so adding n mappings takes a time of n log n. Not
/// thread-safe.
class LatestMappings {
 public:
  /// The kernel names anonymous memory by its pages.
  enum class Kind : uint8_t { other, anonymous, huge_pages };
  static constexpr size_t kKinds = 3;
  static Kind kind_of(std::string_view path) {
    return path.starts_with("//anon") ? Kind::anonymous : path.starts_with("/anon_hugepage") ? Kind::huge_pages : Kind::other;
  }

  /// Adds mapping number `index`, which is larger than those before. Nothing, if its size is 0.
  void add(SpaceId space, Ip ip, uint64_t size_bytes, Kind kind, size_t index) {
    if (size_bytes == 0) return;
    const uint64_t first = ip.value, last = size_bytes - 1 > ~first ? ~uint64_t{0} : first + (size_bytes - 1);
    Ranges& ranges = spaces_[space][static_cast<size_t>(kind)];
    auto at = ranges.lower_bound(first);
    if (at != ranges.begin()) {
      Range& before = std::prev(at)->second;
      if (before.last > last) ranges.emplace_hint(at, last + 1, before);
      if (before.last >= first) before.last = first - 1;
    }
    for (at = ranges.lower_bound(first); at != ranges.end() && at->first <= last; at = ranges.erase(at)) {
      if (at->second.last > last) ranges.emplace_hint(std::next(at), last + 1, at->second);
    }
    ranges[first] = {last, index};
  }
  /// Returns the number of the last mapping that contains `ip` and is not of this kind.
  [[nodiscard]] std::optional<size_t> latest_but(SpaceId space, Ip ip, Kind kind) const {
    const auto found = spaces_.find(space);
    if (found == spaces_.end()) return std::nullopt;
    std::optional<size_t> latest;
    for (size_t i = 0; i < kKinds; ++i) {
      const Ranges& ranges = found->second[i];
      const auto next = ranges.upper_bound(ip.value);
      if (i == static_cast<size_t>(kind) || next == ranges.begin() || std::prev(next)->second.last < ip.value) continue;
      const size_t index = std::prev(next)->second.index;
      if (!latest || *latest < index) latest = index;
    }
    return latest;
  }

 private:
  struct Range {
    uint64_t last = 0;
    size_t index = 0;
  };
  using Ranges = std::map<uint64_t, Range>;  // by first address
  std::map<SpaceId, std::array<Ranges, kKinds>> spaces_;
};

/// Removes [first, end) from the set and returns what was there.
inline std::vector<SharedRanges::Range> cut(SharedRanges& ranges, uint64_t first, uint64_t end) {
  std::vector<SharedRanges::Range> removed;
  auto at = ranges.at_or_before(first);
  if (!at || at->end <= first) at = ranges.after(first);
  for (; at && at->first < end; at = ranges.after(at->first)) {
    ranges.erase(at->first);
    if (at->first < first) ranges.insert({at->first, first, at->content});
    if (at->end > end) ranges.insert({end, at->end, at->content});
    removed.push_back({std::max(at->first, first), std::min(at->end, end), at->content});
  }
  return removed;
}

/// A part of a mapping.
struct MappedPiece {
  uint64_t first = 0, size_bytes = 0;
  bool again = false;         ///< it was there before
  bool now_writable = false;  ///< again, but the program could not write to it before
};

/// How a mapping compares with the last one at its place.
enum class MappedBefore : uint8_t { other, same, now_writable };

/// Not thread-safe.
class AnonymousRanges {
 public:
  using Piece = MappedPiece;
  /// A file that was mapped there, and since when.
  struct Replaced {
    uint64_t first = 0, end = 0;
    TimeNs since;
  };
  /// Adds [first, first + size) and returns it in pieces that were there before, or not. `files`: what it replaces, in order of addresses.
  std::vector<Piece> add(SpaceId space, uint64_t first, uint64_t size_bytes, TimeNs since = {}, std::span<const Replaced> files = {}) {
    const std::vector<Piece> pieces = join(ranges_[space], first, size_bytes);
    for (const Piece& piece : pieces) {
      if (!piece.again) add_memory(memory_[space], piece, since, files);
    }
    return pieces;
  }
  /// A file was mapped there.
  void replace(SpaceId space, uint64_t first, uint64_t size_bytes) {
    if (const auto found = ranges_.find(space); found != ranges_.end()) (void)cut(found->second, first, first + size_bytes);
  }
  /// Returns what add() got, without what was there before, in the order of the calls.
  [[nodiscard]] const std::vector<MappedMemory>& memory(SpaceId space) const {
    static const std::vector<MappedMemory> none;
    const auto found = memory_.find(space);
    return found == memory_.end() ? none : found->second;
  }
  /// A child starts with the memory of its parent.
  void fork(SpaceId parent, SpaceId child) {
    if (const auto found = ranges_.find(parent); found != ranges_.end()) ranges_[child] = SharedRanges(found->second);
  }

 private:
  /// Adds a range to the set, and returns it in pieces that were there before, or not.
  static std::vector<Piece> join(SharedRanges& ranges, uint64_t first, uint64_t size_bytes) {
    std::vector<Piece> pieces;
    uint64_t at = first, begin = first, end = first + size_bytes;
    const auto put = [&](uint64_t to, bool again) {
      if (to > at) pieces.push_back({at, to - at, again});
      at = std::max(at, to);
    };
    auto known = ranges.at_or_before(first);
    if (!known || known->end < first) known = ranges.after(first);
    const uint64_t until = end;
    for (; known && known->first <= until; known = ranges.after(known->first)) {
      put(std::clamp(known->first, at, until), false);
      put(std::clamp(known->end, at, until), true);
      begin = std::min(begin, known->first);
      end = std::max(end, known->end);
      ranges.erase(known->first);
    }
    put(until, false);
    ranges.insert({begin, end});
    return pieces;
  }
  /// Takes the files in the piece, and those before it, from `files`. A file is in one piece: where memory was there before, no file was.
  static void add_memory(std::vector<MappedMemory>& memory, const Piece& piece, TimeNs since, std::span<const Replaced>& files) {
    const uint64_t end = piece.first + piece.size_bytes;
    uint64_t at = piece.first;
    for (; !files.empty() && files.front().first < end; files = files.subspan(1)) {
      const Replaced& file = files.front();
      if (file.first > at) memory.push_back({since, at, file.first, {}});
      memory.push_back({since, file.first, file.end, file.since});
      at = file.end;
    }
    if (end > at) memory.push_back({since, at, end, {}});
  }
  std::map<SpaceId, SharedRanges> ranges_;  // not adjacent
  std::map<SpaceId, std::vector<MappedMemory>> memory_;
};

/// The files that are mapped at each address. Not thread-safe.
class MappedFiles {
 public:
  /// Adds mapping number `index` and returns it in pieces. compare(number) returns, as MappedBefore, how the last mapping at a place
  /// compares with it.
  template <typename Compare>
  std::vector<MappedPiece> add(SpaceId space, uint64_t first, uint64_t size_bytes, size_t index, const Compare& compare) {
    SharedRanges& ranges = ranges_[space];
    const uint64_t end = first + size_bytes;
    std::vector<MappedPiece> pieces;
    uint64_t at = first;
    const auto put = [&](uint64_t to, MappedBefore before) {
      if (to <= at) return;
      const bool again = before != MappedBefore::other, now_writable = before == MappedBefore::now_writable;
      if (pieces.empty() || pieces.back().again != again || pieces.back().now_writable != now_writable)
        pieces.push_back({at, 0, again, now_writable});
      pieces.back().size_bytes += to - at;
      at = to;
    };
    for (const SharedRanges::Range& known : cut(ranges, first, end)) {
      put(known.first, MappedBefore::other);
      put(known.end, compare(known.content));
    }
    put(end, MappedBefore::other);
    ranges.insert({first, end, index});
    return pieces;
  }
  /// Anonymous memory was mapped there. Returns what it replaces, with the numbers of mappings.
  std::vector<SharedRanges::Range> replace(SpaceId space, uint64_t first, uint64_t size_bytes) {
    const auto found = ranges_.find(space);
    return found == ranges_.end() ? std::vector<SharedRanges::Range>() : cut(found->second, first, first + size_bytes);
  }
  /// A child starts with the memory of its parent.
  void fork(SpaceId parent, SpaceId child) {
    if (const auto found = ranges_.find(parent); found != ranges_.end()) ranges_[child] = SharedRanges(found->second);
  }

 private:
  std::map<SpaceId, SharedRanges> ranges_;
};

/// The parts of private file mappings that have been writable and executable at once, in each space. Taking the permission away again
/// changes no bytes. Not thread-safe.
class WritableCode {
 public:
  struct Piece {
    uint64_t first = 0, size_bytes = 0;
    bool was_writable = false;  ///< now or before
  };
  /// Of one mapping: one that would have more is writable as a whole, which bounds memory and time.
  static constexpr size_t kMostPieces = 16;

  /// Adds a mapping of `content` (a number for each file and place, 0: no file) and returns it in pieces.
  std::vector<Piece> add(SpaceId space, uint64_t first, uint64_t size_bytes, uint64_t content, bool writable) {
    if (!writable && !ranges_.contains(space)) return {{first, size_bytes, false}};
    SharedRanges& ranges = ranges_[space];
    const uint64_t end = first + size_bytes;
    std::vector<Piece> pieces;
    uint64_t at = first;
    const auto put = [&](uint64_t to, bool was_writable) {
      if (to > at) pieces.push_back({at, to - at, was_writable});
      at = to;
    };
    for (const SharedRanges::Range& known : cut(ranges, first, end)) {
      if (writable || known.content != content) continue;
      put(known.first, false);
      put(known.end, true);
    }
    put(end, writable);
    if (pieces.size() > kMostPieces) pieces = {{first, size_bytes, true}};
    for (const Piece& piece : pieces) {
      if (piece.was_writable) ranges.insert({piece.first, piece.first + piece.size_bytes, content});
    }
    return pieces;
  }
  /// A child starts with the memory of its parent.
  void fork(SpaceId parent, SpaceId child) {
    if (const auto found = ranges_.find(parent); found != ranges_.end()) ranges_[child] = SharedRanges(found->second);
  }
  [[nodiscard]] bool has(SpaceId space) const { return ranges_.contains(space); }

 private:
  std::map<SpaceId, SharedRanges> ranges_;
};

}  // namespace ptd
