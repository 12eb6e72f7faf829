// Names of functions for narrow places.
#pragma once

#include <string>
#include <string_view>

namespace ptd {

/// Returns the length of "non-virtual thunk to ", "TLS wrapper function for " or the like at the start of a demangled name: code that a
/// compiler made for the function named after it. 0 if there is none.
[[nodiscard]] size_t made_for_length(std::string_view name);
/// A demangled name without arguments, template arguments and return type: "shop::Basket::sum". A source file ("a.c:f") and "non-virtual
/// thunk to" stay. What no such name is stays as it is.
[[nodiscard]] std::string short_function(std::string_view name);
/// The name itself if it has at most `width` letters, else the short one, and if that is too long both of its ends. 0: no bound.
[[nodiscard]] std::string fit_function(std::string_view name, size_t width);

}  // namespace ptd
