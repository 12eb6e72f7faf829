// Names of the entries of Linux on x86, as kallsyms of Linux 4.18, 5.4 and 6.1 lists them. common_interrupt is no entry: irq_entries_start
// comes before it.
#include "analysis/base/kernel_entry.h"

#include <gtest/gtest.h>

namespace ptd {
namespace {

TEST(KernelEntries, OfSystemCalls) {
  for (const char* name :
       {"entry_SYSCALL_64", "entry_SYSCALL_compat", "entry_SYSENTER_compat", "entry_INT80_compat", "asm_int80_emulation"})
    EXPECT_EQ(kernel_entry(name), KernelEntry::syscall) << name;
}

TEST(KernelEntries, OfInterruptsAndExceptions) {
  for (const char* name : {"page_fault", "general_protection", "nmi", "int3", "debug", "double_fault", "invalid_TSS",
                           "apic_timer_interrupt", "reschedule_interrupt", "call_function_single_interrupt", "xennmi", "irq_entries_start",
                           "asm_exc_page_fault", "asm_sysvec_apic_timer_interrupt"})
    EXPECT_EQ(kernel_entry(name), KernelEntry::interrupt) << name;
}

TEST(KernelEntries, OtherFunctionsAreNone) {
  for (const char* name : {"", "do_syscall_64", "do_page_fault", "schedule", "ret_from_fork", "entry", "page_fault_oops", "overflows",
                           "hrtimer_interrupt", "get_next_timer_interrupt", "i8042_interrupt", "common_interrupt"})
    EXPECT_EQ(kernel_entry(name), KernelEntry::none) << name;
}

}  // namespace
}  // namespace ptd
