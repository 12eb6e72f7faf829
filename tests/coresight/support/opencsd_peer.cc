// OpenCSD through its C interface.
#include "tests/coresight/support/opencsd_peer.h"

#include "ptdecode/arm_insn.h"

namespace ptd::test {
namespace {

template <typename Peer>
Peer registers_of(const arm::TraceConfig& config, ocsd_arch_version_t version) {
  Peer peer{};
  peer.reg_idr0 = config.idr0;
  peer.reg_idr1 = config.idr1;
  peer.reg_idr2 = config.idr2;
  peer.reg_idr8 = config.idr8;
  peer.reg_configr = config.configr;
  peer.reg_traceidr = config.traceidr;
  peer.arch_ver = version;
  peer.core_prof = profile_CortexA;
  return peer;
}

}  // namespace

bool make_peer(dcd_tree_handle_t tree, const arm::TraceConfig& config) {
  unsigned char id = 0;
  if (config.is_ete()) {
    auto peer = registers_of<ocsd_ete_cfg>(config, ARCH_AA64);
    peer.reg_devarch = config.devarch;
    return ocsd_dt_create_decoder(tree, OCSD_BUILTIN_DCD_ETE, OCSD_CREATE_FLG_FULL_DECODER, &peer, &id) == OCSD_OK;
  }
  const auto peer = registers_of<ocsd_etmv4_cfg>(config, ARCH_AA64);
  return ocsd_dt_create_decoder(tree, OCSD_BUILTIN_DCD_ETMV4I, OCSD_CREATE_FLG_FULL_DECODER, &peer, &id) == OCSD_OK;
}

namespace {

struct PeerFlow {
  Ip base;
  Bytes code;
  std::vector<uint64_t> addresses;
};

ExecMode mode_of(ocsd_isa isa) { return isa == ocsd_isa_aarch64 ? ExecMode::a64 : isa == ocsd_isa_thumb2 ? ExecMode::t32 : ExecMode::a32; }

ocsd_datapath_resp_t on_element(const void* context, const ocsd_trc_index_t, const uint8_t, const ocsd_generic_trace_elem* element) {
  auto& flow = *static_cast<PeerFlow*>(const_cast<void*>(context));
  if (element->elem_type != OCSD_GEN_TRC_ELEM_INSTR_RANGE) return OCSD_RESP_CONT;
  for (uint64_t at = element->st_addr; at < element->en_addr;) {
    flow.addresses.push_back(at);
    if (at < flow.base.value || at - flow.base.value >= flow.code.size()) break;  // the peer left the code
    const ArmInsn insn = classify_arm(flow.code.subspan(at - flow.base.value), mode_of(element->isa));
    at += insn.length_bytes == 0 ? 4U : insn.length_bytes;
  }
  return OCSD_RESP_CONT;
}

}  // namespace

std::vector<uint64_t> peer_flow(const arm::TraceConfig& config, Ip ip, Bytes code, Bytes trace) {
  PeerFlow flow{ip, code, {}};
  const dcd_tree_handle_t tree = ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0);
  if (tree == C_API_INVALID_TREE_HANDLE || !make_peer(tree, config)) return {};
  const auto* memory = reinterpret_cast<const uint8_t*>(code.data());
  (void)ocsd_dt_add_buffer_mem_acc(tree, ip.value, OCSD_MEM_SPACE_ANY, memory, static_cast<uint32_t>(code.size()));
  (void)ocsd_dt_set_gen_elem_outfn(tree, on_element, &flow);
  uint32_t used = 0;
  const auto* data = reinterpret_cast<const uint8_t*>(trace.data());
  (void)ocsd_dt_process_data(tree, OCSD_OP_DATA, 0, static_cast<uint32_t>(trace.size()), data, &used);
  (void)ocsd_dt_process_data(tree, OCSD_OP_EOT, 0, 0, nullptr, nullptr);
  ocsd_destroy_dcd_tree(tree);
  return flow.addresses;
}

}  // namespace ptd::test
