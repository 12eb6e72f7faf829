// save_code(): saves the code that a finished recording maps in a stash.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "image/stash/stash.h"
#include "ptdecode/error.h"

namespace ptd {

/// The end and the beginning of the names of mappings that have no file of this name.
inline constexpr std::string_view kDeleted = " (deleted)", kMemory = "/memfd:";
inline constexpr uint64_t k4Gib = 1ULL << 32;

struct SaveOptions {
  std::string stash;  ///< directory
  stash::Limits limits;
  bool just_recorded = false;  ///< on this machine, a moment ago: its processes may still run, and this machine's vdso is theirs
};

struct SaveReport {
  uint64_t entries = 0, contents = 0, new_contents = 0, new_bytes = 0;
  struct Skipped {
    std::string path, why;
  };
  std::vector<Skipped> skipped;  ///< once each
  uint64_t unnamed = 0;          ///< further mappings that were not kept, of which not even the names are
};

/// Saves what a recording maps in a stash: files that are proven to be those that were mapped (by build id, else by inode and age), those
/// that are deleted or in memory only through /proc as long as the process runs, the vdso, jitdumps. Errors: those of PerfReader::open and
/// of the stash; unsupported if the recording is another machine's.
Result<SaveReport> save_code(const std::string& recording, const SaveOptions& options);
/// The same into a capture that has some of it already (code_saver.h), and publishes that.
Result<SaveReport> save_code(const std::string& recording, const SaveOptions& options, stash::Capture& capture);

}  // namespace ptd
