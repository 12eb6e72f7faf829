// Whether the execution modes that a segment's packets give contradict each other.
#pragma once

#include "ptdecode/aux_segment.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet.h"

namespace ptd::pt {

/// Returns the mode that a MODE.Exec packet gives.
[[nodiscard]] ExecMode exec_mode_of(const Packet& packet);

/// Returns true if the next PSB+ says another mode than the segment's last MODE.Exec packet. The processor writes one at each change ([SDM]
/// "MODE.Exec Packet"), so one of them is damaged, and no other packet shows which. Compares only segments whose own PSB+ has another mode
/// too. `mode`: of the segment's own PSB+.
[[nodiscard]] bool modes_contradict(const AuxSegment& segment, const Config& config, ExecMode mode);

}  // namespace ptd::pt
