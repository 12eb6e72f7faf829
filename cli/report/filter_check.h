// Tells of filters that nothing in the recording matches, so that an empty listing explains itself.
#pragma once

#include <string>
#include <vector>

#include "cli/options/script_options.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// One sentence for each word of -C, --pid, --tid and --time that nothing in the recording can match, by its records.
[[nodiscard]] std::vector<std::string> impossible_filters(const ScriptOptions& options, const Recording& recording);
/// Why nothing was listed, with what there is instead; "" if no filter was given.
[[nodiscard]] std::string nothing_matched(const ScriptOptions& options, const Recording& recording);

}  // namespace ptd::cli
