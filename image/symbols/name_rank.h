// name_rank(): which of several names at one address is listed. Private to the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

namespace ptd {

/// What a symbol table says of a name.
struct NameTraits {
  std::string_view name;  ///< as in the symbol table
  bool function = true;   ///< not a label
  bool sized = true;
  bool global = true;  ///< or weak
  bool weak = false;
};

/// Names of one address sort by this key, the listed one first.
using NameRank = std::tuple<int, bool, size_t, std::string_view>;

/// Returns the length of the name without a symbol version: "free" of "free@@GLIBC_2.2.5" and of "cfree@GLIBC_2.2.5". A procedure linkage
/// table's entry ("free@plt") has no version, nor has a resolver ("memcpy@resolver").
[[nodiscard]] size_t unversioned_length(std::string_view name);
/// Whether the name has a version that is not the default: "cfree@GLIBC_2.2.5", which only programs linked long ago call.
[[nodiscard]] bool is_old_version(std::string_view name);

/// Whether a name is that of a procedure linkage table's entry or of a resolver: code of another function than its name begins with.
[[nodiscard]] bool is_stub_or_resolver(std::string_view name);

/// Functions come before resolvers (kResolverMark) and these before labels, then global before local, current before old versions, and few
/// underscores before many: "write" before "__write" and "__libc_write". Names that the build gives to many functions (init_module) and the
/// older names of system calls (SyS_read) come last. Of names that are still equal, strong comes before weak ("memcmp" before "bcmp"), then
/// the shorter ("fopen" before "fopen64", "__x64_sys_getpid" before "__ia32_sys_getpid"). perf prefers strong names to names without
/// underscores, and the longer name (linux "tools/perf/util/symbol.c", choose_best_symbol).
[[nodiscard]] NameRank name_rank(const NameTraits& symbol);

/// Returns the warning for an address with more names than Symbolizer::kMostNames.
[[nodiscard]] std::string names_sentence(const std::string& module, uint64_t address);

}  // namespace ptd
