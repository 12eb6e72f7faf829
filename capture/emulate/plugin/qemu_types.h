// Types common to all versions of QEMU's plugin interface, from its documentation ("QEMU TCG Plugins"): Debian ships no header.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

using qemu_plugin_id_t = uint64_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

/// What QEMU tells a plugin at load.
struct qemu_info_t {
  const char* target_name;
  struct {
    int min, cur;
  } version;  ///< of the plugin interface
  bool system_emulation;
  union {
    struct {
      int smp_vcpus, max_vcpus;
    } system;
  };
};

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };

using qemu_plugin_udata_cb_t = void (*)(qemu_plugin_id_t, void*);
using qemu_plugin_vcpu_udata_cb_t = void (*)(unsigned int, void*);
using qemu_plugin_vcpu_tb_trans_cb_t = void (*)(qemu_plugin_id_t, qemu_plugin_tb*);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_vcpu_tb_trans_cb_t);
void qemu_plugin_register_vcpu_tb_exec_cb(qemu_plugin_tb*, qemu_plugin_vcpu_udata_cb_t, qemu_plugin_cb_flags, void*);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_udata_cb_t, void*);
size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
uint64_t qemu_plugin_tb_vaddr(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, size_t);
size_t qemu_plugin_insn_size(const qemu_plugin_insn*);
}
