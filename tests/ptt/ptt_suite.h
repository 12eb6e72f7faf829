// libipt's .ptt tests as input: annotated assembly files that libipt's pttc turns into code, trace and expected output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/pt/config.h"
#include "tests/support/corpus.h"

namespace ptd::ptt {

/// One test for one processor.
struct PttRun {
  std::string test;       ///< name of the .ptt file without its ending
  std::string cpu;        ///< as pttc and ptxed take it, "6/94"; empty: no processor
  std::string path;       ///< of the .ptt file
  std::string options;    ///< that the test gives ptxed
  uint64_t code_ip = 0;   ///< where the code is loaded
  [[nodiscard]] std::string name() const { return cpu.empty() ? test : test + " on " + cpu; }
  /// True if the test gives ptxed this option.
  [[nodiscard]] bool has(const std::string& option) const;
  /// The word after `option`, empty without it.
  [[nodiscard]] std::string value(const std::string& option) const;
};

/// What pttc makes of a run.
struct Made {
  bool expects_flow = false;  ///< false: the test is for ptdump only
  std::vector<std::byte> trace;
  test::SparseMemory code;
  std::vector<std::string> want;  ///< ptxed's output
  std::string error;              ///< not empty: pttc failed
};

/// Every run of the suite, in order of names. `error` says why there is none.
[[nodiscard]] std::vector<PttRun> list_runs(const std::string& suite_dir, std::string& error);
/// Runs pttc in its own scratch folder.
[[nodiscard]] Made make(const PttRun& run, const std::string& pttc);
/// "6/94" or "6/94/3".
[[nodiscard]] pt::CpuId cpu_of(const std::string& text);

}  // namespace ptd::ptt
