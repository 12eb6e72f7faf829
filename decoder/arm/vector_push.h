// push(): push_back() for the inner loops.
#pragma once

#include <algorithm>
#include <vector>

namespace ptd::arm {

template <typename T>
[[gnu::noinline]] void grow(std::vector<T>& in) {
  constexpr size_t kFirst = 64;
  in.reserve(std::max(kFirst, 2 * in.size()));
}

/// Same as push_back(), but the first call allocates space for 64 elements, and growing is not inlined.
template <typename T>
[[gnu::always_inline]] inline void push(std::vector<T>& into, const T& what) {
  if (into.size() == into.capacity()) grow(into);
  into.push_back(what);
}

}  // namespace ptd::arm
