// ETMv4 and ETE packets as values. One table (packet_table.h) drives the reader.
#pragma once

#include <cstdint>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd::arm {

// clang-format off
/// [ETMv4] "Instruction trace packets", [ETE] "Trace packets". The names are those of the packet headers.
enum class PacketKind : uint8_t {
  async, discard, overflow, trace_info, timestamp, trace_on, func_ret, except, except_rtn, ite, trans_st, trans_commit, trans_fail, pe_reset,
  ccnt_f1, ccnt_f2, ccnt_f3, num_ds_mkr, unnum_ds_mkr, commit, cancel_f1, cancel_f1_mispred, mispredict, cancel_f2, cancel_f3,
  cond_i_f1, cond_i_f2, cond_i_f3, cond_flush, cond_res_f1, cond_res_f2, cond_res_f3, cond_res_f4, ignore, event, ctxt,
  addr_ctxt_l_32is0, addr_ctxt_l_32is1, addr_ctxt_l_64is0, addr_ctxt_l_64is1, ts_marker, addr_match, addr_s_is0, addr_s_is1,
  addr_l_32is0, addr_l_32is1, addr_l_64is0, addr_l_64is1, q,
  src_addr_match, src_addr_s_is0, src_addr_s_is1, src_addr_l_32is0, src_addr_l_32is1, src_addr_l_64is0, src_addr_l_64is1,
  atom_f1, atom_f2, atom_f3, atom_f4, atom_f5, atom_f6, bad,
};
// clang-format on
inline constexpr int kPacketKinds = static_cast<int>(PacketKind::bad) + 1;
[[nodiscard]] PTD_API const char* name(PacketKind kind);

/// The state of the PE according to a context packet.
struct PacketContext {
  bool present = false;  ///< the packet has a payload; if not, nothing changed
  uint8_t level = 0;     ///< exception level
  bool is64 = false;     ///< AArch64
  bool non_secure = false, root_or_realm = false;
  bool has_vmid = false, has_context_id = false;
  uint32_t vmid = 0, context_id = 0;
  friend constexpr bool operator==(const PacketContext&, const PacketContext&) = default;
};

/// One packet. `kind` determines which fields are used; the others are 0:
/// | kind                      | fields |
/// |---|---|
/// | atom_*                    | bits = number of atoms; value = the atoms, 1 is E, the oldest in bit 0 |
/// | addr_*, src_addr_*        | value = address, decompressed; isa = instruction set bit (1: T32) |
/// | ctxt, addr_ctxt_*         | context |
/// | except                    | extra = type; aux = 1: preferred return address follows, 2: it is also a target, 0: none; |
/// |                           | kFlagFault: a fault is pending (M profile) |
/// | trace_info                | value = INFO; aux = key; extra = speculation depth, if kFlagSpeculation; cycles = threshold |
/// | timestamp                 | value = timestamp, decompressed; kFlagCycles: cycles; kFlagNoTime: the value is wrong |
/// | ccnt_*                    | cycles, with the threshold added (kFlagCycles if known); kFlagCommit: value = elements committed |
/// | commit, cancel_*          | value = elements; cancel_f2, cancel_f3 and mispredict also bits and aux: the atoms before it |
/// | q                         | kFlagAddress: value, isa; kFlagCount: aux = instructions |
/// | event                     | value = one bit per event |
/// | ite                       | bits = exception level; value = 64 bits of software |
/// | num_ds_mkr, unnum_ds_mkr  | value |
/// | cond_*                    | value = key or token, as encoded |
struct Packet {
  PacketKind kind = PacketKind::bad;
  uint8_t bits = 0;
  uint8_t isa = 0;
  uint8_t flags = 0;
  uint32_t size_bytes = 0;
  uint32_t extra = 0;
  uint32_t cycles = 0;
  uint64_t value = 0;
  uint64_t aux = 0;
  PacketContext context;
  friend constexpr bool operator==(const Packet&, const Packet&) = default;
};
inline constexpr uint8_t kFlagCycles = 1;
inline constexpr uint8_t kFlagCommit = 2;
inline constexpr uint8_t kFlagAddress = 4;
inline constexpr uint8_t kFlagCount = 8;
inline constexpr uint8_t kFlagSpeculation = 16;
inline constexpr uint8_t kFlagFault = 32;
inline constexpr uint8_t kFlagNoTime = 64;

constexpr bool is_atom(PacketKind kind) { return kind >= PacketKind::atom_f1 && kind <= PacketKind::atom_f6; }
constexpr bool is_address_context(PacketKind kind) {
  return kind >= PacketKind::addr_ctxt_l_32is0 && kind <= PacketKind::addr_ctxt_l_64is1;
}
constexpr bool is_address(PacketKind kind) {
  return is_address_context(kind) || (kind >= PacketKind::addr_match && kind <= PacketKind::addr_l_64is1);
}
constexpr bool is_source_address(PacketKind kind) { return kind >= PacketKind::src_addr_match && kind <= PacketKind::src_addr_l_64is1; }

}  // namespace ptd::arm
