// PprofProfile: self time and instructions of every stack of calls, in pprof's format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/paths/call_paths.h"
#include "cli/calls/call_input.h"

namespace ptd::cli {

/// One profile of all files, as "profile.proto" of github.com/google/pprof defines it. A sample is a stack under a thread's name (label
/// "comm"). Inlined functions are lines of the location of the call that contains them. Not thread-safe.
class PprofProfile {
 public:
  explicit PprofProfile(CallInput& input) : input_(input) {}
  void take(std::span<const CallStep> steps, const CallTree& tree);
  /// After the walk, once: adds up the samples.
  void finish();
  /// Returns the profile, not compressed.
  [[nodiscard]] std::string write() const;
  [[nodiscard]] size_t samples() const { return sums_.size(); }
  /// Returns CallPaths::left_out().
  [[nodiscard]] uint64_t left_out() const { return calls_.paths().left_out(); }

 private:
  struct Sums {
    uint64_t calls = 0, instructions = 0, cycles = 0, ns = 0;
    Sums& operator+=(const Sums& other);
  };
  class Writer;
  CallInput& input_;
  OpenCalls calls_{OpenCalls::Callers::later};
  std::map<std::string, uint32_t> comms_;
  std::map<std::pair<uint32_t, uint32_t>, Sums> sums_;  ///< by path and comm
  std::vector<CallPaths::Path> paths_;                  ///< those of sums_, after finish()
  uint64_t duration_ns_ = 0;                            ///< of the longest thread
  bool has_cycles_ = false;
};

}  // namespace ptd::cli
