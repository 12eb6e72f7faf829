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
  uint64_t recordings = 0;  ///< number of recordings that refer to it
  int64_t added_s = 0;      ///< seconds since the epoch
  std::vector<std::string> build_ids, paths;
};
struct RecordingInfo {
  std::string identity;
  Entries entries;      ///< empty if they cannot be read
  std::string trouble;  ///< the reason
  uint64_t contents = 0, size_bytes = 0;
  int64_t used_s = 0;  ///< time of the last opening with this stash
};
struct Listing {
  std::vector<ContentInfo> contents;      ///< by hash
  std::vector<RecordingInfo> recordings;  ///< latest used first
  uint64_t in_the_making = 0;             ///< unfinished or abandoned recordings
  uint64_t total_bytes = 0;
};
[[nodiscard]] Listing list(const Stash& stash);

struct GcOptions {
  int64_t unused_s = std::numeric_limits<int64_t>::max();      ///< recordings unused for this long are removed
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();  ///< the least recently used ones are removed until this is reached
  bool gone = false;                                           ///< recordings whose file is gone are removed: see gc()
  bool dry_run = false;
  /// Returns the identity of the recording at a path, "" if it is not a readable recording. If not set, any file at the path counts.
  std::function<std::string(const std::string& path)> identify;
  /// Returns the identity of the recording to which a killed recorder's entries belong, "" if none is found. For data that does not contain
  /// its identity.
  std::function<std::string(const Entries& entries)> owner_of;
};
struct GcReport {
  std::vector<std::string> forgotten;  ///< recordings, by path
  std::vector<std::string> spared;     ///< gone, but not removed because their code exists nowhere else
  std::vector<std::string> adopted;    ///< left by killed recorders, now assigned to their recordings
  std::vector<std::string> troubles;   ///< one sentence for each entry that could not be completed and is left for the next time
  uint64_t contents = 0, freed_bytes = 0, leftovers = 0;
};
/// Removes recordings according to the options; then unreferenced contents, abandoned files, links and parsed forms of removed contents.
/// A recording is gone if it is neither at its path nor at PATH.old (to which the next recording renames it). `gone` removes it, unless it
/// has deleted files, files in memory or copies of memory; these are removed only by age and size. Waits for recorders that are adding.
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
/// Hashes every content, reads every recording's entries and checks that their contents exist. `remove`: removes damaged contents, so that
/// the next recording that maps them adds them again.
VerifyReport verify(Stash& stash, bool remove);

}  // namespace ptd::stash
