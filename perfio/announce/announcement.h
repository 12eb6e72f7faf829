// Announcements: what a run-time says of the code that it generates, in the records of libptd-announce (docs/ANNOUNCE.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

enum class AnnounceKind : uint8_t { load = 1, move, unload, patch, relist, attach, detach };

/// One record: an announcement, or a chunk of a longer one. Bounds are checked; everything else is as the process claims.
struct AnnounceRecord {
  AnnounceKind kind = AnnounceKind::load;
  bool begin = false, relisted = false, unwatched = false;
  uint64_t instance = 0, seq = 0, mono_ns = 0, ticks = 0;
  uint64_t address = 0, old_address = 0, size_bytes = 0;
  uint32_t name_bytes = 0, file_bytes = 0, line_bytes = 0, code_bytes = 0;
  uint32_t chunk = 0, chunks = 1;
  uint32_t pid = 0, tid = 0, runtime = 0;
  Bytes data;  ///< of the chunk; views the record
};

/// Parses a record; bytes after it (padding) are ignored. Errors: unsupported for another version of the format, which the message names;
/// file_format for a record that contradicts itself.
[[nodiscard]] Result<AnnounceRecord> parse_announce_record(Bytes record);
/// Encodes a record that a reader adds: attach or detach. `seq`: see PTD_ANNOUNCE_ATTACH.
[[nodiscard]] std::vector<std::byte> encode_reader_record(AnnounceKind kind, uint64_t instance, uint64_t seq);

/// From this offset of the range on, code is of this source line.
struct AnnounceLine {
  uint32_t offset_bytes = 0, line = 0;
};

/// A whole announcement.
struct Announcement {
  AnnounceKind kind = AnnounceKind::load;
  bool begin = false, relisted = false;
  bool unwatched = false;  ///< of relisted code: what its range held before is not certain
  uint64_t seq = 0;        ///< of its first chunk
  uint64_t address = 0, old_address = 0, size_bytes = 0;
  uint32_t runtime = 0;
  Interval time;  ///< of its first and last record
  std::string name, file;
  std::vector<AnnounceLine> lines;   ///< of `file`, as the process gave them
  std::vector<std::byte> code;       ///< size_bytes, or none
  uint64_t record_offset_bytes = 0;  ///< of its first record in the file
};

/// Encodes an announcement as the library does. Its first record has number `seq`.
[[nodiscard]] std::vector<std::vector<std::byte>> encode_announcement(const Announcement& what, uint64_t instance);
/// Adds to the numbers of a record of this version; also to those that a reader's record names.
void shift_numbers(std::vector<std::byte>& record, uint64_t by);

/// Sequence numbers that no record has. What they announced happened within `time`. Without numbers: no reader listened within `time`.
struct AnnounceGap {
  uint64_t first_seq = 0, count = 0;
  Interval time;
};

/// What one instance (a process between fork or exec and its end) announced.
struct AnnounceHistory {
  std::vector<Announcement> announcements;  ///< by number
  std::vector<AnnounceGap> gaps;
  bool attached = false;
  TimeNs attached_at;  ///< a reader listens since then
};

/// Joins the records of one instance, which may come in any order and twice. Not thread-safe.
class AnnounceJoiner {
 public:
  static constexpr size_t kMostReaders = 4096;  ///< further ones are ignored
  void add(const AnnounceRecord& record, TimeNs time, uint64_t offset_bytes = 0);
  [[nodiscard]] AnnounceHistory finish();

 private:
  struct Piece {
    AnnounceRecord record;
    TimeNs time;
    std::vector<std::byte> data;
    uint64_t offset_bytes = 0;
  };
  bool join(std::map<uint64_t, Piece>::iterator& at, AnnounceHistory& history) const;
  struct Reader {
    TimeNs time;
    AnnounceKind kind = AnnounceKind::attach;
    uint64_t seq = 0;  ///< the first one that it could read, or how many were given out
  };
  void add_unheard(AnnounceHistory& history) const;
  std::map<uint64_t, Piece> pieces_;  // by number
  std::vector<Reader> readers_;
};

}  // namespace ptd
