// Alignment of the decoded flow and the true one, however much they differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::cli {

/// A number that represents the bytes of an instruction.
[[nodiscard]] uint64_t content_key(Bytes bytes);

inline constexpr uint32_t kUnmatched = ~uint32_t{0};

/// Finds equal keys in the same order: sets match[i] to the index in `other` of flow[i], plus `other_first`, or leaves kUnmatched. Indices
/// increase. Keys are addresses, since flows at one address may have read different bytes there.
/// Matches the equal starts and ends first, then the longest chain of stretches that occur once in each ("patience"), then the parts
/// between these in the same way. Limitation: the alignment may be shorter than the longest possible one; keys that it misses count as
/// different. `gaps`: the indices in `flow` before which elements of `other` may be missing, in order. A run between two of them, however
/// short, is matched where all of it is found, unless fewer of the others are found then. `match`: flow.size() elements, all kUnmatched.
/// Takes time n log n. Neither flow may have 2^32 elements.
void align_flows(std::span<const uint64_t> flow, std::span<const uint64_t> other, std::span<const uint32_t> gaps, uint32_t other_first,
                 std::span<uint32_t> match);

/// Elements [first, end) of `other` that have no match, between the matches of flow[before - 1] and flow[before].
struct MissingPart {
  size_t before = 0, first = 0, end = 0;
};
/// Returns the first and the last index of the flow before which `missing` may be: where it is rounds of a loop, any rounds of that loop
/// can be the ones that are missing, and the alignment is as long. `match`: as align_flows() sets it.
[[nodiscard]] std::pair<size_t, size_t> places_of_missing(std::span<const uint64_t> other, std::span<const uint32_t> match,
                                                          MissingPart missing);

/// A range of a flow's indices.
struct FlowPiece {
  size_t first = 0, end = 0;
};
/// Finds pieces of `flow` in `other`, each as a whole and after the one before it. Returns the index in `other` of each, the lowest that is
/// possible; none if not all are there. `pieces`: in order, none empty. Takes linear time.
[[nodiscard]] std::optional<std::vector<size_t>> place_pieces(std::span<const uint64_t> flow, std::span<const FlowPiece> pieces,
                                                              std::span<const uint64_t> other);

}  // namespace ptd::cli
