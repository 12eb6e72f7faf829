// Alignment of the decoded flow and the true one, however much they differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::cli {

/// A number that represents the bytes of an instruction.
[[nodiscard]] uint64_t content_key(Bytes bytes);

inline constexpr uint32_t kUnmatched = ~uint32_t{0};

/// Finds equal keys (addresses: two flows that read other bytes at one place still are at one place) in the same order: match[i] is the
/// index in `other` of flow[i], or kUnmatched; it never goes back. What is equal at both ends is matched first; between, the longest chain
/// of stretches that occur once in each ("patience"), then what is between those in the same way. The whole need not be the longest
/// possible: what it misses counts as different. `gaps` are the indices in `flow` before which elements of `other` may be missing, in order:
/// what is between two of them, however short, is matched where all of it is found, unless fewer of the others are found then. `other_first` is added to the indices. `match` has
/// flow.size() elements, all kUnmatched at first. Time n log n; neither may have 2^32 elements.
void align_flows(std::span<const uint64_t> flow, std::span<const uint64_t> other, std::span<const uint32_t> gaps, uint32_t other_first,
                 std::span<uint32_t> match);

}  // namespace ptd::cli
