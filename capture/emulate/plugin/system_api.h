// The functions of QEMU's plugin interface from version 4 on that the system plugin uses, declared from its documentation ("QEMU TCG
// Plugins"), and three functions inside QEMU 10 that it looks up by name.
#pragma once

#include "capture/emulate/plugin/qemu_types.h"

extern "C" {

struct qemu_plugin_register;

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

void qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_insn*, qemu_plugin_vcpu_udata_cb_t, qemu_plugin_cb_flags, void*);
size_t qemu_plugin_insn_data(const qemu_plugin_insn*, void*, size_t);
GArray* qemu_plugin_get_registers(void);
int qemu_plugin_read_register(qemu_plugin_register*, GByteArray*);
bool qemu_plugin_read_memory_vaddr(uint64_t, GByteArray*, size_t);
/// Drops the plugin's callbacks and all translated code, then calls the function, once no code runs.
void qemu_plugin_reset(qemu_plugin_id_t, void (*)(qemu_plugin_id_t));

}  // extern "C"
