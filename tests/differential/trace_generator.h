// Runs a random program with random outcomes and writes the Intel PT packets that a processor would write, together with the exact truth.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet_writer.h"
#include "tests/differential/program.h"

namespace ptd::test {

struct TraceOptions {
  uint64_t seed = 1;
  ProgramOptions program;
  uint32_t steps = 4000;
  bool return_compression = true;
  bool long_tnt = false;       ///< TNT packets of up to 47 branches; otherwise up to 6
  bool deferred_tips = false;  ///< a TIP may wait until the pending TNT is full
  bool ip_compression = true;
  bool user_only = false;       ///< the kernel is not traced: TIP.PGD and TIP.PGE at its borders
  bool address_filter = false;  ///< only the first functions of the user region are traced
  bool toggles = false;         ///< tracing is switched off and on at random places
  bool interrupts = false;
  bool overflows = false;
  bool timing = false;             ///< TMA, MTC and CYC in addition to TSC
  bool tnt_before_timing = false;  ///< MTC and CYC first write the pending TNT; otherwise branches older than an MTC may come after it
  bool ptw_with_ip = false;
  uint32_t psb_period_bytes = 512;
};
/// Returns a mixture of all options, determined by the seed.
[[nodiscard]] TraceOptions options_of_seed(uint64_t seed);
[[nodiscard]] std::string describe(const TraceOptions& options);

struct GeneratedTrace {
  SparseMemory memory;
  std::vector<std::byte> trace;
  std::vector<uint64_t> truth;  ///< the address of every instruction executed while tracing was on, as far as the packets determine it
  std::vector<uint64_t> tsc;    ///< for each of them the TSC at which it was executed
  pt::Config config;
  uint64_t filter_first = 0, filter_last = 0;
  uint64_t psbs = 0, overflows = 0, interrupts = 0, compressed_returns = 0, deferred = 0;
};
[[nodiscard]] GeneratedTrace generate(const TraceOptions& options);

}  // namespace ptd::test
