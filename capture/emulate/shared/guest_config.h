// GuestConfig: the settings that the host passes to the program in the emulated machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::emulate {

/// What the machine's kernel does while the program runs: a way of changing its code, or a tracepoint SYSTEM:EVENT.
struct KernelEvent {
  std::string name;
  uint32_t count = 0;  ///< how often; the recording ends only after that. 0: until the program ends
};

/// The known ways of changing the kernel's code, separated by commas.
inline constexpr std::string_view kKernelEvents = "keys,tracepoints,ftrace,kprobes,bpf,fentry,modules,load";

/// Parses "tracepoints=200,kprobes,sched:sched_switch". Errors: bad_option.
[[nodiscard]] Result<std::vector<KernelEvent>> parse_kernel_events(const std::string& text);

struct GuestConfig {
  std::string program;                 ///< path of the program to run, seen from the host's root
  std::vector<std::string> words;      ///< its argument list
  std::vector<std::string> variables;  ///< its environment
  std::string folder;                  ///< its working directory
  std::string work;                    ///< the host's working folder, shared and writable
  std::string guest;                   ///< the guest program's own path on the host
  std::string modules;                 ///< kernel version, if its modules are a share of their own; else ""
  std::vector<KernelEvent> events;
  bool terminal[3] = {};  ///< which of standard input, output and error are the host's terminal
  uint16_t rows = 24, columns = 80;
  uint64_t trace_config = 0;  ///< perf_event_attr.config of the trace
};

/// The text of a config, and back. Lines do not matter to it: each value ends with a zero byte. Null for bytes that are no config.
[[nodiscard]] std::string to_text(const GuestConfig& config);
[[nodiscard]] std::optional<GuestConfig> guest_config_from(std::string_view text);

/// Where the config is in the initramfs, and in the working folder.
inline constexpr const char* kGuestConfigFile = "guest-config";

}  // namespace ptd::emulate
