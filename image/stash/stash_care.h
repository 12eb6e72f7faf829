// Listing, garbage collection and verification of a stash.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "image/stash/stash.h"

namespace ptd::stash {

struct ContentInfo {
  std::string hash;
  uint64_t size_bytes = 0;
  uint64_t recordings = 0;  ///< that refer to it
  int64_t added_s = 0;      ///< seconds since the epoch
  std::vector<std::string> build_ids, paths;
};
struct RecordingInfo {
  std::string identity;
  Entries entries;      ///< empty if they cannot be read
  std::string trouble;  ///< why not
  uint64_t contents = 0, size_bytes = 0;
  int64_t used_s = 0;  ///< when it was last opened with this stash at hand
};
struct Listing {
  std::vector<ContentInfo> contents;      ///< by hash
  std::vector<RecordingInfo> recordings;  ///< latest used first
  uint64_t in_the_making = 0;             ///< recordings that someone works on, or that were left behind
  uint64_t total_bytes = 0;
};
[[nodiscard]] Listing list(const Stash& stash);

struct GcOptions {
  int64_t unused_s = std::numeric_limits<int64_t>::max();      ///< recordings that were not used for so long are forgotten
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();  ///< those used longest ago are forgotten until this is enough
  bool gone = false;                                           ///< those that are not where they were made: see gc()
  bool dry_run = false;
  /// The identity of the recording at a path, "" if that is no recording that can be read. Without it a file at the path is the recording.
  std::function<std::string(const std::string& path)> identify;
  /// The identity of the recording in which a killed recorder's entries are, "" if none is found: for what does not name its own.
  std::function<std::string(const Entries& entries)> owner_of;
};
struct GcReport {
  std::vector<std::string> forgotten;  ///< recordings, by path
  std::vector<std::string> spared;     ///< gone, and what is kept of them could not be had again: not forgotten
  std::vector<std::string> adopted;    ///< left behind by killed recorders; it is their recordings' now
  std::vector<std::string> troubles;   ///< what could not be made whole and stays for the next time, a sentence each
  uint64_t contents = 0, freed_bytes = 0, leftovers = 0;
};
/// Forgets recordings as asked; then removes what no recording refers to, files left behind, and links and parsed forms of what is gone.
/// A recording is gone if neither its path nor PATH.old (where the next one moves it) has it; then `gone` forgets it, unless it has deleted
/// files, files in memory or copies of memory, which only age and size make forgotten. Waits for recorders that are adding something.
/// Errors: file_open.
Result<GcReport> gc(Stash& stash, const GcOptions& options);

struct Problem {
  std::string path, what;
  bool removed = false;
};
struct VerifyReport {
  uint64_t contents = 0, bytes = 0, recordings = 0, entries = 0;
  std::vector<Problem> problems;
};
/// Hashes every content, reads every recording's entries and looks for what they name. `remove`: damaged contents go, so that the next
/// recording that maps them puts them in anew.
VerifyReport verify(Stash& stash, bool remove);

}  // namespace ptd::stash
