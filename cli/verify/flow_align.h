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

/// Finds equal keys in the same order: sets match[i] to the index in `other` of flow[i], plus `other_first`, or leaves kUnmatched. Indices
/// increase. Keys are addresses, since flows at one address may have read different bytes there.
/// Matches the equal starts and ends first, then the longest chain of stretches that occur once in each ("patience"), then the parts between these in
/// the same way. Limitation: the alignment may be shorter than the longest possible one; keys that it misses count as different.
/// `gaps`: the indices in `flow` before which elements of `other` may be missing, in order. A run between two of them, however short, is matched where
/// all of it is found, unless fewer of the others are found then. `match`: flow.size() elements, all kUnmatched. Takes time n log n. Neither flow may have
/// 2^32 elements.
void align_flows(std::span<const uint64_t> flow, std::span<const uint64_t> other, std::span<const uint32_t> gaps, uint32_t other_first,
                 std::span<uint32_t> match);

}  // namespace ptd::cli
