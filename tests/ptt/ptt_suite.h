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
  std::string test;      ///< name of the .ptt file without its ending
  std::string cpu;       ///< in the format of pttc and ptxed, "6/94"; empty: no processor
  std::string path;      ///< of the .ptt file
  std::string options;   ///< the test's options for ptxed
  uint64_t code_ip = 0;  ///< where the code is loaded
  [[nodiscard]] std::string name() const { return cpu.empty() ? test : test + " on " + cpu; }
  /// Returns whether the test has this ptxed option.
  [[nodiscard]] bool has(const std::string& option) const;
  /// Returns the word after `option`, empty without it.
  [[nodiscard]] std::string value(const std::string& option) const;
};

/// The output of pttc for a run.
struct Made {
  bool expects_flow = false;  ///< false: the test is for ptdump only
  std::vector<std::byte> trace;
  test::SparseMemory code;
  std::vector<std::string> want;  ///< ptxed's output
  std::string error;              ///< not empty: pttc failed
};

/// Returns every run of the suite, in order of names. If there is none, `error` is the reason.
[[nodiscard]] std::vector<PttRun> list_runs(const std::string& suite_dir, std::string& error);
/// Runs pttc in a separate scratch folder.
[[nodiscard]] Made make(const PttRun& run, const std::string& pttc);
/// "6/94" or "6/94/3".
[[nodiscard]] pt::CpuId cpu_of(const std::string& text);

}  // namespace ptd::ptt
