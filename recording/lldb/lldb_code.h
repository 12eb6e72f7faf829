// ProcessCode: the code that one process, or the kernel, executed, in the form that LLDB's trace bundle has: one content for each address.
// Private to recording.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "ptdecode/flow.h"
#include "ptdecode/recording.h"

namespace ptd {

/// A file with code, and its place in memory.
struct LldbModule {
  std::shared_ptr<const ElfFile> elf;
  std::string path;   ///< as recorded
  uint64_t bias = 0;  ///< addresses in memory minus those of the file
};

/// Executed code that a bundle of LLDB cannot hold.
struct LldbConflict {
  Ip ip;
  TimeNs when;
  std::string what;  ///< follows "the code at IP "
};

/// Collects executed blocks. The recording must outlive it. Not thread-safe.
class ProcessCode {
 public:
  explicit ProcessCode(const Recording& recording) : recording_(&recording) {}

  /// Adds a block that ran in a space at a time.
  void add(const BlockInfo& block, SpaceId space, TimeNs when);
  /// Call after the last add().
  void finish();

  /// The files whose content is the code that ran.
  [[nodiscard]] const std::vector<LldbModule>& modules() const { return modules_; }
  /// Returns an ELF file with the executed code of no file (kernel, vdso, generated, of a bundle), with names; "" if there is none. Between
  /// pieces of code that are close together it has the bytes that the recording knows, or INT3. Errors: too_large.
  [[nodiscard]] Result<std::string> other_code(bool is_64bit) const;
  /// Returns the lowest address of other_code().
  [[nodiscard]] uint64_t other_address() const;
  [[nodiscard]] bool has_other_code() const { return !pages_.empty(); }
  /// The first conflict, by order of add(), and their number.
  [[nodiscard]] const std::optional<LldbConflict>& conflict() const { return conflict_; }
  [[nodiscard]] uint64_t conflicts() const { return conflicts_; }
  [[nodiscard]] bool is_64bit() const { return is_64bit_; }
  [[nodiscard]] bool has_user_code() const { return has_user_code_; }

 private:
  static constexpr uint64_t kPageBytes = 4096;
  struct Page {
    std::array<std::byte, kPageBytes> bytes{};
    std::bitset<kPageBytes> known;
    SpaceId space;
    TimeNs when;
  };
  struct Name {
    uint64_t size_bytes = 0;
    std::string text;
  };
  struct Run {
    uint64_t first = 0;
    std::vector<std::byte> bytes;
  };
  void refuse(Ip ip, TimeNs when, std::string what);
  bool add_to_file(const Section& section, Ip ip, Bytes bytes, TimeNs when);
  void add_module(const Section& section, const std::shared_ptr<const ElfFile>& elf, uint64_t bias, Ip ip, TimeNs when);
  void add_piece(SpaceId space, Ip ip, Bytes bytes, TimeNs when);
  [[nodiscard]] uint64_t start_of(uint64_t address) const;
  [[nodiscard]] std::vector<Run> runs() const;
  void fill(const Page& page, Run& run, size_t count) const;

  const Recording* recording_;
  std::vector<LldbModule> modules_;
  std::map<uint64_t, Page> pages_;  // by address / kPageBytes
  std::map<uint64_t, Name> names_;  // by address
  std::optional<LldbConflict> conflict_;
  uint64_t conflicts_ = 0;
  bool is_64bit_ = true, has_user_code_ = false;
};

}  // namespace ptd
