// The table of Intel PT packets: bit patterns and fields, for reading and for writing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ptdecode/pt/packet.h"

namespace ptd::pt {

inline constexpr uint64_t kPsbBytes = 16;
inline constexpr uint8_t kLongTntBits = 47;  ///< branches in a full long TNT
/// By IPBytes: what a compressed address replaces.
inline constexpr std::array<uint64_t, 8> kIpMask = {0, 0xffff, 0xffffffff, 0xffffffffffff, 0xffffffffffff, 0, ~uint64_t{0}, 0};

/// Layout of a packet's bytes.
enum class Layout : uint8_t {
  fields,      ///< fixed size; every field is listed
  psb,         ///< 16 bytes of 02 82
  tnt_short,   ///< branches below a stop bit, above a 0 in bit 0
  tnt_long,    ///< branches below a stop bit in six bytes
  ip,          ///< IPBytes in bits 7:5 of the first byte, then 0, 2, 4, 6 or 8 bytes
  cyc,         ///< 5 bits, then 7 a byte while the byte's Exp bit is set
  block_item,  ///< BIP: 4 or 8 payload bytes, only between BBP and BEP
};

/// The member of Packet that stores a field. flag_*: the bit of Packet::flags.
enum class Slot : uint8_t {
  none,
  value,
  aux,
  bits,
  extra,
  flag_ip,
  flag_non_root,
  flag_cs_l,
  flag_cs_d,
  flag_if,
  flag_in_tx,
  flag_abort,
  flag_hw
};

struct Field {
  Slot slot = Slot::none;
  uint8_t bit = 0;    ///< first bit, counted from bit 0 of the packet's first byte
  uint8_t width = 0;  ///< bits
  uint8_t shift = 0;  ///< the member holds the field shifted left by this
};

inline constexpr size_t kMaxFields = 5;
inline constexpr size_t kMaxPacketBytes = 16;

/// One form of a packet.
struct PacketForm {
  PacketKind kind = PacketKind::bad;
  Layout layout = Layout::fields;
  uint8_t first = 0, first_mask = 0xff;  ///< opcode byte
  uint8_t second = 0, second_mask = 0;   ///< second byte, where mask != 0
  uint8_t third = 0, third_mask = 0;
  uint8_t size_bytes = 0;  ///< 0: determined by the layout
  uint8_t bits = 0;        ///< constant for Packet::bits; 0: none
  std::array<Field, kMaxFields> fields{};
};

/// All forms; every packet kind but `bad` has at least one.
[[nodiscard]] std::span<const PacketForm> packet_forms();

/// The action for a first byte. Values from `form` on are for packets whose first byte alone determines the form.
enum class Lead : uint8_t { bad, pad, tnt_short, ip_tip, ip_pge, ip_pgd, ip_fup, cyc, mtc, escape, mode, form };

/// Dispatch built from the forms.
struct Dispatch {
  std::array<Lead, 256> lead{};
  std::array<uint8_t, 256> form_of_first{};   ///< index of the form where lead is `form` or `mtc`
  std::array<uint8_t, 256> form_of_escape{};  ///< by the byte after 02; kNoForm: unknown
  std::array<uint8_t, 256> form_of_mode{};    ///< by the byte after 99
  std::array<uint8_t, 8> ip_size{};           ///< payload bytes by IPBytes; kNoForm: reserved
};
inline constexpr uint8_t kNoForm = 0xff;
extern const Dispatch kDispatch;

/// Reads the fields of a complete packet; `bytes` has form.size_bytes bytes. Returns false on a reserved combination.
[[nodiscard]] bool decode_fields(const PacketForm& form, const std::byte* bytes, Packet& packet);
/// Writes the bytes of a packet of this form to `out` (form.size_bytes of them). Returns false if a member does not fit in its fields, or
/// if a member without a field is not 0.
[[nodiscard]] bool encode_fields(const PacketForm& form, const Packet& packet, std::byte* out);

}  // namespace ptd::pt
