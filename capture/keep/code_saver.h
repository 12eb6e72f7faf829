// CodeSaver: saves, while a recording is made, code that will be gone when it ends: deleted and memory-only files, and dated copies of
// memory without a file.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/keep/save_code.h"
#include "image/stash/mapping_file.h"
#include "perfio/format/records.h"

namespace ptd {

/// A file without a name can be read as long as a process has it mapped (/proc/PID/map_files, needs CAP_CHECKPOINT_RESTORE or
/// CAP_SYS_ADMIN), and memory as long as the process lives (/proc/PID/mem, needs the right to trace it). Executable memory without a file,
/// or of a file that is written through another mapping, is copied when its mapping is read, and again whenever it has changed (large
/// memory in parts, in turn). A change is dated by the two readings around it. Limitation: code that is created and removed between two
/// readings is not seen. A copy is valid once it is known that nothing else was mapped there while it was read: see told_until(). Saved
/// data survives a kill: see stash::gc. Not thread-safe.
class CodeSaver {
 public:
  /// `recording`: the future path of the recording. Errors: of the stash.
  static Result<std::unique_ptr<CodeSaver>> begin(const std::string& recording, const SaveOptions& options);

  /// How a CodeSaver treats a mapping.
  enum class Interest : uint8_t {
    none,    ///< nothing: of the kernel, of a guest, not executable
    covers,  ///< it ends what was mapped there before
    bytes,   ///< that, and what it shows may be gone before the recording ends
  };
  [[nodiscard]] static Interest interest_in(const perfio::MmapRecord& map);
  /// Processes the mapping of a record; `time_ns` is the record's time.
  void on_mapping(const perfio::MmapRecord& map, uint64_t time_ns);
  /// Same for a mapping that is known to be Interest::covers.
  struct Cover {
    int32_t pid = -1;
    uint64_t address = 0, size_bytes = 0, time_ns = 0;
  };
  void on_cover(const Cover& cover);
  /// Declares that all mappings recorded up to this time of CLOCK_MONOTONIC were processed: earlier copies are valid unless one of these
  /// mappings covers them.
  void told_until(uint64_t monotonic_ns);
  /// Declares that mappings were lost, so that the content of copied memory is uncertain. It is no longer read, and is reported.
  void forget_memory();
  /// Declares that this many bytes of the recording's file are final. Once they are enough to identify the recording, gc() can use them.
  void on_written(uint64_t file_bytes);
  /// Processes the mappings of a finished recording, whose processes may still run. Memory without a file is skipped because its content
  /// cannot be dated. Errors: of reading the recording.
  Status on_recording();
  /// Rereads copied memory if some time has passed. `now_ns`: the time on the recording's clock, which may be late by `slack_ns`; 0:
  /// unknown, then nothing can be dated and only first copies are saved.
  void look(const std::function<uint64_t()>& now_ns, uint64_t slack_ns = 0);
  /// Ends the recording after its last mapping: saves the rest and publishes everything under the recording's identity. Copies made after
  /// `recorded_until_ns` (CLOCK_MONOTONIC) are not reliable.
  Result<SaveReport> finish(uint64_t recorded_until_ns = ~uint64_t{0});
  /// In a process that was forked from the first one, which is now dead: continues from its flushed data. Errors: of the stash.
  [[nodiscard]] Result<std::unique_ptr<CodeSaver>> heir() const;
  [[nodiscard]] const std::string& stash_path() const { return options_.stash; }

 private:
  struct Region {
    uint64_t size_bytes = 0;
    std::optional<stash::ProcessMapping> file;  // of a file that is written through: it is read, as reading memory would fill its holes
    uint64_t file_offset_bytes = 0;
    std::string path, hash, build_id;               // hash and build id of the last copy
    uint64_t time_ns = 0;                           // of the record
    uint64_t number = 0;                            // of the mapping: another one at the same address is another
    uint64_t same_since_ns = 0, same_until_ns = 0;  // the last reading after the stored one that found the same; 0: none
  };
  using Key = std::pair<int32_t, uint64_t>;  // process, address
  /// The newest mapping at each address in a round, with its time. Adding in time order is fast.
  class Newest {
   public:
    void add(const Cover& cover);
    /// Returns whether something newer than `cover` was mapped over a part of it.
    [[nodiscard]] bool is_over(const Cover& cover) const;

   private:
    struct Piece {
      uint64_t end = 0, time_ns = 0;
    };
    using Pieces = std::map<Key, Piece>;
    [[nodiscard]] Pieces::const_iterator first_behind(const Key& key) const;
    Pieces pieces_;  // none overlaps another
  };
  CodeSaver(std::unique_ptr<stash::Stash> stash, std::string recording, SaveOptions options)
      : stash_(std::move(stash)), recording_(std::move(recording)), options_(std::move(options)) {}
  [[nodiscard]] Result<stash::Content> add_file(const stash::MappingFile& file);
  void add_region(const perfio::MmapRecord& map, uint64_t time_ns, std::optional<stash::ProcessMapping> file);
  void keep_file(const perfio::MmapRecord& map, uint64_t time_ns);
  void keep_narrow_vdso(const perfio::MmapRecord& map, uint64_t time_ns);
  bool copy(const Key& key, Region& region, const std::function<uint64_t()>& now_ns);
  struct Reading {
    uint64_t begun_ns = 0, until_ns = 0;  // on the recording's clock, 0: unknown; the end at the latest
    bool is_first = false;
  };
  void add_copy(const Key& key, const Region& region, const Reading& reading);
  [[nodiscard]] bool is_covered(const Cover& mapping) const;
  void drop_copies(const Cover& cover);
  void look_again(const std::function<uint64_t()>& now_ns);
  void flush();
  void skip(const std::string& path, const std::string& why);

  std::unique_ptr<stash::Stash> stash_;
  std::string recording_;
  SaveOptions options_;
  std::unique_ptr<stash::Capture> capture_;
  using FileKey = std::array<int64_t, 7>;            // device, inode, size, time of change and of writing
  std::map<FileKey, Result<stash::Content>> files_;  // on disks: what is mapped often is read once
  std::map<Key, Region> regions_;
  struct Pending {
    Key key;
    uint64_t number = 0;
  };
  std::vector<Pending> pending_;  // regions of this round, not yet copied
  /// A copy that is not valid yet: a record that is not read yet may show that something else was mapped over its region.
  struct Held {
    bool is_first = false;
    uint64_t mapped_ns = 0;      // of the mapping's record
    uint64_t read_until_ns = 0;  // on the recording's clock, at the latest; 0: unknown
    uint64_t read_until_monotonic_ns = 0;
    stash::Entry entry;
  };
  std::multimap<Key, Held> held_;           // of one key in the order in which they were read; also of regions that are gone
  Newest newest_, newest_before_;           // of the current round, and of the one before
  std::vector<stash::Entry> narrow_vdsos_;  // of processes that were gone before theirs was read: it is the same for all
  stash::Content narrow_vdso_;
  std::map<std::string, std::string> skipped_;  // path -> why: the first reason, which the others follow from
  uint64_t skipped_unnamed_ = 0;
  Key last_looked_at_;  // the next look continues after it
  uint64_t last_look_ms_ = 0, entries_ = 0, mappings_ = 0;
  uint64_t slack_ns_ = 0;
  uint64_t next_flush_ms_ = 0;
  bool dirty_ = false, is_named_ = false;
};

}  // namespace ptd
