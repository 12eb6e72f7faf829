// JIT code of a process from its jitdump file, and names from its perf map. Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "image/source/jitdump.h"
#include "ptdecode/time_conversion.h"
#include "recording/image/fresh_memory.h"
#include "recording/image/image_build.h"
#include "recording/image/names/address_ranges.h"
#include "recording/image/names/code_names.h"
#include "recording/image/names/forked_spaces.h"

namespace ptd {

/// A jitdump that a process announced by mapping it.
struct JitdumpMapping {
  SpaceId space;
  std::string path;
  TimeNs mapped_at;
  int32_t pid = -1;  ///< with address and time: which mapping of the recording it is
  Ip address;
  FileId file_id;
  uint64_t file_offset_bytes = 0;  ///< of a complete jitdump: its checksum, see JitdumpSum; 0: unknown
  TimeNs started;                  ///< by when its process has started: its exec or fork; 0: unknown
  bool assumed = false;            ///< the file says so, and no record does: its code is assumed
};

/// The clock of a jitdump: the conversion from its TSC ticks to the recording's time, and whether that is CLOCK_MONOTONIC. The recording's
/// first and last record have the times `first_record` and `last_record`.
struct JitClock {
  const TimeConversion& conversion;
  bool monotonic = false;
  TimeNs first_record = kTimeMin, last_record = kTimeMax;
};

/// The file of a jitdump.
struct JitdumpFile {
  std::string path;                       ///< "": not found
  std::optional<JitdumpHeader> complete;  ///< of a file that contains all code from no file that the process ran: see kCompleteJitdump
};
[[nodiscard]] JitdumpFile file_of_jitdump(ImageBuild& image, const JitdumpMapping& mapping);
/// Adds the code of a complete jitdump, as far as it is not that of the mapped files: see RanCode. `ended`: when its process ended.
/// `warnings`: as below.
void add_complete_jitdump(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, TimeNs ended, const Timeline& mappings,
                          std::vector<std::string>& warnings);
/// A process that logs code into a jitdump.
struct JitWriter {
  SpaceId space = kNoSpace;
  TimeNs ended = kTimeMax;
  bool names_only = false;                    ///< all bytes of its code are known already
  std::span<const MappedMemory> memory = {};  ///< where memory became executable, which may be after code was logged
  const AddressRanges* announced = nullptr;   ///< where announcements give the bytes of its code, which is more exact; null: nowhere

  [[nodiscard]] bool only_names(const JitCode& code) const {
    return names_only || (announced != nullptr && announced->overlap(code.address, code.size_bytes));
  }
};

struct JitChild {
  SpaceId owner = kNoSpace;  ///< the nearest process that mapped the file and that the child was forked from; kNoSpace: none is known
  JitWriter writer;
};

/// The processes that log code into a jitdump: a child of the process that mapped it goes on with its parent's file.
struct JitWriters {
  JitWriter owner;                  ///< the process that mapped it
  const std::set<int32_t>& owners;  ///< all processes that mapped the same file
  const ForkedSpaces& forks;
  std::function<JitChild(int32_t pid, TimeNs time)> child_of;  ///< a process that mapped no jitdump
};

/// Adds each loaded or moved function to the process that logged it, as a section with its bytes and a name, or its name only. `warnings`
/// gets a sentence for a file that is absent, damaged or of another clock.
///
/// Code is `assumed` if its time proves nothing: another version at its address has the same time, or times of the file cannot be true (0,
/// before the file was mapped, after its process ended, or all after the recording). An impossible time is replaced by that of the record
/// before it. Both are findings, and so is a hole in the numbers of the functions, after which code is suspect.
///
/// The file has the numbers of processes in its own PID namespace. Those of children are then not known, and what they log is a finding.
void add_jitdump(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, const JitWriters& writers, CodeNames& names,
                 std::vector<std::string>& warnings);

inline constexpr size_t kMostPerfMapNames = 1U << 20;
struct PerfMapNames {
  uint64_t count = 0;
  bool whole = true;  ///< false: there are more than kMostPerfMapNames
  AddressRanges places = {};
};
/// Adds the names of a perf map. It has no times: the last line for an address is valid at all times. Code of files has its own names, so
/// lines that overlap `files` are ignored. If there are too many, only names within `code` are added, the last ones.
PerfMapNames add_perf_map(ImageBuild& image, SpaceId space, std::string_view text, const std::string& module, const AddressRanges& files,
                          const AddressRanges& code);

}  // namespace ptd
