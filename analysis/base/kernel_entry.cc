// kernel_entry(): see kernel_entry.h.
#include "analysis/base/kernel_entry.h"

#include <algorithm>
#include <array>

namespace ptd {
namespace {

constexpr auto kSyscalls = std::to_array<std::string_view>({"entry_INT80_", "entry_SYSCALL_", "entry_SYSENTER_"});
// Other than "asm_...": those of Linux 4.18 to 5.7. Sorted. Other functions of the kernel have names like these (hrtimer_interrupt,
// generic_handle_irq).
constexpr auto kInterrupts = std::to_array<std::string_view>({"acrn_hv_callback_vector",
                                                              "alignment_check",
                                                              "apic_timer_interrupt",
                                                              "async_page_fault",
                                                              "bounds",
                                                              "call_function_interrupt",
                                                              "call_function_single_interrupt",
                                                              "coprocessor_error",
                                                              "coprocessor_segment_overrun",
                                                              "debug",
                                                              "deferred_error_interrupt",
                                                              "device_not_available",
                                                              "divide_error",
                                                              "double_fault",
                                                              "error_interrupt",
                                                              "general_protection",
                                                              "hv_stimer0_callback_vector",
                                                              "hyperv_callback_vector",
                                                              "hyperv_reenlightenment_vector",
                                                              "hypervisor_callback_vector",
                                                              "int3",
                                                              "invalid_TSS",
                                                              "invalid_op",
                                                              "irq_entries_start",
                                                              "irq_move_cleanup_interrupt",
                                                              "irq_work_interrupt",
                                                              "kvm_posted_intr_ipi",
                                                              "kvm_posted_intr_nested_ipi",
                                                              "kvm_posted_intr_wakeup_ipi",
                                                              "machine_check",
                                                              "nmi",
                                                              "overflow",
                                                              "page_fault",
                                                              "reboot_interrupt",
                                                              "reschedule_interrupt",
                                                              "segment_not_present",
                                                              "simd_coprocessor_error",
                                                              "spurious_entries_start",
                                                              "spurious_interrupt",
                                                              "spurious_interrupt_bug",
                                                              "stack_segment",
                                                              "thermal_interrupt",
                                                              "threshold_interrupt",
                                                              "uv_bau_message_intr1",
                                                              "x86_platform_ipi",
                                                              "xen_hvm_callback_vector",
                                                              "xendebug",
                                                              "xenint3",
                                                              "xennmi"});
static_assert(std::is_sorted(kInterrupts.begin(), kInterrupts.end()));

}  // namespace

KernelEntry kernel_entry(std::string_view name) {
  const auto begins = [&](std::string_view start) { return name.starts_with(start); };
  if (name == "asm_int80_emulation" || std::any_of(kSyscalls.begin(), kSyscalls.end(), begins)) return KernelEntry::syscall;
  const bool is_interrupt = name.starts_with("asm_") || std::binary_search(kInterrupts.begin(), kInterrupts.end(), name);
  return is_interrupt ? KernelEntry::interrupt : KernelEntry::none;
}

}  // namespace ptd
