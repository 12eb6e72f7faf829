// Times of a jitdump that its own order, its process or its other times contradict. Private to recording.
#pragma once

#include <string>
#include <vector>

#include "recording/image/jit_image.h"

namespace ptd {

/// An event of a jitdump, dated on the recording's clock.
struct DatedCode {
  JitCode code;
  TimeNs time;
  bool assumed = false;  ///< its time proves nothing
};

/// Adds a finding about the file, from `since` on.
void report_jitdump(ImageBuild& image, const JitdumpMapping& mapping, FindingKind kind, TimeNs since, const std::string& what);
/// Marks all code if the file's header has the time `begin` (0: none) before its process started, or before the recording of a process
/// whose start is not recorded: the times are of another clock. Compilers make the header before or after they map the file.
void check_clock(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping, const JitClock& clock, TimeNs begin);
/// Replaces times that cannot be true, and reports them: no time of the file proves then which code ran when. `codes` are in file order.
/// `ended`: when the process that logged them ended. `all_later`: all code of the file is later than the recording.
void repair_times(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping, TimeNs ended, bool all_later);
[[nodiscard]] bool is_all_later(const std::vector<DatedCode>& codes, const JitClock& clock);
/// Marks code whose times contradict the order of the file, and all other code at its addresses: a compiler logs what replaces code after
/// it, code of one thread in order, and code of others within a millisecond of its order. `codes` are in file order.
void mark_disorder(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping);
/// Marks code that overlaps other code of the same time. `codes` are sorted by time.
void mark_equal_times(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping);

}  // namespace ptd
