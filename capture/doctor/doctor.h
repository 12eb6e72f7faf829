// Doctor: reports what this machine can record, what limits it, and the command that helps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ptd::doctor {

/// What one look found.
enum class Verdict : uint8_t {
  good,
  limit,    ///< something cannot be recorded, or less of it
  blocked,  ///< no trace can be recorded because of it
};
[[nodiscard]] const char* name(Verdict verdict);

struct Check {
  std::string id;  ///< for programs: "pmu", "paranoid", ...
  Verdict verdict = Verdict::good;
  std::string found;  ///< one sentence: what is so
  std::string fix;    ///< a command, or what else helps; "" if nothing is wrong, or nothing helps
};

struct Diagnosis {
  bool user_trace = false;    ///< the processor's trace of this user's own programs
  bool kernel_trace = false;  ///< of the kernel
  bool system_trace = false;  ///< of all processes
  bool sideband = false;      ///< mappings, processes and switches of this user's programs, without a trace
  bool system_sideband = false;
  bool emulation = false;         ///< record --emulate
  bool system_emulation = false;  ///< record --emulate=system
  std::string trace_unit;         ///< "intel_pt", "cs_etm"; "" if there is none
  std::vector<Check> checks;
};

/// What opening an event said: 0, or errno.
struct ProbeResult {
  int number = 0;
};

/// The paths that it reads and the functions that it calls. Tests replace them.
struct Machine {
  std::string proc = "/proc", sys = "/sys";
  std::string stash;                                ///< directory of the stash, "" if there is none
  std::string path;                                 ///< where programs are looked for, as PATH has it
  std::string built_emulators;                      ///< folder of the emulators that this user built, "" if there is none
  std::chrono::milliseconds most_query_time{5000};  ///< to wait for an emulator's answer
  bool x86 = false, arm64 = false;
  uint64_t page_bytes = 4096;
  uint32_t user = 0;  ///< effective user id
  /// Leaf and sub-leaf of CPUID -> EAX, EBX, ECX, EDX; empty where there is none.
  std::function<std::vector<uint32_t>(uint32_t leaf, uint32_t sub_leaf)> cpuid;
  /// Tries a software event with one kind of sideband ("", "build_ids", "ksymbols", "bpf", "text_pokes", "switches", "namespaces") of this
  /// process, or of all on one cpu; or the trace unit itself ("trace": `type` and exclude_kernel).
  struct Probe {
    std::string what;
    bool all_of_cpu = false, with_kernel = false;
    uint32_t type = 0;
  };
  std::function<ProbeResult(const Probe&)> open_event;
  std::function<int()> list_bpf;  ///< looks up the first BPF program: errno, ENOENT if there is none
  /// Free bytes where a path is, or will be; nothing if that is not known.
  std::function<std::optional<uint64_t>(const std::string& path)> free_bytes;
};
/// This machine.
[[nodiscard]] Machine this_machine();

[[nodiscard]] Diagnosis diagnose(const Machine& machine);

}  // namespace ptd::doctor
