// Names of functions and files that options choose (--symbols, --func, --dso).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ptd {

/// Whether `pattern` holds a wildcard: '*', '?' or '['.
[[nodiscard]] bool is_glob(std::string_view pattern);
/// Whether `name` is `pattern`, or matches it as a glob: '*' any letters, '?' one, '[a-c]' one of these. '\' takes away the meaning of the
/// next letter. A name that contains wildcard characters ("operator[]") also matches literally. A C++ or Rust name also matches
/// without parameters and return type, and without template arguments: "f" and "f<int>" match "void f<int>(int)". A name with a source file
/// ("a.c:f") also matches without it, and one with a version ("f@@V1") without that. A pattern with a default version ("f@@V1") also
/// matches a name without one. The stub of a procedure linkage table ("f@plt") is another function than f: "f@plt" and globs that end with
/// '*' match it, "f" does not. A clone that a compiler made ("f(int) [clone .part.0]") has other code and matches by its whole name
/// only; so does a thunk ("non-virtual thunk to C::f(int)"), with or without parameters. A function that link-time optimization only
/// renamed ("f.lto_priv.0") also matches by its own name.
[[nodiscard]] bool matches_name(const std::string& pattern, std::string_view name);
/// Whether any pattern matches; an empty list matches all.
[[nodiscard]] bool name_wanted(const std::vector<std::string>& patterns, std::string_view name);
/// Returns the one of `names` that `pattern` is probably a misspelling of; "" if none is near.
[[nodiscard]] std::string nearest_name(const std::string& pattern, const std::vector<std::string>& names);

/// Whether `name` (of --dso) is that of the file: its path, or the end of its path from a '/' on ("prog" and "b/prog" of "/a/b/prog").
[[nodiscard]] bool names_file(std::string_view name, std::string_view path);

}  // namespace ptd
