// Tells of filters that nothing in the recording matches, so that an empty listing explains itself.
#pragma once

#include <string>
#include <vector>

#include "cli/options/script_options.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Whether the recording's trace is dated at all. Of the streams of CoreSight snapshots and captures, which no record dates, this is not
/// known: true.
[[nodiscard]] bool has_time(const Recording& recording);
/// Why it is not: half a sentence.
[[nodiscard]] const char* why_untimed(const Recording& recording);
/// Whether thread `tid` has a name at some time in `during` that --comm lets pass.
[[nodiscard]] bool ever_named(const ScriptOptions& options, const Recording& recording, int32_t tid, Interval during);
/// The streams that may have something that -C, --pid, --tid and --comm let pass. If the records prove that no thread matches --pid or
/// --comm: all that the others let pass.
[[nodiscard]] std::vector<uint32_t> matching_streams(const ScriptOptions& options, const Recording& recording);
/// One sentence for each word of -C, --pid, --tid and --time that nothing in the recording can match, by its records.
[[nodiscard]] std::vector<std::string> impossible_filters(const ScriptOptions& options, const Recording& recording);
/// Why nothing was listed, with what there is instead; "" if no filter was given.
[[nodiscard]] std::string nothing_matched(const ScriptOptions& options, const Recording& recording);

}  // namespace ptd::cli
