// Words of commands to paste.
#pragma once

#include <string>
#include <string_view>

namespace ptd::cli {

/// Returns a name as a word of a command: as shown() shows it, in quotes where a shell would interpret it.
[[nodiscard]] std::string shell_word(std::string_view name);

}  // namespace ptd::cli
