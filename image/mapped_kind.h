// Classifies a mapping by its path.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace ptd {

/// Returns true for mappings without a file: "//anon", "[heap]", "[stack]", "anon_inode:...", "/memfd:...", "/dev/zero", "/SYSV...".
[[nodiscard]] inline bool is_anonymous(const std::string& path) {
  static constexpr std::array<std::string_view, 10> kPrefixes = {
      "//anon", "[heap", "[stack", "[anon", "anon_inode:", "/memfd:", "/dev/zero", "/SYSV", "[uprobes]", "[vsyscall]"};
  if (path.empty() || path == "/anon_hugepage" || path.starts_with("/anon_hugepage")) return true;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) { return path.starts_with(prefix); });
}

/// Returns true for ".../jit-123.dump".
[[nodiscard]] inline bool is_jitdump_path(const std::string& path) {
  constexpr std::string_view kPrefix = "jit-", kSuffix = ".dump";
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.size() > kPrefix.size() + kSuffix.size() && name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         std::all_of(name.begin() + kPrefix.size(), name.end() - kSuffix.size(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns true for a file or the vdso, whose code is the same in every mapping; false for a process's own memory and for code from a
/// jitdump.
[[nodiscard]] inline bool shows_file(const std::string& path) { return !is_anonymous(path) && !is_jitdump_path(path); }

/// Returns true for a mapping of a process that shows code made at run time: its own memory, code from a jitdump, announced code.
[[nodiscard]] inline bool is_generated_code(const std::string& path) { return !shows_file(path) || path == "[jit]"; }

}  // namespace ptd
