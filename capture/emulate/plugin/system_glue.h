// SystemGlue: queries of the system plugin to QEMU: current cpu, time, registers, memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "capture/emulate/plugin/system_api.h"

namespace ptd::emulate {

enum class GuestRegister : uint8_t { rax, rdx, rsp, cr3, rip, pc, elr_el1, esr_el1, vbar_el1, contextidr_el1, cs };

inline constexpr unsigned kMaxVcpus = 64;

/// Ends the emulator with a message. Called in QEMU's callbacks, so QEMU's own end does not run.
[[noreturn]] void stop_emulator(const std::string& why);

/// All calls come from QEMU's one thread that runs every vcpu (-accel tcg,thread=single), inside callbacks.
class SystemGlue {
 public:
  /// False, with a reason, if QEMU lacks functions that are needed. QEMU lists registers only while a vcpu runs: if `registers` are not
  /// among them, the first use of one ends the emulator.
  bool attach(std::initializer_list<GuestRegister> registers, std::string& why);

  /// The vcpu that runs. The index that QEMU 10.0 hands to callbacks is, with one thread for all vcpus, the one that the block was
  /// translated on; `told` is used where QEMU does not expose the running vcpu. (Inline operations scale that index in place, so a second
  /// one in a block writes elsewhere: none is used.)
  [[nodiscard]] unsigned current_vcpu(unsigned told);
  /// Virtual time in ns as QEMU last settled it (RDTSC, device access, end of a slice): that of the end of the block which did so, with
  /// -icount. It is also the guest's TSC.
  [[nodiscard]] uint64_t settled_time();

  /// Returns a register of the running vcpu. Ends the emulator, with a message, if QEMU does not read it: without it the trace would be
  /// wrong.
  [[nodiscard]] uint64_t read(GuestRegister which);
  /// A little-endian number of 8 bytes in the guest's memory.
  [[nodiscard]] std::optional<uint64_t> peek(uint64_t address);

 private:
  void find_registers();

  void** current_cpu_ = nullptr;
  void* (*get_cpu_)(int) = nullptr;
  int64_t (*icount_get_)() = nullptr;
  void* last_cpu_ = nullptr;
  unsigned last_index_ = 0;
  std::vector<GuestRegister> needed_;  // cleared by find_registers()
  std::array<qemu_plugin_register*, 11> registers_{};
  GByteArray* buffer_ = nullptr;
};

}  // namespace ptd::emulate
