// Helpers that append to vectors in the inner loops.
#pragma once

#include <algorithm>
#include <vector>

namespace ptd::arm {

template <typename T>
[[gnu::noinline]] void make_room(std::vector<T>& in) {
  constexpr size_t kFirst = 64;
  in.reserve(std::max(kFirst, 2 * in.size()));
}

/// Same as push_back(), but reserves more capacity on the first calls.
template <typename T>
[[gnu::always_inline]] inline void push(std::vector<T>& into, const T& what) {
  if (into.size() == into.capacity()) make_room(into);
  into.push_back(what);
}

}  // namespace ptd::arm
