// kernel_entry(): see kernel_entry.h.
#include "analysis/base/kernel_entry.h"

#include <algorithm>
#include <array>

namespace ptd {
namespace {

constexpr auto kSyscalls = std::to_array<std::string_view>({"entry_INT80_", "entry_SYSCALL_", "entry_SYSENTER_"});
// Other than "asm_..." and "..._interrupt"; sorted.
constexpr auto kInterrupts = std::to_array<std::string_view>({
    "alignment_check", "async_page_fault", "bounds", "coprocessor_error", "coprocessor_segment_overrun", "debug", "device_not_available",
    "divide_error", "double_fault", "general_protection", "hv_stimer0_callback_vector", "hyperv_callback_vector",
    "hyperv_reenlightenment_vector", "hypervisor_callback_vector", "int3", "invalid_TSS", "invalid_op", "irq_entries_start",
    "kvm_posted_intr_ipi", "kvm_posted_intr_nested_ipi", "kvm_posted_intr_wakeup_ipi", "machine_check", "nmi", "overflow", "page_fault",
    "segment_not_present", "simd_coprocessor_error", "spurious_entries_start", "spurious_interrupt_bug", "stack_segment",
    "x86_platform_ipi", "xen_hvm_callback_vector"});
static_assert(std::is_sorted(kInterrupts.begin(), kInterrupts.end()));

}  // namespace

KernelEntry kernel_entry(std::string_view name) {
  const auto begins = [&](std::string_view start) { return name.starts_with(start); };
  if (name == "asm_int80_emulation" || std::any_of(kSyscalls.begin(), kSyscalls.end(), begins)) return KernelEntry::syscall;
  const bool is_interrupt = name.starts_with("asm_") || name.ends_with("_interrupt") || std::binary_search(kInterrupts.begin(), kInterrupts.end(), name);
  return is_interrupt ? KernelEntry::interrupt : KernelEntry::none;
}

}  // namespace ptd
