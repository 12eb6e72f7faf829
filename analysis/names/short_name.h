// Names of functions for narrow places.
#pragma once

#include <string>
#include <string_view>

namespace ptd {

/// A demangled name without arguments, template arguments and return type: "shop::Basket::sum". What no such name is stays as it is.
[[nodiscard]] std::string short_function(std::string_view name);
/// The name itself if it has at most `width` letters, else the short one, and if that is too long both of its ends. 0: no bound.
[[nodiscard]] std::string fit_function(std::string_view name, size_t width);

}  // namespace ptd
