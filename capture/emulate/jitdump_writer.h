// JitdumpWriter: writes the dated code of a process that is in no file, in the format that perf inject reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "image/source/jitdump.h"
#include "perfio/output_file.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

/// One jitdump file with times in TSC ticks (tools/perf "jitdump-specification", JITDUMP_FLAGS_ARCH_TIMESTAMP).
class JitdumpWriter {
 public:
  static Result<std::unique_ptr<JitdumpWriter>> create(const std::string& path, int32_t pid, uint64_t tsc);
  Status load(uint64_t tsc, int32_t tid, uint64_t ip, Bytes code);
  Status finish(uint64_t tsc);
  [[nodiscard]] uint64_t loads() const { return loads_; }
  /// Returns the checksum of what was written.
  [[nodiscard]] uint64_t sum() const { return sum_.value(); }

 private:
  JitdumpWriter(std::unique_ptr<perfio::OutputFile> file, int32_t pid) : file_(std::move(file)), pid_(pid) {}
  std::unique_ptr<perfio::OutputFile> file_;
  int32_t pid_;
  uint64_t loads_ = 0;
  std::vector<std::byte> scratch_;
  JitdumpSum sum_;
  Status append(Bytes bytes);
};

}  // namespace ptd::emulate
