// Facts about a machine, read from its files for the doctor. Private to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "capture/doctor/doctor.h"

namespace ptd::doctor {

/// Numbers of capabilities ([linux/capability.h]).
enum class Capability : uint8_t {
  ipc_lock = 14,
  sys_rawio = 17,
  sys_ptrace = 19,
  sys_admin = 21,
  syslog = 34,
  perfmon = 38,
  bpf = 39,
  checkpoint_restore = 40
};

/// Read once, used by every check.
struct Facts {
  explicit Facts(const Machine& machine);

  const Machine& machine;
  uint64_t capabilities = 0;
  std::optional<int64_t> paranoid, mlock_kb, kptr_restrict;
  std::optional<uint64_t> locked_memory_bytes;  ///< RLIMIT_MEMLOCK, ~0: unlimited; nothing: not known
  std::string release, vendor, model, flags, lockdown;
  std::string virtual_machine;  ///< its maker's word, "" on hardware
  bool container = false;

  [[nodiscard]] bool has(Capability capability) const { return (capabilities >> static_cast<unsigned>(capability) & 1U) != 0; }
  /// May trace whatever perf_event_paranoid says.
  [[nodiscard]] bool privileged() const { return has(Capability::perfmon) || has(Capability::sys_admin); }
  [[nodiscard]] bool has_flag(std::string_view flag) const;
  /// A small file, without the newline at its end; "" if it cannot be read.
  [[nodiscard]] std::string proc(const std::string& name) const;
  [[nodiscard]] std::string sys(const std::string& name) const;
  [[nodiscard]] bool has_sys(const std::string& name) const;
  /// "sudo " for who needs it.
  [[nodiscard]] std::string sudo() const { return machine.user == 0 ? "" : "sudo "; }
};

/// The first 64 KiB (or `most_bytes`) of a file; "" if it cannot be read; `number` gets errno.
[[nodiscard]] std::string read_some(const std::string& path, int* number = nullptr, size_t most_bytes = 64U << 10);
[[nodiscard]] std::optional<int64_t> number_of(std::string_view text);

}  // namespace ptd::doctor
