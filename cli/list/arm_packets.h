// ETMv4 and ETE packets as text, for `ptdecode packets` and `stat`.
#pragma once

#include <functional>

#include "cli/list/line_writer.h"
#include "ptdecode/arm/packet_reader.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Fields of a packet: "E", "0xffffffc000096a00", "EL1 NS AArch64 context 0x3e8".
void append_arm_fields(TextBuffer& out, const arm::Packet& packet);

/// Lists the packets of one segment: offset in the buffer, name, fields, bytes. Returns the places that hold no packet.
uint64_t list_arm_segment(const Recording& recording, uint32_t stream, const AuxSegment& segment, bool plain, TextBuffer& out);

/// Counts packets by name.
void count_arm_packets(const arm::TraceConfig& config, const AuxSegment& segment,
                       const std::function<void(const char* name, uint64_t bad_bytes)>& on_packet);

}  // namespace ptd::cli
