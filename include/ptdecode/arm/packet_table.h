// The table of ETMv4 and ETE packets: header patterns and layouts.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ptdecode/arm/config.h"
#include "ptdecode/arm/packet.h"
#include "ptdecode/export.h"

namespace ptd::arm {

/// How a packet's bytes behind the header are laid out.
enum class Layout : uint8_t {
  header,        ///< none; what the header says is in its low bits
  extension,     ///< 00: the second byte tells
  trace_info,    ///< control, then the sections that it announces
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
  context,        ///< a byte and what it announces, if bit 0 of the header is set
  short_address,  ///< one or two bytes
  long_32,
  long_64,
  long_32_context,
  long_64_context,
  match,  ///< one of the last three addresses
  q,
  atoms,
};

/// When a packet can stand in a stream.
enum class Needs : uint8_t { nothing, ete, etmv4, q, conditions, data, v4_3, v4_6 };

struct PacketForm {
  PacketKind kind = PacketKind::bad;
  uint8_t first = 0, last = 0;  ///< header bytes [first, last]
  Layout layout = Layout::header;
  Needs needs = Needs::nothing;
  uint8_t isa = 0;  ///< instruction set bit of its address
};

[[nodiscard]] PTD_API std::span<const PacketForm> packet_forms();

/// How a packet that is an address and nothing else is laid out.
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

/// The packets that most of a trace is made of. Atoms and addresses stand in streams of any configuration.
struct PlainForm {
  uint8_t count = 0;  ///< atoms of an atom packet, which is its header and nothing else; 0: the header is of another packet
  AddressForm address = AddressForm::none;
  bool aside = false;  ///< a packet of time, cycles or a marker, or a commit: it tells nothing of the way that the flow goes
  uint32_t atoms = 0;  ///< 1 is E, the oldest in bit 0
};
/// By header byte.
[[nodiscard]] PTD_API const std::array<PlainForm, 256>& plain_forms();

/// Index into packet_forms() by header byte; kNoForm: reserved in this configuration.
using Dispatch = std::array<uint8_t, 256>;
inline constexpr uint8_t kNoForm = 0xff;
/// Stays for good.
[[nodiscard]] PTD_API const Dispatch& dispatch_of(const TraceConfig& config);

}  // namespace ptd::arm
