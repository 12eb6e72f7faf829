// Names of functions chosen by --symbols and --func.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ptd {

/// Whether `pattern` holds a wildcard: '*', '?' or '['.
[[nodiscard]] bool is_glob(std::string_view pattern);
/// Whether `name` is `pattern`, or matches it as a glob: '*' any letters, '?' one, '[a-c]' one of these. '\' takes away the meaning of the
/// next letter. A name with wildcards of its own ("operator[]") is matched by itself too.
[[nodiscard]] bool matches_name(const std::string& pattern, std::string_view name);
/// Whether any pattern matches; an empty list matches all.
[[nodiscard]] bool name_wanted(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace ptd
