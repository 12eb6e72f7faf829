// Names that rustc's v0 scheme mangled (RFC 2603).
#pragma once

#include <string>

namespace ptd {

/// The readable form of a "_R..." name, without hashes; empty if it is none, or would be longer than a few pages.
[[nodiscard]] std::string demangle_rust(const std::string& name);

/// Returns whether the readable form of an Itanium C++ name is at most 64 KiB: each substitution may double it.
[[nodiscard]] bool is_bounded_cpp_name(const std::string& name);

}  // namespace ptd
