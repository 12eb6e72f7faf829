// Ranks of names: see name_rank.h.
#include "image/symbols/name_rank.h"

#include <algorithm>

#include "image/placed_name.h"
#include "ptdecode/symbols.h"

namespace ptd {
namespace {

constexpr size_t kMostUnderscores = 10;

// Names that many functions have as an alias: the entry points of kernel modules, and what system calls were called before Linux 4.17.
bool is_generic(std::string_view name) {
  return name == "init_module" || name == "cleanup_module" || name.starts_with("SyS_") || name.starts_with("compat_SyS_");
}

}  // namespace

size_t unversioned_length(std::string_view name) {
  const size_t at = name.find('@', 1);
  return at == std::string_view::npos || is_stub_or_resolver(name) ? name.size() : at;
}

bool is_stub_or_resolver(std::string_view name) { return name.ends_with(kPltMark) || name.ends_with(kResolverMark); }

bool is_old_version(std::string_view name) {
  const size_t length = unversioned_length(name);
  return length + 1 < name.size() && name[length + 1] != '@';
}

NameRank name_rank(const NameTraits& symbol) {
  const size_t underscores = std::min(symbol.name.find_first_not_of('_'), symbol.name.size());
  const int kind = (symbol.function ? 0 : 2000) + (symbol.name.ends_with(kResolverMark) ? 1000 : 0) + (symbol.sized ? 0 : 500) +
                   (is_generic(symbol.name) ? 200 : 0) + (symbol.global ? 0 : 100) + (is_old_version(symbol.name) ? 50 : 0) +
                   static_cast<int>(std::min(underscores, kMostUnderscores));
  return {kind, symbol.weak, unversioned_length(symbol.name), symbol.name};
}

std::string names_sentence(const std::string& module, uint64_t address) {
  return module + ": more than " + std::to_string(Symbolizer::kMostNames) + " symbols at address " + hex_text(address) +
         "; filters by name know only the first of them";
}

}  // namespace ptd
