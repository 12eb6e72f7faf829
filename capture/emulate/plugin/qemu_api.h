// The functions of QEMU's plugin interface that the user-mode plugin uses, besides those of qemu_types.h.
#pragma once

#include "capture/emulate/plugin/qemu_types.h"

extern "C" {

using InsnData = const void* (*)(const qemu_plugin_insn*);                        ///< versions 1 and 2
using CopyInsnData = size_t (*)(const qemu_plugin_insn*, void* to, size_t most);  ///< from version 3 on
using qemu_plugin_vcpu_simple_cb_t = void (*)(qemu_plugin_id_t, unsigned int);
using qemu_plugin_vcpu_syscall_cb_t = void (*)(qemu_plugin_id_t, unsigned int, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                               uint64_t, uint64_t, uint64_t);
using qemu_plugin_vcpu_syscall_ret_cb_t = void (*)(qemu_plugin_id_t, unsigned int, int64_t, int64_t);

void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t, qemu_plugin_vcpu_simple_cb_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, qemu_plugin_vcpu_syscall_cb_t);
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t, qemu_plugin_vcpu_syscall_ret_cb_t);
/// To be called as InsnData or CopyInsnData: version 3 of the interface changed it.
void qemu_plugin_insn_data(void);
}
