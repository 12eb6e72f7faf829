// The packet table. Comments are the bit patterns of [ETMv4] "Instruction trace packets" and [ETE] "Trace packets".
#include "ptdecode/arm/packet_table.h"

namespace ptd::arm {
namespace {

using enum PacketKind;

// clang-format off
constexpr PacketForm kForms[] = {
    // 00000000: then 00000000 x10 10000000 A-Sync, 00000011 Discard, 00000101 Overflow
    {async, 0x00, 0x00, Layout::extension},
    // 00000001 plctl info key spec cyct wndw
    {trace_info, 0x01, 0x01, Layout::trace_info},
    // 0000001N: N = a cycle count follows
    {timestamp, 0x02, 0x03, Layout::timestamp},
    // 00000100
    {trace_on, 0x04, 0x04},
    // 00000101
    {func_ret, 0x05, 0x05, Layout::header, Needs::etmv4},
    // 00000110 c1tttttE --pttttt: E1:E0 = meaning of the address that follows, t = type, p = fault pending
    {except, 0x06, 0x06, Layout::exception},
    // 00000111
    {except_rtn, 0x07, 0x07, Layout::header, Needs::etmv4},
    // 00001001 el v[63:0]
    {ite, 0x09, 0x09, Layout::ite, Needs::ete},
    // 00001010
    {trans_st, 0x0a, 0x0a, Layout::header, Needs::ete},
    // 00001011
    {trans_commit, 0x0b, 0x0b, Layout::header, Needs::ete},
    // 0000110F aaaabbbb: a = elements committed, F = counted from the maximum depth, b = cycles
    {ccnt_f2, 0x0c, 0x0d, Layout::cycles_2},
    // 0000111U commit count: U = cycles unknown
    {ccnt_f1, 0x0e, 0x0f, Layout::cycles_1},
    // 0001aabb
    {ccnt_f3, 0x10, 0x1f, Layout::cycles_3},
    // 00100nnn
    {num_ds_mkr, 0x20, 0x27, Layout::header, Needs::data},
    // 00101nnn
    {unnum_ds_mkr, 0x28, 0x2c, Layout::header, Needs::data},
    // 00101101 commit
    {commit, 0x2d, 0x2d, Layout::number},
    // 0010111M cancel: M = a mispredict follows
    {cancel_f1, 0x2e, 0x2e, Layout::number},
    {cancel_f1_mispred, 0x2f, 0x2f, Layout::number},
    // 001100aa: aa = atoms before it
    {mispredict, 0x30, 0x33, Layout::atoms_before},
    // 001101aa
    {cancel_f2, 0x34, 0x37, Layout::atoms_before},
    // 00111ccA: A = an E atom before it, cc = elements - 2
    {cancel_f3, 0x38, 0x3f, Layout::atoms_before},
    // 010000-- (not 11)
    {cond_i_f2, 0x40, 0x42, Layout::header, Needs::conditions},
    // 01000011
    {cond_flush, 0x43, 0x43, Layout::header, Needs::conditions},
    // 010001tt (not 11)
    {cond_res_f4, 0x44, 0x46, Layout::header, Needs::conditions},
    // 01001ktt (tt not 11)
    {cond_res_f2, 0x48, 0x4a, Layout::header, Needs::conditions},
    {cond_res_f2, 0x4c, 0x4e, Layout::header, Needs::conditions},
    // 0101tttt tttttttt
    {cond_res_f3, 0x50, 0x5f, Layout::one_byte, Needs::conditions},
    // 011010cc key result key result
    {cond_res_f1, 0x68, 0x6b, Layout::two_results, Needs::conditions},
    // 0110111c key result
    {cond_res_f1, 0x6e, 0x6f, Layout::two_results, Needs::conditions},
    // 01101100 key
    {cond_i_f1, 0x6c, 0x6c, Layout::number, Needs::conditions},
    // 01101101 -nnnnnnz
    {cond_i_f3, 0x6d, 0x6d, Layout::one_byte, Needs::conditions},
    // 01110000
    {ignore, 0x70, 0x70, Layout::header, Needs::v4_3},
    // 0111eeee (not 0000)
    {event, 0x71, 0x7f},
    // 1000000P: P = c v n s e ll vmid context
    {ctxt, 0x80, 0x81, Layout::context},
    // 100000i1 .. 10000101, 10000110: address, then context
    {addr_ctxt_l_32is0, 0x82, 0x82, Layout::long_32_context, Needs::nothing, 0},
    {addr_ctxt_l_32is1, 0x83, 0x83, Layout::long_32_context, Needs::nothing, 1},
    {addr_ctxt_l_64is0, 0x85, 0x85, Layout::long_64_context, Needs::nothing, 0},
    {addr_ctxt_l_64is1, 0x86, 0x86, Layout::long_64_context, Needs::nothing, 1},
    // 10001000
    {ts_marker, 0x88, 0x88, Layout::header, Needs::v4_6},
    // 100100nn (not 11): n = which of the last addresses
    {addr_match, 0x90, 0x92, Layout::match},
    // 10010101 caaaaaaa aaaaaaaa: from bit 2 on; 10010110: from bit 1 on
    {addr_s_is0, 0x95, 0x95, Layout::short_address, Needs::nothing, 0},
    {addr_s_is1, 0x96, 0x96, Layout::short_address, Needs::nothing, 1},
    // 10011010, 10011011: 32 bits; 10011101, 10011110: 64 bits
    {addr_l_32is0, 0x9a, 0x9a, Layout::long_32, Needs::nothing, 0},
    {addr_l_32is1, 0x9b, 0x9b, Layout::long_32, Needs::nothing, 1},
    {addr_l_64is0, 0x9d, 0x9d, Layout::long_64, Needs::nothing, 0},
    {addr_l_64is1, 0x9e, 0x9e, Layout::long_64, Needs::nothing, 1},
    // 1010tttt: t = what of address and count follows
    {q, 0xa0, 0xa2, Layout::q, Needs::q},
    {q, 0xa5, 0xa6, Layout::q, Needs::q},
    {q, 0xaa, 0xac, Layout::q, Needs::q},
    {q, 0xaf, 0xaf, Layout::q, Needs::q},
    // 101100nn (not 11)
    {src_addr_match, 0xb0, 0xb2, Layout::match, Needs::ete},
    // 10110100, 10110101; 10110110, 10110111; 10111000, 10111001
    {src_addr_s_is0, 0xb4, 0xb4, Layout::short_address, Needs::ete, 0},
    {src_addr_s_is1, 0xb5, 0xb5, Layout::short_address, Needs::ete, 1},
    {src_addr_l_32is0, 0xb6, 0xb6, Layout::long_32, Needs::ete, 0},
    {src_addr_l_32is1, 0xb7, 0xb7, Layout::long_32, Needs::ete, 1},
    {src_addr_l_64is0, 0xb8, 0xb8, Layout::long_64, Needs::ete, 0},
    {src_addr_l_64is1, 0xb9, 0xb9, Layout::long_64, Needs::ete, 1},
    // 11a0cccc .. : c + 3 E atoms, then one more: E where bit 5 is clear
    {atom_f6, 0xc0, 0xd4, Layout::atoms},
    {atom_f6, 0xe0, 0xf4, Layout::atoms},
    // 1101.101 .. 11.10111: five atoms
    {atom_f5, 0xd5, 0xd7, Layout::atoms},
    {atom_f5, 0xf5, 0xf5, Layout::atoms},
    // 110110aa
    {atom_f2, 0xd8, 0xdb, Layout::atoms},
    // 110111aa: four atoms
    {atom_f4, 0xdc, 0xdf, Layout::atoms},
    // 1111011a
    {atom_f1, 0xf6, 0xf7, Layout::atoms},
    // 11111aaa
    {atom_f3, 0xf8, 0xff, Layout::atoms},
};
// clang-format on
static_assert(std::size(kForms) < kNoForm);

/// Returns the Needs that a configuration satisfies; bit i - 1 is Needs i.
constexpr unsigned kNeeds = 7;
static_assert(static_cast<unsigned>(Needs::v4_6) == kNeeds);
unsigned has(const TraceConfig& config) {
  const auto bit = [](Needs needs, bool met) { return met ? 1U << (static_cast<unsigned>(needs) - 1) : 0U; };
  return bit(Needs::ete, config.is_ete()) | bit(Needs::etmv4, !config.is_ete()) | bit(Needs::q, config.has_q()) |
         bit(Needs::conditions, config.traces_conditions()) | bit(Needs::data, config.traces_data()) |
         bit(Needs::v4_3, config.version() >= 0x43) | bit(Needs::v4_6, config.version() >= 0x46);
}

// clang-format off
constexpr const char* kNames[kPacketKinds] = {
    "async", "discard", "overflow", "trace_info", "timestamp", "trace_on", "func_ret", "except", "except_rtn", "ite", "trans_st",
    "trans_commit", "trans_fail", "pe_reset", "ccnt_f1", "ccnt_f2", "ccnt_f3", "num_ds_mkr", "unnum_ds_mkr", "commit", "cancel_f1",
    "cancel_f1_mispred", "mispredict", "cancel_f2", "cancel_f3", "cond_i_f1", "cond_i_f2", "cond_i_f3", "cond_flush", "cond_res_f1",
    "cond_res_f2", "cond_res_f3", "cond_res_f4", "ignore", "event", "ctxt", "addr_ctxt_l_32is0", "addr_ctxt_l_32is1",
    "addr_ctxt_l_64is0", "addr_ctxt_l_64is1", "ts_marker", "addr_match", "addr_s_is0", "addr_s_is1", "addr_l_32is0", "addr_l_32is1",
    "addr_l_64is0", "addr_l_64is1", "q", "src_addr_match", "src_addr_s_is0", "src_addr_s_is1", "src_addr_l_32is0", "src_addr_l_32is1",
    "src_addr_l_64is0", "src_addr_l_64is1", "atom_f1", "atom_f2", "atom_f3", "atom_f4", "atom_f5", "atom_f6", "bad",
};
// clang-format on

constexpr PlainForm atom_form(PacketKind kind, unsigned header) {
  switch (kind) {
    case atom_f1:
      return {1, AddressForm::none, false, header & 1U};
    case atom_f2:
      return {2, AddressForm::none, false, header & 3U};
    case atom_f3:
      return {3, AddressForm::none, false, header & 7U};
    case atom_f4: {  // NEEE NNNN NENE ENEN
      constexpr uint8_t kAtoms[4] = {0xe, 0x0, 0xa, 0x5};
      return {4, AddressForm::none, false, kAtoms[header & 3]};
    }
    case atom_f5:  // f5 NEEEE, d5 NNNNN, d6 NENEN, d7 ENENE
      return {5, AddressForm::none, false, header == 0xf5 ? 0x1eU : header == 0xd5 ? 0U : header == 0xd6 ? 0xaU : 0x15U};
    case atom_f6: {
      const unsigned count = (header & 0x1f) + 4;
      return {static_cast<uint8_t>(count), AddressForm::none, false, (1U << (count - ((header & 0x20) == 0 ? 0U : 1U))) - 1};
    }
    default:
      return {};
  }
}

constexpr AddressForm address_form(const PacketForm& form) {
  if (!is_address(form.kind)) return AddressForm::none;
  switch (form.layout) {
    case Layout::match:
      return AddressForm::match;
    case Layout::short_address:
      return form.isa == 0 ? AddressForm::short_is0 : AddressForm::short_is1;
    case Layout::long_32:
      return form.isa == 0 ? AddressForm::long_32is0 : AddressForm::long_32is1;
    case Layout::long_64:
      return form.isa == 0 ? AddressForm::long_64is0 : AddressForm::long_64is1;
    default:
      return AddressForm::none;
  }
}

constexpr bool is_aside(PacketKind kind) {
  return kind == timestamp || kind == ccnt_f1 || kind == ccnt_f2 || kind == ccnt_f3 || kind == ts_marker || kind == commit;
}

/// Bit 0 of a timestamp's header says that a cycle count follows.
constexpr bool has_cycles(PacketKind kind, unsigned header) {
  return kind == ccnt_f1 || kind == ccnt_f2 || kind == ccnt_f3 || (kind == timestamp && (header & 1) != 0);
}

constexpr std::array<PlainForm, 256> make_plain_forms() {
  std::array<PlainForm, 256> forms{};
  for (const PacketForm& form : kForms) {
    for (unsigned header = form.first; header <= form.last; ++header) {
      if (is_aside(form.kind)) forms[header].aside = true;
      if (form.needs != Needs::nothing) continue;
      if (form.layout == Layout::atoms) forms[header] = atom_form(form.kind, header);
      if (form.layout != Layout::atoms) forms[header].address = address_form(form);
    }
  }
  return forms;
}
constexpr std::array<PlainForm, 256> kPlainForms = make_plain_forms();

}  // namespace

const std::array<PlainForm, 256>& plain_forms() { return kPlainForms; }

std::span<const PacketForm> packet_forms() { return kForms; }

const char* name(PacketKind kind) {
  return kNames[static_cast<size_t>(kind) < kPacketKinds ? static_cast<size_t>(kind) : kPacketKinds - 1];
}

namespace {

using Dispatches = std::array<Dispatch, size_t{1} << kNeeds>;  // by the set of Needs that are satisfied

Dispatches make_dispatches(bool counts) {
  Dispatches made;
  for (unsigned set = 0; set < made.size(); ++set) {
    made[set].fill(kNoForm);
    for (size_t index = 0; index < std::size(kForms); ++index) {
      const auto needs = static_cast<unsigned>(kForms[index].needs);
      if (needs != 0 && (set >> (needs - 1) & 1) == 0) continue;
      for (unsigned byte = kForms[index].first; byte <= kForms[index].last; ++byte) {
        if (counts || !has_cycles(kForms[index].kind, byte)) made[set][byte] = static_cast<uint8_t>(index);
      }
    }
  }
  return made;
}

}  // namespace

const Dispatch& dispatch_of(const TraceConfig& config, bool counts) {
  static const std::array<Dispatches, 2> kDispatches = {make_dispatches(false), make_dispatches(true)};
  return kDispatches[counts ? 1 : 0][has(config)];
}

}  // namespace ptd::arm
