// Names that rustc mangled, by the v0 scheme (RFC 2603) or the legacy one.
#pragma once

#include <string>

namespace ptd {

/// The readable form of a "_R..." or "_ZN...17h<hash>E" name, without hashes; empty if it is none, or would be longer than a few pages.
[[nodiscard]] std::string demangle_rust(const std::string& name);

}  // namespace ptd
