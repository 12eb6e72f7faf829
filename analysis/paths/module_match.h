// Which code of two recordings is the same: modules by their files, code without a symbol by its build.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "ptdecode/function_table.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Returns whether no symbol names the function: its name then contains its module.
[[nodiscard]] bool is_unnamed(const FunctionInfo& function);

/// The differences between the modules of one of two recordings and those of the other.
struct ModuleMatch {
  std::map<std::string, std::string, std::less<>> names;  ///< of modules that the other side has under another name: that name
  std::set<std::string, std::less<>> other_builds;        ///< modules that the other side has in another build

  /// Returns whether a function can be compared: at an offset without a symbol, another build has another function.
  [[nodiscard]] bool has_match(const FunctionInfo& function) const {
    return !is_unnamed(function) || !other_builds.contains(function.module);
  }
  /// Returns the name and module that the other recording gives the function.
  [[nodiscard]] FunctionInfo renamed(const FunctionInfo& function) const;
};

/// Matches the modules of two recordings by paths and build ids. The names of A's modules are kept: only the second result has `names`.
[[nodiscard]] std::array<ModuleMatch, 2> match_modules(const Recording& a, const Recording& b);

}  // namespace ptd
