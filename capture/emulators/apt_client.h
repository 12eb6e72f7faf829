// apt with lists and a cache of its own, for downloads without root rights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::emulators {

/// Which packages a list of repositories is for.
enum class PackageKind : uint8_t { source, binary, binary_with_backports };

/// Creates apt's folders in `work`, and WORK/sources.list with the repositories of the installed Debian or Ubuntu release that apt is
/// configured for, restricted to the distribution's own key where its file exists. Returns the distribution: "Debian" or "Ubuntu". Errors:
/// not_found if apt knows none; write_failed.
[[nodiscard]] Result<std::string> write_sources(const std::string& work, PackageKind kind);

/// The words of an apt command that uses them: the system's settings otherwise (proxies), only signed repositories, and no list may be
/// missing.
[[nodiscard]] std::vector<std::string> apt_words(const std::string& work, const std::vector<std::string>& more);

/// The line of sources.list for a line "ORIGIN|REPOSITORY RELEASE COMPONENT" of apt; "" for one that is not of the installed release.
[[nodiscard]] std::string source_line(const std::string& line, PackageKind kind);

}  // namespace ptd::emulators
