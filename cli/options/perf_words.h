// Commands and options of perf that have another name here.
#pragma once

#include <string>
#include <string_view>

namespace ptd::cli {

/// What does here what perf's command or option `word` ("report", "--xed", "-D") does there; "" if it is not known as one of perf's.
[[nodiscard]] std::string nearest_of_perf(std::string_view word);

}  // namespace ptd::cli
