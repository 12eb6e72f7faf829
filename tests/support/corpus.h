// The test corpus: its path, its cases, and the files of a case. For tests only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ptdecode/pt/config.h"

namespace ptd::test {

/// Returns the directory of the corpus: $PTDECODE_CORPUS, else ../shared/corpus next to the source tree. Empty if it is absent.
[[nodiscard]] std::string corpus_dir();
/// Returns true if absence of the corpus must fail: PTDECODE_REQUIRE_CORPUS is set and not "0".
[[nodiscard]] bool corpus_required();

/// Skips the running test when the corpus is absent, or fails it when the corpus is required.
#define PTD_NEED_CORPUS()                                                                                     \
  do {                                                                                                        \
    if (::ptd::test::corpus_dir().empty()) {                                                                  \
      if (::ptd::test::corpus_required()) FAIL() << "PTDECODE_REQUIRE_CORPUS is set, but there is no corpus"; \
      GTEST_SKIP() << "no corpus: set PTDECODE_CORPUS to its directory";                                      \
    }                                                                                                         \
  } while (false)

/// Returns the content of a file, uncompressed if its name ends in ".gz". Empty optional if it cannot be read.
[[nodiscard]] std::optional<std::vector<std::byte>> read_file(const std::string& path);
[[nodiscard]] std::optional<std::vector<std::string>> read_lines(const std::string& path);

/// Code bytes by address, copied; later additions do not replace earlier ones.
class SparseMemory {
 public:
  void add(uint64_t address, Bytes bytes);
  /// Fills `out` from `address` on, over adjacent pieces; returns the number of bytes known.
  size_t read(uint64_t address, std::span<std::byte> out) const;
  [[nodiscard]] const std::map<uint64_t, std::vector<std::byte>>& pieces() const { return pieces_; }

 private:
  std::map<uint64_t, std::vector<std::byte>> pieces_;
};

struct CaseImage {
  std::string path;
  uint64_t file_offset_bytes = 0, size_bytes = 0, load_address = 0;
};

/// One pt-* case with images.
struct PtCase {
  std::string name, dir;
  pt::CpuId cpu;
  uint32_t tsc_ctc_ratio_n = 0, tsc_ctc_ratio_d = 0;
  uint8_t mtc_period = 0, max_nonturbo_ratio = 0;
  std::string trace_path, bundle_path;  ///< bundle_path: trace.json if the case is an LLDB bundle
  std::vector<CaseImage> images;
  std::string pages_dump_path, pages_addresses_path;
  std::vector<std::byte> trace;
  SparseMemory memory;
  std::vector<uint64_t> insns;              ///< expected/insns
  std::vector<std::string> events, errors;  ///< expected/events, expected/errors, line by line
};

/// Returns the names of the pt-* cases that contain a flow (images and expected/insns).
[[nodiscard]] std::vector<std::string> flow_cases();
/// Reads a case. Returns an empty optional if a file is missing or malformed (message in `why`).
[[nodiscard]] std::optional<PtCase> load_case(const std::string& name, std::string& why);

/// Returns the folder with the unpacked recording of pt-kernel-pokes (`recording`, `after`, `root`), below the build folder, created once
/// per content of the archive. Empty if that fails (message in `why`).
[[nodiscard]] std::string unpacked_kernel_pokes(std::string& why);

}  // namespace ptd::test
