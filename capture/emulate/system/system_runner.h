// Runs a program in an emulated machine with a kernel of its own, and makes a recording of the whole machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/emulate/shared/guest_config.h"
#include "capture/emulate/system/system_recording.h"
#include "capture/emulate/unit/pt_encoder.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

struct SystemOptions {
  PtEncoderOptions pt;
  uint8_t psb_period = 3;  ///< PSBFreq: 2^(psb_period + 11) bytes
  std::string output = "perf.data";
  std::string truth_folder;  ///< "": no ground truth
  std::string emulator;      ///< path or name of qemu-system-x86_64; "": search
  std::string plugin;        ///< ptdecode-emulate-system.so; "": in the build or installation folder
  std::string kernel;        ///< a bzImage; "": search
  uint32_t cpus = 2;
  uint64_t memory_bytes = uint64_t{1} << 30;
  std::vector<KernelEvent> events;
  bool ete = false;                  ///< arm64: an ETE trace in place of ETMv4
  bool boot = false;                 ///< trace from the kernel's first instruction on
  std::vector<std::string> command;  ///< program and arguments
};

/// What a machine may have.
inline constexpr uint32_t kMostGuestCpus = 16;
inline constexpr uint64_t kLeastGuestBytes = uint64_t{256} << 20, kMostGuestBytes = uint64_t{64} << 30;

struct SystemResult {
  int exit_status = 0;  ///< of the program; 128 + signal if one ended it
  double boot_s = 0;    ///< until the program was started
  double run_s = 0;     ///< of the program
  double end_s = 0;     ///< until the recording was complete
  std::string kernel;   ///< release of the guest's kernel
  SystemSummary summary;
  std::vector<std::string> messages;  ///< of the machine, for the user
};

/// Boots the machine, runs the program there with this process's standard streams and terminal, and writes the recording. SIGINT and
/// SIGTERM go to the program; the third one ends the machine, and there is no recording then. Errors: missing_program and others that
/// name what is missing and how to get it; of find_program_to_run(); start_failed if the machine fails; of write_system_recording().
[[nodiscard]] Result<SystemResult> emulate_system(const SystemOptions& options);

}  // namespace ptd::emulate
