// StashedCode: finds the code of a recording in stashes, by the identity under which it was saved.
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

/// Returns the identity of a recording in a stash: a hash of its events (whose ids are unique per boot) and of the first 64 KiB of its
/// records. Copies, moved files, and files truncated after those 64 KiB have the same identity.
[[nodiscard]] std::string recording_identity(const perfio::PerfReader& reader);
/// Same for a file; "" if it is not a recording.
[[nodiscard]] std::string recording_identity(const std::string& path);
/// Same for an unfinished recording of which this many bytes are final; "" while more bytes may change it.
[[nodiscard]] std::string early_identity(const std::string& path, uint64_t file_bytes);
/// The same of the recording whose records tell what `entries`, left by a recorder that was killed, are of: at its path or, where the next
/// recording moved it, at PATH.old. "" if neither has a mapping of theirs.
[[nodiscard]] std::string recording_of(const stash::Entries& entries);

/// Looks up code in stashes. Not thread-safe, like CodeSource. A missing stash is empty. One that cannot
/// be used is, too, and troubles() names it.
class StashedCode : public SavedFiles {
 public:
  /// `identity`: that of the recording; "": look up build ids only. Null if there is no stash, usable or not.
  static std::shared_ptr<StashedCode> open(const std::vector<std::string>& stashes, const std::string& identity = {});
  OfMapping of_mapping(const MappedPath& wanted) override;
  int64_t saved_at_ns(const MappedPath& wanted) override;
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
    int64_t made_s = 0;
  };
  std::vector<const Mapping*> entries_of(const MappedPath& wanted) const;
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

}  // namespace ptd
