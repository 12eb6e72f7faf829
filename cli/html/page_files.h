// The files of cli/html/page, embedded by the build (cmake/EmbedFiles.cmake).
#pragma once

#include <string_view>

namespace ptd::cli {

/// Returns the content of a file; empty if there is none of this name.
[[nodiscard]] std::string_view page_file(std::string_view name);

}  // namespace ptd::cli
