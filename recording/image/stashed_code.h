// Recordings and stashes: the identity of a recording in a stash, lookup and saving of its code.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "image/source/code_source.h"
#include "image/stash/stash.h"
#include "perfio/perf_reader.h"
#include "ptdecode/error.h"

namespace ptd {

/// What names a recording in a stash: a hash of its events (whose ids the kernel gives once a boot) and of the first 64 KiB of its records,
/// so that copies and moved files have the same name, and files that are cut behind those 64 KiB.
[[nodiscard]] std::string recording_identity(const perfio::PerfReader& reader);
/// The same of a file; "" if there is no recording.
[[nodiscard]] std::string recording_identity(const std::string& path);
/// The same of a recording that is being made, of which so many bytes are there and stay; "" as long as more may change it.
[[nodiscard]] std::string early_identity(const std::string& path, uint64_t file_bytes);
/// The same of the recording whose records tell what `entries`, left by a recorder that was killed, are of: at its path or, where the next
/// recording moved it, at PATH.old. "" if neither has a mapping of theirs.
[[nodiscard]] std::string recording_of(const stash::Entries& entries);

/// Looks into stashes. One thread, as CodeSource. A stash that is absent, or not to be trusted, holds nothing.
class StashedCode : public KeptFiles {
 public:
  /// `identity`: of the recording; "": only build ids are looked for. Null if no stash is there.
  static std::shared_ptr<StashedCode> open(const std::vector<std::string>& stashes, const std::string& identity = {});
  OfMapping of_mapping(const MappedPath& wanted) override;
  std::vector<Copy> later_copies(const MappedPath& wanted) override;
  std::vector<std::shared_ptr<const MappedFile>> with_build_id(const std::string& build_id) override;
  [[nodiscard]] std::vector<ElfSymbol> symbols_of(const ElfFile& elf) override;
  [[nodiscard]] std::vector<std::string> troubles() const override { return troubles_; }

 private:
  void note(const Error& error);
  std::shared_ptr<const MappedFile> read(size_t stash, const std::string& hash);
  std::vector<std::string> troubles_;
  struct Mapping {
    size_t stash = 0;
    stash::Entry entry;
  };
  using Key = std::pair<int32_t, uint64_t>;  // process, address
  std::vector<std::unique_ptr<stash::Stash>> stashes_;
  std::multimap<Key, Mapping> mappings_;
  struct Given {
    std::shared_ptr<const MappedFile> file;
    size_t stash = 0;
    std::string hash;
  };
  std::map<std::string, Given> given_;  // by the path under which it was given
};

struct KeepOptions {
  std::string stash;  ///< directory
  stash::Limits limits;
  bool just_recorded = false;  ///< on this machine, a moment ago: its processes may still run, and this machine's vdso is theirs
};

struct KeepReport {
  uint64_t entries = 0, contents = 0, new_contents = 0, new_bytes = 0;
  struct Skipped {
    std::string path, why;
  };
  std::vector<Skipped> skipped;  ///< once each
  uint64_t unnamed = 0;          ///< further mappings that were not kept, of which not even the names are
};

/// Puts what a recording maps into a stash: files that are proven to be those that were mapped (by build id, else by inode and age), those
/// that are deleted or in memory only through /proc as long as the process runs, the vdso, jitdumps. Errors: those of PerfReader::open and
/// of the stash; unsupported if the recording is another machine's.
Result<KeepReport> keep_code(const std::string& recording, const KeepOptions& options);
/// The same into a capture that has some of it already (live_keeper.h), and publishes that.
Result<KeepReport> keep_code(const std::string& recording, const KeepOptions& options, stash::Capture& capture);

}  // namespace ptd
