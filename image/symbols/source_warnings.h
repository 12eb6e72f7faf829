// Files whose debug information exceeds a limit.
#pragma once

#include <string>
#include <vector>

namespace ptd {

/// Returns a sentence for each file whose source lines are not used because its debug information exceeds a limit; of every recording that
/// the process has opened, sorted. Thread-safe.
[[nodiscard]] std::vector<std::string> source_warnings();
void add_source_warning(const std::string& text);

}  // namespace ptd
