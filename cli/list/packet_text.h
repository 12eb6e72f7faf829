// One Intel PT packet as a line of `ptdecode packets`.
#pragma once

#include <string_view>

#include "cli/text/output.h"
#include "ptdecode/pt/packet.h"

namespace ptd::cli {

/// Appends the packet's short name, padded: "tip.pgd    ".
void append_packet_name(TextBuffer& out, const pt::Packet& packet);
/// Appends its fields: "3: 0000000000400511", "!!.!", "cs.l", ...
void append_packet_fields(TextBuffer& out, const pt::Packet& packet);
/// The short name alone.
[[nodiscard]] std::string_view short_name(pt::PacketKind kind);

}  // namespace ptd::cli
