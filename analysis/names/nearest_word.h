// The known word that a mistyped one was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ptd {

/// Letters to add, drop, change or swap with the next to make `b` of `a`.
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);
/// The nearest of `known` (the first of equals), if it begins with `word` or is at most a third of the letters away; else "".
[[nodiscard]] std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace ptd
