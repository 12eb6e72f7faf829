// The functions of QEMU's plugin interface that the user-mode plugin uses, besides those of qemu_types.h.
#pragma once

#include "capture/emulate/plugin/qemu_types.h"

extern "C" {

using qemu_plugin_vcpu_simple_cb_t = void (*)(qemu_plugin_id_t, unsigned int);
using qemu_plugin_vcpu_syscall_cb_t = void (*)(qemu_plugin_id_t, unsigned int, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                               uint64_t, uint64_t, uint64_t);
using qemu_plugin_vcpu_syscall_ret_cb_t = void (*)(qemu_plugin_id_t, unsigned int, int64_t, int64_t);

void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t, qemu_plugin_vcpu_simple_cb_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, qemu_plugin_vcpu_syscall_cb_t);
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t, qemu_plugin_vcpu_syscall_ret_cb_t);
const void* qemu_plugin_insn_data(const qemu_plugin_insn*);
const char* qemu_plugin_path_to_binary(void);  ///< to be freed
}
