// Names of functions and files: see name_match.h.
#include "analysis/names/name_match.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "analysis/names/nearest_word.h"
#include "analysis/names/short_name.h"
#include "image/placed_name.h"
#include "ptdecode/symbols.h"

namespace ptd {

namespace {

/// Whether `name` has forms that people write: a name with parameters or template arguments that is not a clone of another function.
bool has_forms(std::string_view name) {
  return name.find_first_of("(<") != std::string_view::npos && name.find(" [clone ") == std::string_view::npos;
}

/// Returns "f<int>" of "void f<int>(int) const". A name whose parameters are not certain is returned as it is.
std::string_view without_parameters(std::string_view name) {
  constexpr std::string_view kOperator = "operator";
  const size_t close = name.rfind(')');
  size_t open = close;
  for (size_t depth = 0; open != std::string_view::npos; --open) {
    if (name[open] == ')') ++depth;
    if (name[open] == '(' && --depth == 0) break;
    if (open == 0) return name;
  }
  if (open == std::string_view::npos || open == 0 || name.substr(0, open).ends_with(kOperator)) return name;
  name = name.substr(0, open);
  if (name.find(kOperator) != std::string_view::npos) return name;  // its signs are no brackets, and "operator new" has no return type
  size_t word = 0, depth = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    const char c = name[at];
    if (c == '<' || c == '(') ++depth;
    if ((c == '>' || c == ')') && depth != 0) --depth;
    if (c == ' ' && depth == 0) word = at + 1;
  }
  return name.substr(word);
}

/// Returns the length of the name without " [clone .lto_priv.0]" or ".lto_priv.0": link-time optimization renames a function whose name
/// another file has too, and leaves its code as it is (GCC, lto_privatize_decl).
size_t length_before_lto(std::string_view name) {
  constexpr std::string_view kRenamed = ".lto_priv.", kClone = " [clone ";
  const size_t at = name.rfind(kRenamed);
  if (at == std::string_view::npos) return name.size();
  std::string_view number = name.substr(at + kRenamed.size()), before = name.substr(0, at);
  if (before.ends_with(kClone)) {
    if (!number.ends_with(']')) return name.size();
    number.remove_suffix(1);
    before.remove_suffix(kClone.size());
  }
  const bool is_number = !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? before.size() : name.size();
}

/// Whether a linker's name of a C++ or Rust function has this form.
bool is_mangled(std::string_view name) { return name.starts_with("_Z") || name.starts_with("_R"); }

}  // namespace

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != std::string_view::npos; }

bool matches_name(const std::string& pattern, std::string_view name) {
  if (is_mangled(pattern) && !is_glob(pattern)) {
    if (const std::string readable = demangle(pattern); readable != pattern && matches_name(readable, name)) return true;
  }
  const auto matches = [&pattern](std::string_view form) {
    return form == pattern || (is_glob(pattern) && fnmatch(pattern.c_str(), std::string(form).c_str(), 0) == 0);
  };
  if (matches(name)) return true;
  if (name.ends_with(kPltMark)) {  // a stub of a procedure linkage table is a function of its own
    const std::string_view called = name.substr(0, name.size() - kPltMark.size());
    const bool names_stub = pattern.ends_with(kPltMark), any_end = pattern.ends_with('*') && !pattern.ends_with("\\*");
    return (names_stub || any_end) && matches_name(pattern.substr(0, pattern.size() - (names_stub ? kPltMark.size() : 0)), called);
  }
  if (const size_t version = pattern.find("@@"); version != std::string::npos && version != 0 && name.find('@') == std::string_view::npos)
    return matches_name(pattern.substr(0, version), name);
  if (name.ends_with(kResolverMark)) return false;  // of a resolver, another function than what is before it
  // A version of a dynamic symbol: "dlopen@@GLIBC_2.34" of an executable that calls it, or of a library that defines it.
  if (const size_t version = name.find('@'); version != std::string_view::npos && version != 0)
    return pattern.find('@') == std::string::npos && matches_name(pattern, name.substr(0, version));
  if (const size_t before = length_before_lto(name); before != 0 && before != name.size())
    return matches_name(pattern, name.substr(0, before));
  if (const size_t place = place_length(name); place != 0) {
    const std::string_view rest = name.substr(place);
    return matches_name(pattern, rest) || (pattern.starts_with(name.substr(0, place)) && matches_name(pattern.substr(place), rest));
  }
  if (!has_forms(name)) return false;
  if (const size_t lead = made_for_length(name); lead != 0) {
    const std::string made_for(name.substr(0, lead));
    return matches(made_for + std::string(without_parameters(name.substr(lead)))) || matches(short_function(name));
  }
  if (matches(without_parameters(name))) return true;
  if (!is_glob(pattern)) {  // a cheap test that rejects most names before short_function() allocates
    const size_t last = pattern.rfind(':');
    if (name.find(std::string_view(pattern).substr(last == std::string::npos ? 0 : last + 1)) == std::string_view::npos) return false;
  }
  return matches(short_function(name));
}

std::string nearest_name(const std::string& pattern, const std::vector<std::string>& names) {
  std::vector<std::string> forms;
  for (const std::string& name : names) {
    const size_t version = pattern.find('@') == std::string::npos ? name.find('@', 1) : std::string::npos;
    const std::string whole = name.substr(0, version);
    forms.push_back(has_forms(whole) ? short_function(whole) : whole);
  }
  const std::string near = nearest_word(pattern, forms);
  const auto found = std::find(forms.begin(), forms.end(), near);
  return near.empty() || found == forms.end() ? std::string() : names[static_cast<size_t>(found - forms.begin())];
}

bool names_file(std::string_view name, std::string_view path) {
  if (name.empty() || name == path) return !name.empty();
  const std::string end = "/" + std::filesystem::path(name).lexically_normal().string();  // of "./b/prog", too
  return !path.starts_with('[') && path.ends_with(end);
}

bool name_wanted(const std::vector<std::string>& patterns, std::string_view name) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(), [&](const std::string& each) { return matches_name(each, name); });
}

}  // namespace ptd
