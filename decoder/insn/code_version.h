// What lists of the versions of code share. Private to the project.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "ptdecode/types.h"

namespace ptd {

/// Bytes at an address.
struct PlacedBytes {
  Ip ip;
  Bytes bytes;
};

/// Writes `part` over code from `ip` on, of which the first `known` bytes are known. Returns how many are known then.
inline size_t put_over(std::span<std::byte> code, Ip ip, size_t known, const PlacedBytes& part) {
  for (uint64_t i = part.ip < ip ? ip - part.ip : 0; i < part.bytes.size(); ++i) {
    const uint64_t at = part.ip.value + i - ip.value;
    if (at > known || at >= code.size()) break;
    code[at] = part.bytes[i];
    known = std::max<size_t>(known, at + 1);
  }
  return known;
}

/// Returns a moment of an interval that is not one of its bounds, if it has another.
[[nodiscard]] inline TimeNs moment_in(Interval when) {
  if (when.first == kTimeMin) return when.last == kTimeMax ? when.first : TimeNs{when.last.value - 1};
  if (when.last == kTimeMax) return TimeNs{when.first.value + 1};
  return TimeNs{when.first.value + (when.last.value - when.first.value) / 2};
}

}  // namespace ptd
