// Names chosen by globs: see name_match.h.
#include "analysis/name_match.h"

#include <fnmatch.h>

#include <algorithm>

namespace ptd {

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != std::string_view::npos; }

bool matches_name(const std::string& pattern, std::string_view name) {
  if (name == pattern) return true;
  return is_glob(pattern) && fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
}

bool name_wanted(const std::vector<std::string>& patterns, std::string_view name) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(), [&](const std::string& each) { return matches_name(each, name); });
}

}  // namespace ptd
