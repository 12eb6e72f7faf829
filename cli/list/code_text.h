// Code bytes of a timeline as text: disassembly at a moment, versions of an address, changes between two moments.
#pragma once

#include <optional>
#include <string>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// A place at a moment.
struct CodeSpot {
  SpaceId space = kKernelSpace;
  Ip ip;
  TimeNs when;
};

/// Lines "ip symbol: bytes  text", about `size_bytes` of them; says where bytes are missing.
[[nodiscard]] std::string disassembly_text(const Recording& recording, CodeSpot spot, uint64_t size_bytes, bool att_syntax);
/// The same without ip, symbol and version: "bytes  text".
[[nodiscard]] std::string instructions_text(const Recording& recording, CodeSpot spot, uint64_t size_bytes, bool att_syntax);
/// Returns the address of the instruction within which an address lies: the instructions are read from the start of the symbol. Nothing if
/// an instruction begins there, no symbol contains it, or bytes before it are unknown or no instruction.
[[nodiscard]] std::optional<Ip> covering_instruction(const Recording& recording, CodeSpot spot);
/// The versions of every site that intersects [ip, ip + size): number, when, bytes, text. Then the mappings that followed each other there.
/// Empty if nothing changed.
[[nodiscard]] std::string versions_text(const Recording& recording, SpaceId space, Ip ip, uint64_t size_bytes, bool att_syntax);
/// The version of a site live at `when`: its number, or nothing.
[[nodiscard]] std::optional<uint32_t> version_at(const Timeline& timeline, SiteId site, TimeNs when);
/// "name+0x12" or nothing.
[[nodiscard]] std::string symbol_text(const Recording& recording, SpaceId space, Ip ip, TimeNs when);
/// The site's name at the latest time at which it held code: out-of-line code has a name only while it exists.
[[nodiscard]] std::string site_symbol_text(const Recording& recording, SiteId site);
/// The first instructions of a version of a site, from the one within which the site lies on, joined by "; "; "..." if there are more.
/// Empty if the version's bytes are unknown.
[[nodiscard]] std::string version_line(const Recording& recording, SiteId site, uint32_t number, bool att_syntax);
/// First and last moment of the recording's trace, as far as known.
[[nodiscard]] Interval trace_time(const Recording& recording);

}  // namespace ptd::cli
