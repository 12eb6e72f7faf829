// PathProfile: calls and time by call path. ProfileDiff: the profiles of two recordings, side by side.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/paths/call_paths.h"
#include "analysis/paths/module_match.h"
#include "ptdecode/function_profile.h"
#include "ptdecode/function_table.h"

namespace ptd {

/// Calls and what they took. Of a path: without its callees' share, except in `total`.
struct CallSums {
  uint64_t calls = 0;
  uint64_t starts = 0;   ///< of `calls`, those whose start is in the trace; an inlined function that goes on is one without
  uint64_t undated = 0;  ///< calls without times: where there are any, the sums of times are unknown
  uint64_t self_ns = 0, total_ns = 0;
  uint64_t self_instructions = 0, total_instructions = 0;
  CallSums& operator+=(const CallSums& other);
};

/// Adds up the calls of one recording, by function and by path. Not thread-safe.
class PathProfile {
 public:
  void take(const CallStep& step);
  /// The sums by CallPaths number, before CallPaths::settled().
  [[nodiscard]] const std::vector<CallSums>& sums() const { return sums_; }
  [[nodiscard]] const CallPaths& paths() const { return open_.paths(); }
  [[nodiscard]] const FunctionProfile& functions() const { return functions_; }

 private:
  OpenCalls open_{OpenCalls::Callers::later};
  std::vector<CallSums> sums_;
  FunctionProfile functions_;
};

/// One of the two recordings of a comparison. Both must outlive the ProfileDiff only while it is made.
struct DiffSide {
  const PathProfile& profile;
  const FunctionTable& functions;
  std::function<bool(std::string_view module)> has_debug_information;
  ModuleMatch modules{};
};

/// Matches the functions of two recordings by name and module; those that are left, by name, if it is the only one that is left in each:
/// another version of a program may have another file name. Then by the name in the source, without suffixes of clones (f.constprop.0) and
/// pieces (f.cold) and the mark of inlined functions, if each side has one function of that name. Code without a symbol, whose name is an
/// offset, has no match in another build. Untraced code is a function without a name. Where only one recording has the debug information of
/// a module, its inlined functions count as part of their callers. Immutable.
class ProfileDiff {
 public:
  static constexpr size_t kSides = 2;
  using Sums = std::array<CallSums, kSides>;
  struct Function {
    std::array<FunctionInfo, kSides> info;  ///< of a side that has not the function: that of the other
    Sums sums;
  };
  struct Path {
    uint32_t parent = CallPaths::kRoot;
    size_t function = 0;  ///< index into functions()
    Sums sums;
  };

  ProfileDiff(const DiffSide& a, const DiffSide& b);
  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }
  /// All paths, callers first; the first one is CallPaths::kRoot, of no function.
  [[nodiscard]] const std::vector<Path>& paths() const { return paths_; }
  /// The modules of each side whose inlined functions count as part of their callers.
  [[nodiscard]] const std::array<std::set<std::string>, kSides>& folded() const { return folded_; }
  /// The modules of which code without a symbol ran and is not matched.
  [[nodiscard]] const std::set<std::string>& unmatched() const { return unmatched_; }

 private:
  using Matches = std::array<std::vector<size_t>, kSides>;  ///< by FunctionId + 1: the index in functions_
  void match_functions(const std::array<DiffSide, kSides>& sides, Matches& matches);
  void match_left(const std::array<DiffSide, kSides>& sides, Matches& matches, const std::function<std::string(const FunctionInfo&)>& key,
                  bool strict);
  void match_clones(const std::array<DiffSide, kSides>& sides, Matches& matches);
  void find_folded(const std::array<DiffSide, kSides>& sides);
  void fold_functions(const std::array<DiffSide, kSides>& sides, Matches& matches);
  void match_paths(const std::array<DiffSide, kSides>& sides, const Matches& matches);

  std::vector<Function> functions_;
  std::vector<Path> paths_;
  std::array<std::set<std::string>, kSides> folded_;
  std::set<std::string> unmatched_;
};

}  // namespace ptd
