// AuxWindow: which part of a stream each AUX sample holds. Private to the project.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

class Recording;

/// The trace that one sample holds (PERF_SAMPLE_AUX): the bytes that its stream's buffer got last before the sample.
///
///     stream  ......[ window 0 ......]    pause    [ window 1 ......]
///                                                       [ window 2 ......]     overlaps window 1: its bytes are stored once
///
/// A window whose bytes do not repeat those of the window before it begins after a pause of unknown content: see AuxBreak::snapshot.
struct AuxWindow {
  uint64_t first_bytes = 0, last_bytes = 0;  ///< stream offsets [first, last)
  std::string_view event;                    ///< name of the sample's event; valid as long as the recording
  TimeNs time;                               ///< of the sample; kTimeMin: not recorded
  Ip ip;                                     ///< of the sample; 0: not recorded
  int32_t pid = -1, tid = -1, cpu = -1;
};

/// Returns the windows of a stream of AUX samples in order of time, which is also that of their ends; none for other recordings.
[[nodiscard]] std::vector<AuxWindow> aux_windows(const Recording& recording, uint32_t stream);

}  // namespace ptd
