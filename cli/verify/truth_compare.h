// A decode against a complete ground truth (capture/emulate/etm/truth_file.h): every instruction, segment by segment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "capture/emulate/etm/truth_file.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Counts of instructions that ran in functions whose name fits a pattern.
struct NamedCounts {
  std::string pattern;  ///< fnmatch(3); names as the recording has them
  uint64_t truth = 0, right = 0, right_flagged = 0, wrong_flagged = 0, wrong = 0, lost = 0;
};

/// Counts of instructions.
struct TruthCounts {
  uint64_t truth = 0, decoded = 0;
  uint64_t right = 0;          ///< same address and bytes, in order
  uint64_t right_flagged = 0;  ///< of them in blocks marked ambiguous, chosen, healed or suspect
  uint64_t wrong_flagged = 0;  ///< other than the truth, in such blocks, or left out beside one
  uint64_t wrong = 0;          ///< other than the truth, without a mark
  uint64_t extra = 0;          ///< that did not run at all, without a mark; the others above are together all that ran
  uint64_t extra_flagged = 0;  ///< the same, in such blocks
  uint64_t lost = 0;           ///< of the truth, in the decoder's gaps
  uint64_t lost_as_asked = 0;  ///< of them where the recording itself lost packets (OVF)
  bool windows = false;        ///< the trace is of AUX samples: what ran between their windows is not traced, and counts as lost
  uint64_t after_end = 0;  ///< of the truth, after the trace's end: no packet covers it, or the thread was killed with packets unwritten
  uint64_t untold = 0;     ///< of the truth, rounds of loops without packets that the trace does not count, as it says or as it ends there
  uint64_t gaps = 0;
  bool has_end = true;  ///< the truth has the record of its thread's end
  bool has_first_wrong = false;
  uint64_t first_wrong_offset_bytes = 0;  ///< of the segment with the first difference
  Ip first_want, first_got;
  std::pair<std::string, std::string> first_bytes;  ///< of both, in hex, if the addresses are equal
  std::vector<NamedCounts> named;                   ///< an instruction counts for the first pattern that fits
  [[nodiscard]] uint64_t silent() const { return wrong + extra; }
  [[nodiscard]] bool equal() const {
    return wrong == 0 && wrong_flagged == 0 && extra == 0 && extra_flagged == 0 && untold == 0 && (windows || lost == lost_as_asked);
  }
};

/// Decodes a stream and compares. A PSB of the trace is found in the truth by its time or offset (psb_match.h), so that a difference ends
/// with its segment, or the next one whose PSB both have; inside one the two are aligned by address (flow_align.h). Errors: file_format for
/// a damaged truth; usage for one of another recording or thread.
[[nodiscard]] Result<TruthCounts> compare_with_truth(const Recording& recording, uint32_t stream, const std::string& truth_path,
                                                     const std::vector<std::string>& patterns,
                                                     const std::function<void(uint64_t bytes)>& on_progress);
/// One line, one more for the first difference, and one for each pattern.
[[nodiscard]] std::string truth_report(const StreamInfo& stream, const TruthCounts& counts);

/// "...tidN..." -> N, or -1.
[[nodiscard]] int32_t tid_of_path(const std::string& path);

}  // namespace ptd::cli
