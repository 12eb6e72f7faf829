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

/// A file without a name is in reach as long as a process has it mapped (/proc/PID/map_files, needs CAP_CHECKPOINT_RESTORE or
/// CAP_SYS_ADMIN); memory as long as the process lives (/proc/PID/mem, needs the right to trace it). Executable memory without a file, or
/// of a file that is written through another mapping, is copied when its mapping is read, and again whenever it looks different (of much
/// memory a part at a time, in turn): what changed in between is dated by the two readings around it, what came and went between them is
/// not seen. A copy counts once it is known that nothing else was mapped there while it was read: see told_until(). What it has by then
/// outlives a kill: see stash::gc. One thread.
class CodeSaver {
 public:
  /// `recording`: the path that it will have. Errors: of the stash.
  static Result<std::unique_ptr<CodeSaver>> begin(const std::string& recording, const SaveOptions& options);

  /// What a mapping is to a CodeSaver.
  enum class Interest : uint8_t {
    none,    ///< nothing: of the kernel, of a guest, not executable
    covers,  ///< it ends what was mapped there before
    bytes,   ///< that, and what it shows may be gone before the recording ends
  };
  [[nodiscard]] static Interest interest_in(const perfio::MmapRecord& map);
  /// A mapping that a record tells; `time_ns` is the record's.
  void on_mapping(const perfio::MmapRecord& map, uint64_t time_ns);
  /// All that one of which Interest::covers is known tells.
  struct Cover {
    int32_t pid = -1;
    uint64_t address = 0, size_bytes = 0, time_ns = 0;
  };
  void on_cover(const Cover& cover);
  /// All mappings were told whose records were there at this moment of CLOCK_MONOTONIC: copies that were made before it hold, where nothing
  /// that was told covers them.
  void told_until(uint64_t monotonic_ns);
  /// Mappings were left out: nobody knows any more what stands where memory was looked at. It is looked at no more, and named.
  void forget_memory();
  /// So many bytes of the recording's file stay, whatever happens. Once they are enough to name it, gc() knows whose this is.
  void on_written(uint64_t file_bytes);
  /// The mappings that a finished recording tells, of processes that may still run; memory without a file is left out, as nobody knows
  /// since when it looks as it does. Errors: of reading it.
  Status on_recording();
  /// Looks at memory that was copied before, if some time has passed. `now_ns`: a clock that gives the time on the recording's own clock;
  /// 0: unknown, then nothing can be dated and only first copies are kept. It may be late by `slack_ns`.
  void look(const std::function<uint64_t()>& now_ns, uint64_t slack_ns = 0);
  /// The recording is complete, and all mappings were told: keeps the rest, and the whole under the recording's name. `recorded_until_ns`
  /// (CLOCK_MONOTONIC): what was copied later may have been anything.
  Result<SaveReport> finish(uint64_t recorded_until_ns = ~uint64_t{0});
  /// In a process that was forked from the one that began, which is dead now: goes on with what that had flushed. Errors: of the stash.
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
    uint64_t same_since_ns = 0, same_until_ns = 0;  // the last reading behind the one that was kept, which found the same; 0: none
  };
  using Key = std::pair<int32_t, uint64_t>;  // process, address
  /// What was mapped in a round, and when: at each address the newest. Those that are told in order cost little.
  class Newest {
   public:
    void add(const Cover& cover);
    /// Whether something newer than `cover` was mapped over a part of it.
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
  /// A copy that may be of what was mapped over its region before it was read: what tells that is still on its way.
  struct Held {
    bool is_first = false;
    uint64_t mapped_ns = 0;      // of the mapping's record
    uint64_t read_until_ns = 0;  // on the recording's clock, at the latest; 0: unknown
    uint64_t read_until_monotonic_ns = 0;
    stash::Entry entry;
  };
  std::multimap<Key, Held> held_;           // of one key in the order in which they were read; also of regions that are gone
  Newest newest_, newest_before_;           // of the round that is told, and of the one before
  std::vector<stash::Entry> narrow_vdsos_;  // of processes that were gone before theirs was read: it is the same for all
  stash::Content narrow_vdso_;
  std::map<std::string, std::string> skipped_;  // path -> why: the first reason, which the others follow from
  uint64_t skipped_unnamed_ = 0;
  Key last_looked_at_;  // the next look goes on behind it
  uint64_t last_look_ms_ = 0, entries_ = 0, mappings_ = 0;
  uint64_t slack_ns_ = 0;
  uint64_t next_flush_ms_ = 0;
  bool dirty_ = false, is_named_ = false;
};

}  // namespace ptd
