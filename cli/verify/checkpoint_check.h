// A decode against checkpoints of a ground truth (cli/verify/truth.h), stream by stream.
#pragma once

#include <string>
#include <vector>

#include "cli/verify/truth.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// What a whole stream's decode and its checkpoints say of each other.
struct CheckedStream {
  TruthCheck check;
  uint64_t gaps = 0, int3 = 0;
  [[nodiscard]] bool equal() const { return check.equal(); }
};
/// Decodes all of a stream. `on_progress` hears of trace bytes. Errors: those of Recording::decode().
[[nodiscard]] Result<CheckedStream> check_stream(const Recording& recording, uint32_t stream, std::vector<Checkpoint> truth,
                                                 const std::function<void(uint64_t bytes)>& on_progress);
/// One line; two more for the first difference.
[[nodiscard]] std::string checked_text(const StreamInfo& stream, const CheckedStream& checked);

/// The stream of the cpu that the name of a truth file tells ("...cpuN..."). Errors: usage if there is none.
[[nodiscard]] Result<uint32_t> stream_of_truth(const Recording& recording, const std::string& path);

}  // namespace ptd::cli
