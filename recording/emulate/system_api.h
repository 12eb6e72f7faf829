// The functions of QEMU's plugin interface from version 4 on that the system plugin uses, declared from its documentation ("QEMU TCG
// Plugins"), and three functions inside QEMU 10 that it looks up by name.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

using qemu_plugin_id_t = uint64_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;

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

struct qemu_plugin_reg_descriptor {
  qemu_plugin_register* handle;
  const char* name;
  const char* feature;
};

// GLib's growing arrays, as far as the interface hands them over.
struct GByteArray {
  uint8_t* data;
  unsigned len;
};
struct GArray {
  char* data;
  unsigned len;
};
GByteArray* g_byte_array_new(void);
GByteArray* g_byte_array_set_size(GByteArray*, unsigned);

using qemu_plugin_udata_cb_t = void (*)(qemu_plugin_id_t, void*);
using qemu_plugin_vcpu_udata_cb_t = void (*)(unsigned int, void*);
using qemu_plugin_vcpu_tb_trans_cb_t = void (*)(qemu_plugin_id_t, qemu_plugin_tb*);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_vcpu_tb_trans_cb_t);
void qemu_plugin_register_vcpu_tb_exec_cb(qemu_plugin_tb*, qemu_plugin_vcpu_udata_cb_t, qemu_plugin_cb_flags, void*);
void qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_insn*, qemu_plugin_vcpu_udata_cb_t, qemu_plugin_cb_flags, void*);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_udata_cb_t, void*);
size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
uint64_t qemu_plugin_tb_vaddr(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, size_t);
size_t qemu_plugin_insn_data(const qemu_plugin_insn*, void*, size_t);
size_t qemu_plugin_insn_size(const qemu_plugin_insn*);
GArray* qemu_plugin_get_registers(void);
int qemu_plugin_read_register(qemu_plugin_register*, GByteArray*);
bool qemu_plugin_read_memory_vaddr(uint64_t, GByteArray*, size_t);
void qemu_plugin_outs(const char*);

}  // extern "C"
