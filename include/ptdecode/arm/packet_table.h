// The table of ETMv4 and ETE packets: header patterns and layouts.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ptdecode/arm/config.h"
#include "ptdecode/arm/packet.h"
#include "ptdecode/export.h"

namespace ptd::arm {

/// Layout of a packet's bytes after the header.
enum class Layout : uint8_t {
  header,        ///< no bytes; the low bits of the header are the payload
  extension,     ///< 00: the second byte gives the kind
  trace_info,    ///< control byte, then the sections that it lists
  timestamp,     ///< up to nine bytes, seven bits each (the ninth eight), then a cycle count if bit 0 of the header is set
  exception,     ///< one or two bytes
  ite,           ///< exception level, 8 bytes
  cycles_1,      ///< commit count, cycle count
  cycles_2,      ///< commit count in the high half, cycle count in the low half of a byte
  cycles_3,      ///< both in the header
  number,        ///< seven bits a byte while bit 7 is set
  atoms_before,  ///< cancel and mispredict: atoms in the header's low bits
  one_byte,
  two_results,    ///< conditional result 1: one or two keys with results
  context,        ///< if bit 0 of the header is set: a byte, then the fields that it lists
  short_address,  ///< one or two bytes
  long_32,
  long_64,
  long_32_context,
  long_64_context,
  match,  ///< one of the last three addresses
  q,
  atoms,
};

/// Configurations in which a packet can occur.
enum class Needs : uint8_t { nothing, ete, etmv4, q, conditions, data, v4_3, v4_6 };

struct PacketForm {
  PacketKind kind = PacketKind::bad;
  uint8_t first = 0, last = 0;  ///< header bytes [first, last]
  Layout layout = Layout::header;
  Needs needs = Needs::nothing;
  uint8_t isa = 0;  ///< instruction set bit of its address
};

[[nodiscard]] PTD_API std::span<const PacketForm> packet_forms();

/// Layout of a packet that is only an address.
/// Bit 0 is the instruction set bit.
enum class AddressForm : uint8_t {
  none,
  match = 1,
  short_is0 = 2,
  short_is1 = 3,
  long_32is0 = 4,
  long_32is1 = 5,
  long_64is0 = 6,
  long_64is1 = 7
};

/// The most frequent packets of a trace. Atoms and addresses occur in every configuration.
struct PlainForm {
  uint8_t count = 0;  ///< number of atoms of an atom packet (which is only a header); 0: not an atom packet
  AddressForm address = AddressForm::none;
  bool aside = false;  ///< a packet of time, cycles, a marker or a commit, which does not affect the path of the flow
  uint32_t atoms = 0;  ///< 1 is E, the oldest in bit 0
};
/// Returns the table by header byte.
[[nodiscard]] PTD_API const std::array<PlainForm, 256>& plain_forms();

/// Index into packet_forms() for each header byte; kNoForm: reserved in this configuration.
using Dispatch = std::array<uint8_t, 256>;
inline constexpr uint8_t kNoForm = 0xff;
/// Returns the table for a configuration. It has static lifetime. Without `counts`, packets with a cycle count are reserved: cycle count
/// packets, and timestamps with one.
[[nodiscard]] PTD_API const Dispatch& dispatch_of(const TraceConfig& config, bool counts = true);

}  // namespace ptd::arm
