// Findings that say what the recorder could not record: processes and programs of which there is no trace, and no gap.
#pragma once

#include <string>
#include <string_view>

#include "ptdecode/finding.h"

namespace ptd {

inline constexpr std::string_view kAbsence = "the recording is incomplete: ";

[[nodiscard]] inline std::string absence_of(std::string_view what) { return std::string(kAbsence).append(what); }

[[nodiscard]] inline bool is_absence(const Finding& finding) {
  return finding.kind == FindingKind::trace_lost && finding.what.starts_with(kAbsence);
}

}  // namespace ptd
