// ReplayMemory: what a recording knows of a process's memory at a time: the live code, and the read-only data of its files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "ptdecode/code_view.h"
#include "ptdecode/flow.h"
#include "ptdecode/recording.h"

namespace ptd::replay {

/// A mapped ELF file: a section of the timeline, its file, and the difference between addresses in memory and in the file.
struct MappedElf {
  const Section* section = nullptr;
  const ElfFile* elf = nullptr;
  uint64_t bias = 0;
};

/// Not thread-safe. The recording must outlive it.
class ReplayMemory {
 public:
  explicit ReplayMemory(const Recording& recording);

  /// Reads memory from `ip` on, and returns the number of bytes known there without a hole, at most out.size().
  ///  - Code: the version that was live at `when`; at the moment of a change, the newer one.
  ///  - Segments of the mapped ELF files that are not writable. Nothing else is known.
  size_t read(SpaceId space, Ip ip, TimeNs when, std::span<std::byte> out);

  /// Returns the time nearest to `near` at which memory holds the code of a block that was executed in `space`; `near` if there is none.
  /// The likeliest time of an execution may be before that of the record of its code.
  TimeNs time_of(SpaceId space, const BlockInfo& block, TimeNs near);
  /// Returns the sections that the `size_bytes` bytes at `ip` had at any time, in order of id.
  [[nodiscard]] std::vector<SectionId> sections_over(SpaceId space, Ip ip, uint64_t size_bytes) const;

  /// Returns the ELF files mapped in a process at a time, by the time of their mapping.
  std::vector<MappedElf> files(SpaceId space, TimeNs when);
  /// Returns the sections that a process has at a time, with the kernel's for kKernelSpace, by address. At most kMostSections.
  static constexpr size_t kMostSections = 1U << 16;
  std::vector<const Section*> sections(SpaceId space, TimeNs when);

 private:
  struct DataRange {
    uint64_t first = 0, end = 0;
  };
  /// Returns the part of `size` bytes at `ip` that is in one section and is not data.
  [[nodiscard]] uint64_t code_bytes_at(SpaceId space, Ip ip, TimeNs when, uint64_t size) const;
  bool holds(SpaceId space, const BlockInfo& block, TimeNs when);
  size_t read_code(SpaceId space, Ip ip, TimeNs when, std::span<std::byte> out);
  size_t read_file(SpaceId space, Ip ip, TimeNs when, std::span<std::byte> out);

  const Recording* recording_;
  CodeView view_;
  std::vector<MappedElf> elves_;  // of all sections of code from ELF files
  /// Writable data in sections that the recording declares as code: the file does not have its content.
  std::map<SectionId, std::vector<DataRange>> data_;
};

}  // namespace ptd::replay
