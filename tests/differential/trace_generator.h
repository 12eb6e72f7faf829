// Runs a random program with random outcomes and writes the Intel PT packets a processor would, with the exact truth beside them.
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
  bool long_tnt = false;       ///< TNT packets of up to 47 branches, else up to 6
  bool deferred_tips = false;  ///< a TIP may wait until the TNT in the making is full
  bool ip_compression = true;
  bool user_only = false;       ///< the kernel is not traced: TIP.PGD and TIP.PGE at its borders
  bool address_filter = false;  ///< only the first functions of the user region are traced
  bool toggles = false;         ///< tracing is switched off and on at random places
  bool interrupts = false;
  bool overflows = false;
  bool timing = false;             ///< TMA, MTC and CYC beside TSC
  bool tnt_before_timing = false;  ///< MTC and CYC send the TNT in the making ahead; else branches older than an MTC may stand behind it
  bool ptw_with_ip = false;
  uint32_t psb_period_bytes = 512;
};
/// A mixture of all options, drawn from the seed.
[[nodiscard]] TraceOptions options_of_seed(uint64_t seed);
[[nodiscard]] std::string describe(const TraceOptions& options);

struct GeneratedTrace {
  SparseMemory memory;
  std::vector<std::byte> trace;
  std::vector<uint64_t> truth;  ///< the address of every instruction that ran while it was traced and can be known
  std::vector<uint64_t> tsc;    ///< for each of them the TSC at which it ran
  pt::Config config;
  uint64_t filter_first = 0, filter_last = 0;
  uint64_t psbs = 0, overflows = 0, interrupts = 0, compressed_returns = 0, deferred = 0;
};
[[nodiscard]] GeneratedTrace generate(const TraceOptions& options);

}  // namespace ptd::test
