// InlineChains: numbers for the functions that are inlined at an address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ptd {

/// A chain: a copy of an inlined function, in the copies that contain it.
using InlineId = uint32_t;
inline constexpr InlineId kNotInlined = 0;                 ///< the function's own code
inline constexpr InlineId kUnknownInlining = 0xffffffffU;  ///< it was not looked up

/// A tree of chains, which only grows. Not thread-safe.
class InlineChains {
 public:
  static constexpr uint32_t kMaxDepth = 512;  ///< functions in one chain
  struct Chain {
    InlineId outer = kNotInlined;
    uint32_t depth = 0;     ///< functions in it
    uint32_t function = 0;  ///< the innermost one, a FunctionId
  };
  /// Returns the chain of the copy `copy` in `outer`; `outer` if that has kMaxDepth functions. `make_function` gives the function of a
  /// chain that was not met before.
  template <typename MakeFunction>
  InlineId inner(InlineId outer, const void* copy, const MakeFunction& make_function) {
    if (chains_[outer].depth == kMaxDepth) return outer;
    const auto [known, is_new] = ids_.try_emplace({copy, outer}, static_cast<InlineId>(chains_.size()));
    if (is_new) chains_.push_back({outer, chains_[outer].depth + 1, make_function()});
    return known->second;
  }
  [[nodiscard]] const Chain& operator[](InlineId id) const { return chains_[id]; }
  /// Returns the longest chain that both are in.
  [[nodiscard]] InlineId common(InlineId a, InlineId b) {
    const uint64_t key = uint64_t{a} << 32 | b;
    Common& known = common_[(key * 0x9e3779b97f4a7c15ULL) >> (64 - kCommonBits)];
    if (known.key != key) known = {key, find_common(a, b)};
    return known.common;
  }

 private:
  struct Common {
    uint64_t key = 0;  // of two that are kNotInlined, which is the right answer
    InlineId common = kNotInlined;
  };
  static constexpr unsigned kCommonBits = 12;
  [[nodiscard]] InlineId find_common(InlineId a, InlineId b) const {
    while (a != b) {
      if (chains_[a].depth < chains_[b].depth) std::swap(a, b);
      a = chains_[a].outer;
    }
    return a;
  }
  struct Hash {
    size_t operator()(const std::pair<const void*, InlineId>& key) const { return std::hash<const void*>()(key.first) * 31 + key.second; }
  };
  std::vector<Chain> chains_{Chain{}};
  std::vector<Common> common_ = std::vector<Common>(size_t{1} << kCommonBits);  // the last answers of common()
  std::unordered_map<std::pair<const void*, InlineId>, InlineId, Hash> ids_;
};

}  // namespace ptd
