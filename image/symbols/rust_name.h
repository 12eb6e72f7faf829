// Demangles names that rustc mangled, by the v0 scheme (RFC 2603) or the legacy one.
#pragma once

#include <string>

namespace ptd {

/// Returns the readable form of a "_R..." or "_ZN...17h<hash>E" name, without hashes; empty if it is not such a name or would be longer
/// than a few pages.
[[nodiscard]] std::string demangle_rust(const std::string& name);

/// Returns whether the readable form of an Itanium C++ name is at most 64 KiB. Each substitution may double it.
[[nodiscard]] bool is_bounded_cpp_name(const std::string& name);

}  // namespace ptd
