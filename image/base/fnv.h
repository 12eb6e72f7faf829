// FNV-1a, a hash of 64 bits that distinguishes contents and finds accidental damage. It is no protection against forgery.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptdecode/types.h"

namespace ptd {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

/// Returns the hash of the bytes; `hash`: of those before them.
[[nodiscard]] inline uint64_t fnv1a(Bytes bytes, uint64_t hash = kFnvStart) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace ptd
