// The entries of a recording in the stash: for each process its mappings, each with a generation number and its content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::stash {

/// The source of saved code.
enum class EntryKind : uint8_t {
  file,       ///< the file at the path
  deleted,    ///< a file whose path was gone: read through the process that mapped it
  memory,     ///< a memfd, read through the process
  vdso,       ///< the kernel's own library in every process
  anonymous,  ///< a copy of memory without a file, as it was at `time_ns`. An entry with the same content as the previous one: the memory
              ///< was read again
  jitdump,    ///< a jitdump that the process wrote
};
[[nodiscard]] const char* name(EntryKind kind);

/// One mapping of one process, or one copy of it.
struct Entry {
  int32_t pid = -1;
  uint64_t generation = 0;  ///< counts from 0 in each process; with the pid it names the entry in its recording
  uint64_t time_ns = 0;     ///< of the record, on the recording's clock, 0 if undated; of a later copy of memory: when its reading ended
  uint64_t address = 0, size_bytes = 0;
  uint64_t file_offset_bytes = 0;  ///< of anonymous memory: when its reading began, on the recording's clock
  EntryKind kind = EntryKind::file;
  std::string hash;      ///< of the content, which is the whole file, or `size_bytes` of memory
  std::string build_id;  ///< of the content, hex; "" if it has none
  std::string path;      ///< as recorded
};

/// The entries of one recording.
struct Entries {
  std::string recording;  ///< path of the recording when they were made, absolute
  std::string host;
  int64_t made_s = 0;  ///< seconds since the epoch
  std::vector<Entry> entries;
};

/// Returns lines of text with fields separated by spaces; paths come last, non-printable bytes as %XX. The first line names the format.
[[nodiscard]] std::string to_text(const Entries& entries);
/// Errors: file_format for any line that differs from the output of to_text(), and for a wrong checksum (the file is damaged); unsupported
/// for another version of the format.
[[nodiscard]] Result<Entries> parse_entries(std::string_view text);

/// Adds the entries of `older` that `entries` lacks; the older entries keep their generations, the others are renumbered after them.
void merge(const Entries& older, Entries& entries);
/// Numbers the generations of entries from 0 in each process, in order.
void number_generations(Entries& entries);

}  // namespace ptd::stash
