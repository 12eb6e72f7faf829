// Demangling: C++ and Rust's legacy names through the C++ run-time library, Rust's v0 names by rust_name.h.
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

// Legacy Rust names are Itanium names whose last component is "h" and 16 hex digits.
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
  if (name.size() > kAlwaysShortBytes && !is_bounded_cpp_name(name)) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || !text) return name;
  std::string readable(text.get());
  strip_rust_hash(readable);
  return readable;
}

}  // namespace ptd
