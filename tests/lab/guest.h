// The program in the lab's machine: its init, its recorder and its load. Shared by its parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ptd::lab {

/// The options of a run: the kernel passes unknown arguments NAME=VALUE of its command line to init as environment.
struct GuestOptions {
  uint32_t rounds = 10;        ///< LAB_ROUNDS: of every kind of change
  uint32_t ring_pages = 1024;  ///< LAB_RING_PAGES
  uint32_t drain_ms = 5;       ///< LAB_DRAIN_MS: pause of the recorder
  uint32_t settle_ms = 4;      ///< LAB_SETTLE_MS: duration of a change
  uint32_t load = 3;           ///< LAB_LOAD: processes that keep the kernel busy
  uint32_t pause_ms = 4;       ///< LAB_PAUSE_MS: of each of them, after each turn
  std::string work;            ///< LAB_WORK: kinds, separated by commas; empty: all
  uint64_t trace_config = 0;   ///< LAB_CONFIG: perf_event_attr.config of the trace
};
[[nodiscard]] GuestOptions read_options();

/// Prints a line on the console.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
void write_file(const std::string& path, const std::string& text);  ///< tracefs and procfs: failure is reported, once for each path
[[nodiscard]] std::string read_file(const std::string& path);
void pin_to(int cpu);
void sleep_ms(uint32_t ms);
/// finit_module / delete_module; failure is reported.
bool load_module(const std::string& path);
bool unload_module(const std::string& name);

/// Processes that call the kernel until the machine ends, with a pause after each turn.
void start_load(uint32_t processes, uint32_t pause_ms);

/// Looks up the functions that change_code() switches: the lookup is slow, and need not be traced.
void prepare_changes();
/// Changes the kernel's code in every way of `options.work`, from each cpu in turn.
void change_code(const GuestOptions& options);

/// Hand-written BPF programs: load, attach, unload.
class BpfPrograms {
 public:
  /// Attaches to the raw tracepoint; `shape` varies the code. Returns false if the kernel refuses.
  bool attach_tracepoint(const char* tracepoint, uint32_t shape);
  /// The same with two sub-programs.
  bool attach_with_subprograms(const char* tracepoint, uint32_t shape);
  /// fentry on a kernel function: a trampoline.
  bool attach_fentry(const char* function, uint32_t shape);
  void detach_all();

 private:
  std::vector<int> fds_;
};

}  // namespace ptd::lab
