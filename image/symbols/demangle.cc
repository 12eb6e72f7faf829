// Demangling: C++ names through the C++ run-time library, Rust's names by rust_name.h.
#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "image/symbols/rust_name.h"
#include "ptdecode/symbols.h"

namespace ptd {
namespace {

constexpr size_t kMaxMangledBytes = 2048;
constexpr size_t kAlwaysShortBytes = 100;  // too short for substitutions to make a long text

// Demangles legacy Rust names: Itanium names whose last component is a hash. Their other components escape characters: "$LT$" is '<', ".."
// is "::". Suffixes (".llvm.1234", ".cold") come from the compiler; ".llvm." marks a promotion to a global name and is still the same
// function.
std::string legacy_rust_name(const std::string& name) {
  constexpr size_t kHashBytes = 20;  // "17h", 16 digits and 'E'
  const size_t hash = name.rfind("17h");
  if (!name.starts_with("_ZN") || hash == std::string::npos || name.size() - hash < kHashBytes) return {};
  const size_t bytes = hash + kHashBytes;
  if (name[bytes - 1] != 'E' || (name.size() != bytes && name[bytes] != '.')) return {};
  std::string readable = demangle_rust(name.substr(0, bytes));
  const std::string suffix = name.substr(bytes);
  if (!readable.empty() && !suffix.empty() && !suffix.starts_with(".llvm.")) readable += " [clone " + suffix + "]";
  return readable;
}

// Removes the hash of a name that demangle_rust() rejects because the hash has too few distinct digits.
void strip_rust_hash(std::string& name) {
  constexpr size_t kHashBytes = 19;  // "::h" + 16 digits
  if (name.size() <= kHashBytes || name.compare(name.size() - kHashBytes, 3, "::h") != 0) return;
  if (!std::all_of(name.end() - 16, name.end(), [](unsigned char c) { return std::isxdigit(c) != 0; })) return;
  name.resize(name.size() - kHashBytes);
}

}  // namespace

std::string demangle(const std::string& name) {
  if (name.size() < 3 || name.size() > kMaxMangledBytes || name[0] != '_') return name;
  if (name[1] == 'R') {
    std::string readable = demangle_rust(name);
    return readable.empty() ? name : readable;
  }
  if (name[1] != 'Z') return name;
  if (std::string rust = legacy_rust_name(name); !rust.empty()) return rust;
  if (name.size() > kAlwaysShortBytes && !is_bounded_cpp_name(name)) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || !text) return name;
  std::string readable(text.get());
  strip_rust_hash(readable);
  return readable;
}

}  // namespace ptd
