// BpfPrograms: hand-written BPF programs: load, attach, unload.
#pragma once

#include <cstdint>
#include <vector>

namespace ptd::emulate::guest {

/// The programs stay loaded until detach_all(). Not thread-safe.
class BpfPrograms {
 public:
  BpfPrograms() = default;
  ~BpfPrograms() { detach_all(); }
  BpfPrograms(const BpfPrograms&) = delete;
  BpfPrograms& operator=(const BpfPrograms&) = delete;

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

}  // namespace ptd::emulate::guest
