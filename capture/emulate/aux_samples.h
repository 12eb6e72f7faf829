// AUX samples of an emulated recording: windows of the trace instead of the whole trace (perf record --aux-sample).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "capture/emulate/shared/user_config.h"
#include "ptdecode/types.h"

namespace ptd::emulate {

/// A sample, taken by an interrupt. Its window is the end of the buffer. Where the buffer was not full yet, the window begins with zeros.
struct TakenSample {
  uint64_t tsc = 0;
  uint64_t ip = 0;  ///< of the next instruction
  std::vector<std::byte> window;
};

/// Samples one thread as a kernel does: an interrupt stops the trace (FUP, TIP.PGD), copies the end of the buffer, and starts the trace
/// again (TIP.PGE). The encoder has interrupts for this (PtEncoderOptions::pause_every_bytes). Feed the packets of the thread's programs in
/// order. The buffer keeps its content from one program to the next.
class AuxSampler {
 public:
  /// `options.aux_sample_bytes` is not 0.
  explicit AuxSampler(const UserConfig& options);

  /// `end_tsc`: when the program that wrote the packets ended.
  void add(Bytes packets, uint64_t first_tsc, uint64_t end_tsc);
  [[nodiscard]] const std::deque<TakenSample>& samples() const { return samples_; }

 private:
  void take(uint64_t ip);
  void forget();
  void date(size_t first, uint64_t tsc);

  const UserConfig& options_;
  std::vector<std::byte> buffer_;  // as in memory: bytes since the start, of which the last ones are kept
  uint64_t since_ = 0;             // bytes since the last sample
  std::deque<TakenSample> samples_;
};

}  // namespace ptd::emulate
