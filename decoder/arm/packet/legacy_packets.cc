// OpenCSD's packet processors through its C interface: bytes in, packets out.
#include "decoder/arm/packet/legacy_packets.h"

#include <opencsd/c_api/opencsd_c_api.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "decoder/arm/packet/itm_reader.h"

namespace ptd::arm {
namespace {

constexpr uint64_t kFeedBytes = 256;
constexpr uint32_t kBinaryTimestamps = 1U << 28;  // ETMCCER

/// Returns the raw value of an enumerator. The library leaves fields that a packet does not use uninitialised, possibly not a valid
/// enumerator.
template <typename Enum>
uint32_t raw(const Enum& field) {
  static_assert(sizeof field == sizeof(uint32_t));
  uint32_t value = 0;
  std::memcpy(&value, &field, sizeof value);
  return value;
}

ExecMode mode_of(uint32_t isa) {
  switch (isa) {
    case ocsd_isa_arm:
      return ExecMode::a32;
    case ocsd_isa_thumb2:
      return ExecMode::t32;
    case ocsd_isa_aarch64:
      return ExecMode::a64;
    default:
      return ExecMode::unknown;
  }
}

template <typename Context>
void take_context(const Context& context, LegacyPacket& packet) {
  packet.has_context = context.updated != 0;
  packet.non_secure = context.curr_NS != 0;
  packet.hypervisor = context.curr_Hyp != 0;
  packet.has_context_id = context.updated_c != 0;
  packet.has_vmid = context.updated_v != 0;
  packet.context_id = context.ctxtID;
  packet.vmid = context.VMID;
}

struct Named {
  LegacyKind kind;
  const char* name;
};

Named ptm_kind(ocsd_ptm_pkt_type type) {
  switch (type) {
    case PTM_PKT_NOTSYNC:
      return {LegacyKind::not_sync, "not_sync"};
    case PTM_PKT_BRANCH_ADDRESS:
      return {LegacyKind::branch, "branch"};
    case PTM_PKT_A_SYNC:
      return {LegacyKind::async, "async"};
    case PTM_PKT_I_SYNC:
      return {LegacyKind::isync, "isync"};
    case PTM_PKT_TRIGGER:
      return {LegacyKind::trigger, "trigger"};
    case PTM_PKT_WPOINT_UPDATE:
      return {LegacyKind::waypoint, "waypoint"};
    case PTM_PKT_CONTEXT_ID:
      return {LegacyKind::context_id, "context_id"};
    case PTM_PKT_VMID:
      return {LegacyKind::vmid, "vmid"};
    case PTM_PKT_ATOM:
      return {LegacyKind::atoms, "atom"};
    case PTM_PKT_TIMESTAMP:
      return {LegacyKind::timestamp, "timestamp"};
    case PTM_PKT_EXCEPTION_RET:
      return {LegacyKind::exception_return, "exception_return"};
    case PTM_PKT_BAD_SEQUENCE:
    case PTM_PKT_RESERVED:
      return {LegacyKind::bad, "bad"};
    default:
      return {LegacyKind::other, "ignore"};
  }
}

Named etmv3_kind(ocsd_etmv3_pkt_type type) {
  switch (type) {
    case ETM3_PKT_NOTSYNC:
      return {LegacyKind::not_sync, "not_sync"};
    case ETM3_PKT_BRANCH_ADDRESS:
      return {LegacyKind::branch, "branch"};
    case ETM3_PKT_A_SYNC:
      return {LegacyKind::async, "async"};
    case ETM3_PKT_CYCLE_COUNT:
      return {LegacyKind::cycles, "cycle_count"};
    case ETM3_PKT_I_SYNC:
    case ETM3_PKT_I_SYNC_CYCLE:
      return {LegacyKind::isync, "isync"};
    case ETM3_PKT_TRIGGER:
      return {LegacyKind::trigger, "trigger"};
    case ETM3_PKT_P_HDR:
      return {LegacyKind::atoms, "p_header"};
    case ETM3_PKT_STORE_FAIL:
    case ETM3_PKT_OOO_DATA:
    case ETM3_PKT_OOO_ADDR_PLC:
    case ETM3_PKT_NORM_DATA:
    case ETM3_PKT_DATA_SUPPRESSED:
    case ETM3_PKT_VAL_NOT_TRACED:
      return {LegacyKind::data, "data"};
    case ETM3_PKT_CONTEXT_ID:
      return {LegacyKind::context_id, "context_id"};
    case ETM3_PKT_VMID:
      return {LegacyKind::vmid, "vmid"};
    case ETM3_PKT_EXCEPTION_ENTRY:
      return {LegacyKind::exception_entry, "exception_entry"};
    case ETM3_PKT_EXCEPTION_EXIT:
      return {LegacyKind::exception_return, "exception_exit"};
    case ETM3_PKT_TIMESTAMP:
      return {LegacyKind::timestamp, "timestamp"};
    case ETM3_PKT_BAD_SEQUENCE:
    case ETM3_PKT_BAD_TRACEMODE:
    case ETM3_PKT_RESERVED:
      return {LegacyKind::bad, "bad"};
    default:
      return {LegacyKind::other, "ignore"};
  }
}

/// By marker, then timestamp.
struct StmNames {
  const char* plain;
  const char* timed;
  const char* marked;
  const char* marked_timed;
};

const char* pick(const StmNames& names, const ocsd_stm_pkt& in) {
  if (in.pkt_has_marker != 0) return in.pkt_has_ts != 0 ? names.marked_timed : names.marked;
  return in.pkt_has_ts != 0 ? names.timed : names.plain;
}

Named stm_kind(const ocsd_stm_pkt& in) {
  switch (in.type) {
    case STM_PKT_NOTSYNC:
      return {LegacyKind::not_sync, "not_sync"};
    case STM_PKT_ASYNC:
      return {LegacyKind::async, "async"};
    case STM_PKT_VERSION:
      return {LegacyKind::other, "version"};
    case STM_PKT_FREQ:
      return {LegacyKind::other, "freq"};
    case STM_PKT_NULL:
      return {LegacyKind::other, pick({"null", "null_ts", "null", "null_ts"}, in)};
    case STM_PKT_TRIG:
      return {LegacyKind::trigger, pick({"trig", "trig_ts", "trig", "trig_ts"}, in)};
    case STM_PKT_GERR:
      return {LegacyKind::other, "gerr"};
    case STM_PKT_MERR:
      return {LegacyKind::other, "merr"};
    case STM_PKT_M8:
      return {LegacyKind::other, "m8"};
    case STM_PKT_C8:
      return {LegacyKind::other, "c8"};
    case STM_PKT_C16:
      return {LegacyKind::other, "c16"};
    case STM_PKT_FLAG:
      return {LegacyKind::other, pick({"flag", "flag_ts", "flag", "flag_ts"}, in)};
    case STM_PKT_D4:
      return {LegacyKind::data, pick({"d4", "d4ts", "d4m", "d4mts"}, in)};
    case STM_PKT_D8:
      return {LegacyKind::data, pick({"d8", "d8ts", "d8m", "d8mts"}, in)};
    case STM_PKT_D16:
      return {LegacyKind::data, pick({"d16", "d16ts", "d16m", "d16mts"}, in)};
    case STM_PKT_D32:
      return {LegacyKind::data, pick({"d32", "d32ts", "d32m", "d32mts"}, in)};
    case STM_PKT_D64:
      return {LegacyKind::data, pick({"d64", "d64ts", "d64m", "d64mts"}, in)};
    case STM_PKT_BAD_SEQUENCE:
    case STM_PKT_RESERVED:
      return {LegacyKind::bad, "bad"};
    default:
      return {LegacyKind::other, "ignore"};
  }
}

LegacyKind kind_of(ItmKind kind) {
  switch (kind) {
    case ItmKind::not_sync:
      return LegacyKind::not_sync;
    case ItmKind::sync:
      return LegacyKind::async;
    case ItmKind::overflow:
      return LegacyKind::overflow;
    case ItmKind::software:
    case ItmKind::hardware:
      return LegacyKind::data;
    case ItmKind::local_time:
    case ItmKind::global_time_low:
    case ItmKind::global_time_high:
      return LegacyKind::timestamp;
    case ItmKind::extension:
      return LegacyKind::other;
    case ItmKind::bad:
      break;
  }
  return LegacyKind::bad;
}

LegacyPacket from(const ItmPacket& in) {
  LegacyPacket packet;
  packet.kind = kind_of(in.kind);
  packet.name = name(in.kind);
  packet.value = in.value;
  packet.channel = in.source;
  return packet;
}

LegacyPacket from(const ocsd_ptm_pkt& in) {
  LegacyPacket packet;
  const Named named = ptm_kind(in.type);
  packet.kind = named.kind;
  packet.name = named.name;
  packet.ip = Ip{in.addr.val};
  packet.has_ip = true;
  packet.mode = mode_of(raw(in.curr_isa));
  packet.exception = in.exception.bits.present != 0;
  packet.number = in.exception.number;
  packet.periodic = raw(in.i_sync_reason) == iSync_Periodic;
  packet.after_overflow = raw(in.i_sync_reason) == iSync_TraceRestartAfterOverflow;
  take_context(in.context, packet);
  packet.atoms = in.atom.num;
  packet.bits = in.atom.En_bits;
  packet.has_cycles = in.cc_valid != 0;
  packet.cycles = in.cycle_count;
  packet.value = in.timestamp;
  return packet;
}

LegacyPacket from(const ocsd_etmv3_pkt& in) {
  LegacyPacket packet;
  const Named named = etmv3_kind(in.type);
  packet.kind = named.kind;
  packet.name = named.name;
  packet.ip = Ip{in.isync_info.has_LSipAddress != 0 && named.kind == LegacyKind::isync ? in.data.addr.val : in.addr.val};
  packet.has_ip = named.kind != LegacyKind::isync || in.isync_info.no_address == 0;
  packet.mode = mode_of(raw(in.curr_isa));
  packet.exception = in.exception.bits.present != 0 && in.exception.number != 0;
  packet.cancels = in.exception.bits.present != 0 && in.exception.bits.cancel != 0;
  packet.number = in.exception.number;
  packet.periodic = raw(in.isync_info.reason) == iSync_Periodic;
  packet.after_overflow = raw(in.isync_info.reason) == iSync_TraceRestartAfterOverflow;
  take_context(in.context, packet);
  packet.atoms = in.atom.num;
  packet.bits = in.atom.En_bits;
  packet.has_cycles = in.cycle_count != 0;
  packet.cycles = in.cycle_count;
  packet.value = in.timestamp;
  return packet;
}

LegacyPacket from(const ocsd_stm_pkt& in) {
  LegacyPacket packet;
  const Named named = stm_kind(in);
  packet.kind = named.kind;
  packet.name = named.name;
  packet.master = in.master;
  packet.channel = in.channel;
  packet.has_timestamp = in.pkt_has_ts != 0;
  packet.timestamp = in.timestamp;
  packet.value = in.type == STM_PKT_D64   ? in.payload.D64
                 : in.type == STM_PKT_D32 ? in.payload.D32
                 : in.type == STM_PKT_D16 ? in.payload.D16
                                          : in.payload.D8;
  return packet;
}

template <typename Peer>
Peer registers_of(const TraceConfig& config) {
  Peer peer{};
  peer.reg_idr = config.idr0;
  peer.reg_ctrl = config.configr;
  peer.reg_ccer = config.idr1;
  peer.reg_trc_id = config.trace_id;
  peer.arch_ver = ARCH_V7;
  peer.core_prof = config.m_profile ? profile_CortexM : profile_CortexA;
  return peer;
}

/// Returns whether timestamps are Gray-coded ([ETMv3] "Configuration Code Extension Register"). Binary if the register is not known.
bool is_gray(const TraceConfig& config) {
  const bool has_register = config.protocol == Protocol::ptm || config.protocol == Protocol::etmv3;
  return has_register && config.idr1 != 0 && (config.idr1 & kBinaryTimestamps) == 0;
}

/// Returns the number of a Gray code: each bit is the XOR of that bit and all higher ones of the code.
constexpr uint64_t number_of(uint64_t gray) {
  for (unsigned shift = 1; shift < 64; shift *= 2) gray ^= gray >> shift;
  return gray;
}

/// Serialises creating, configuring and destroying decode trees: the library keeps them in a global map without a lock. Feeding a tree
/// touches only that tree, and the library's one logger, which keeps the last error that it logs (ocsdDefaultErrorLogger::LogError): it
/// logs none.
std::mutex trees_mutex;

}  // namespace

struct LegacyReader::State {
  ~State() {
    if (tree == C_API_INVALID_TREE_HANDLE) return;
    const std::lock_guard lock(trees_mutex);
    ocsd_destroy_dcd_tree(tree);
  }
  bool create(const TraceConfig& config);
  template <typename Peer>
  static ocsd_datapath_resp_t on_packet(const void* self, const ocsd_datapath_op_t op, const ocsd_trc_index_t index, const void* in) {
    // The interface passes the context pointer back as const.
    auto& state = *static_cast<State*>(const_cast<void*>(self));
    if (op == OCSD_OP_DATA && in != nullptr) {
      state.packets.push_back(from(*static_cast<const Peer*>(in)));
      // The library has merged the bits of partial timestamps with earlier ones.
      if (state.gray_timestamps) state.packets.back().value = number_of(state.packets.back().value);
      // The interface counts in 32 bits; a packet begins within 4 GiB of the bytes being fed.
      const auto back = static_cast<uint32_t>(state.offset) - static_cast<uint32_t>(index);
      state.packets.back().offset_bytes = static_cast<int32_t>(back) < 0 ? state.offset + (0U - back) : state.offset - back;
    }
    return OCSD_RESP_CONT;
  }

  const std::vector<LegacyPacket>& next_itm();

  Bytes bytes;
  ItmReader itm;
  bool is_itm = false;
  bool gray_timestamps = false;
  uint64_t offset = 0;
  bool ended = false;
  dcd_tree_handle_t tree = C_API_INVALID_TREE_HANDLE;
  std::vector<LegacyPacket> packets;
};

bool LegacyReader::State::create(const TraceConfig& config) {
  const std::lock_guard lock(trees_mutex);
  static const ocsd_err_t silent = ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
  if (silent != OCSD_OK) return false;
  tree = ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0);
  if (tree == C_API_INVALID_TREE_HANDLE) return false;
  unsigned char id = 0;
  ocsd_err_t error = OCSD_ERR_FAIL;
  FnDefPktDataIn sink = nullptr;
  if (config.protocol == Protocol::ptm) {
    const auto peer = registers_of<ocsd_ptm_cfg>(config);
    error = ocsd_dt_create_decoder(tree, OCSD_BUILTIN_DCD_PTM, OCSD_CREATE_FLG_PACKET_PROC, &peer, &id);
    sink = on_packet<ocsd_ptm_pkt>;
  } else if (config.protocol == Protocol::etmv3) {
    const auto peer = registers_of<ocsd_etmv3_cfg>(config);
    error = ocsd_dt_create_decoder(tree, OCSD_BUILTIN_DCD_ETMV3, OCSD_CREATE_FLG_PACKET_PROC, &peer, &id);
    sink = on_packet<ocsd_etmv3_pkt>;
  } else if (config.protocol == Protocol::stm) {
    ocsd_stm_cfg peer{};
    peer.reg_tcsr = config.configr;
    error = ocsd_dt_create_decoder(tree, OCSD_BUILTIN_DCD_STM, OCSD_CREATE_FLG_PACKET_PROC, &peer, &id);
    sink = on_packet<ocsd_stm_pkt>;
  }
  return error == OCSD_OK &&
         ocsd_dt_attach_packet_callback(tree, id, OCSD_C_API_CB_PKT_SINK, reinterpret_cast<void*>(sink), this) == OCSD_OK;
}

LegacyReader::LegacyReader(Bytes bytes, const TraceConfig& config) : state_(std::make_unique<State>()) {
  state_->bytes = bytes;
  state_->itm = ItmReader(bytes);
  state_->is_itm = config.protocol == Protocol::itm;
  state_->gray_timestamps = is_gray(config);
  state_->ended = state_->is_itm || !state_->create(config);
}
LegacyReader::~LegacyReader() = default;
LegacyReader::LegacyReader(LegacyReader&&) noexcept = default;
LegacyReader& LegacyReader::operator=(LegacyReader&&) noexcept = default;

const std::vector<LegacyPacket>& LegacyReader::State::next_itm() {
  ItmPacket packet;
  for (uint64_t at = itm.offset(); packets.size() < kFeedBytes && itm.next(packet); at = itm.offset()) {
    // Combine unsynchronised bytes into one packet.
    if (packet.kind == ItmKind::not_sync && !packets.empty() && packets.back().kind == LegacyKind::not_sync) continue;
    packets.push_back(from(packet));
    packets.back().offset_bytes = at;
  }
  return packets;
}

const std::vector<LegacyPacket>& LegacyReader::next() {
  State& state = *state_;
  state.packets.clear();
  if (state.is_itm) return state.next_itm();
  while (state.packets.empty() && !state.ended) {
    if (state.offset >= state.bytes.size()) {
      (void)ocsd_dt_process_data(state.tree, OCSD_OP_EOT, 0, 0, nullptr, nullptr);
      state.ended = true;
      break;
    }
    const auto size = static_cast<uint32_t>(std::min(kFeedBytes, state.bytes.size() - state.offset));
    uint32_t used = 0;
    const auto* data = reinterpret_cast<const uint8_t*>(state.bytes.data() + state.offset);
    const ocsd_datapath_resp_t response =
        ocsd_dt_process_data(state.tree, OCSD_OP_DATA, static_cast<ocsd_trc_index_t>(state.offset), size, data, &used);
    state.offset += used;
    if (OCSD_DATA_RESP_IS_FATAL(response) || used == 0) {
      // The processor cannot continue here: reset it and restart after this point.
      LegacyPacket packet;
      packet.kind = LegacyKind::bad;
      packet.name = "bad";
      packet.offset_bytes = state.offset;
      state.packets.push_back(packet);
      state.offset += used == 0 ? 1 : 0;
      (void)ocsd_dt_process_data(state.tree, OCSD_OP_RESET, 0, 0, nullptr, nullptr);
    }
  }
  return state.packets;
}

}  // namespace ptd::arm
