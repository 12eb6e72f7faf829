// Stash: code saved when recordings were made, stored once per content, for use when the original files have changed.
//
//   DIR/format                   "ptdecode-stash 1": the layout below
//   DIR/lock                     locked shared by recorders while they add, exclusively by gc
//   DIR/objects/xx/yyyy...       a content in raw form, named by its SHA-256; written atomically and never changed. Mode 0400; in the
//                                machine's stash 0444 if it came from a world-readable file
//   DIR/build-ids/xx/ID.HASH     a link for users and other tools; ptdecode reads only its name
//   DIR/recordings/IDENTITY/     one recording: `entries` (process, generation, mapping -> content; stash_entries.h), and a hard link to
//                                each of these contents, named by its hash
//   DIR/incoming/NAME/           the same for an unfinished recording, locked by its recorder; `identity` as soon as it is known
//   DIR/parsed/FORMAT/xx/HASH    the parsed form of a content (parsed_symbols.h); recreated from the raw form if the format changes
//
// Terms: a *content* is the bytes of one file; an *entry* links a mapping of a process to a content; a *recording* is named by its
// identity, which is derived from its own bytes, so that it may be moved and copied.
//
// **Invariant:** a content's link count is one plus the number of recordings that refer to it, including those with unreadable entries.
// **Invariant:** a name appears only when its content is complete and on disk; a kill or a full disk leaves no partial content.
// **Invariant:** no byte is returned that was not hashed after it was read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "image/base/mapped_file.h"
#include "image/stash/stash_dir.h"
#include "image/stash/stash_entries.h"
#include "ptdecode/error.h"

namespace ptd::stash {

struct Limits {
  uint64_t file_bytes = 1ULL << 30;        ///< larger files are not saved
  uint64_t recording_bytes = 4ULL << 30;   ///< new bytes that one recording may add
  uint64_t total_bytes = 32ULL << 30;      ///< limit for all contents together
  uint64_t least_free_bytes = 1ULL << 30;  ///< minimum free space of the file system, or a twentieth of it if that is less
};

/// A content in the stash.
struct Content {
  std::string hash, build_id;
  uint64_t size_bytes = 0;
  bool is_new = false;  ///< it was not in the stash before, or was damaged
};

/// One stash. Any number of processes may use it at the same time. Not thread-safe, except read().
class Stash {
 public:
  enum class Access : uint8_t { read, write };
  /// Errors: file_open (absent, another user's, not writable, or with a link, FIFO or
  /// other foreign kind of file in place of one of its parts), unsupported (the layout of a later version, or of an unknown one).
  static Result<std::unique_ptr<Stash>> open(const std::string& path, Access access);

  /// Returns the verified bytes of a content. Errors: file_open if it does not exist; file_format if it is damaged. Thread-safe.
  [[nodiscard]] Result<std::shared_ptr<const MappedFile>> read(const std::string& hash) const;
  /// Returns the hashes of contents with a build id (hex), ignoring zero padding. Errors: of the folder that would list them.
  [[nodiscard]] Result<std::vector<std::string>> with_build_id(const std::string& build_id) const;
  /// Returns the entries of a recording. Errors: file_open if it has none.
  [[nodiscard]] Result<Entries> entries_of(const std::string& identity) const;
  [[nodiscard]] std::vector<std::string> recordings() const;
  /// Records that the recording was opened, which gc uses. Does nothing if this user may not write.
  void note_use(const std::string& identity) const;
  [[nodiscard]] const std::string& path() const { return top_.path(); }
  [[nodiscard]] const Dir& top() const { return top_; }
  /// Returns the size of all contents.
  [[nodiscard]] uint64_t total_bytes() const;
  /// Publishes `dir`, which is incoming/`name` and contains links to contents, as the recording's folder, merged with an existing one.
  /// `entries`: those of `dir`; afterwards the merged ones. Errors: of the file system; then nothing has changed.
  [[nodiscard]] Status take_in(const Dir& dir, const std::string& name, const std::string& identity, Entries& entries) const;

 private:
  friend class Capture;
  explicit Stash(Dir top) : top_(std::move(top)) {}
  [[nodiscard]] Result<Fd> lock_file() const;
  Dir top_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const MappedFile>> checked_;  ///< contents that were read
};

/// The users who may read a content of the machine's stash.
enum class Readers : uint8_t {
  owner,  ///< the user that saved it: it was deleted, in memory, or not world-readable
  all,
};

/// Returns whether every user may read a file, by its mode and those of its parent folders. False for a file without a name.
[[nodiscard]] bool open_to_all(int fd);

/// Saves the code of one recording in a stash, from start to end of the recording. Flushed data survives this process: see gc().
class Capture {
 public:
  /// `recording`: its future path. Errors: of the file system.
  static Result<std::unique_ptr<Capture>> begin(Stash& stash, const std::string& recording, const Limits& limits);
  /// Continues the capture `name` of a dead process from its flushed data. The caller was forked from that process, and so has its lock.
  /// Errors: file_open.
  static Result<std::unique_ptr<Capture>> go_on(Stash& stash, const std::string& name, const std::string& recording, const Limits& limits);
  /// Removes everything if publish() was not called. A capture that another process began is left to gc().
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Copies a whole file. An existing content costs two hashes, and is rewritten if it is damaged. In the machine's stash
  /// other users may read it if they may read the original file (open_to_all()). Errors: unsupported above a limit, file_open.
  Result<Content> add(int fd);
  /// Same for bytes in memory, readable only by this user unless declared otherwise (kernel code).
  Result<Content> add(Bytes bytes, Readers readers = Readers::owner);
  void add_entry(Entry entry) { entries_.entries.push_back(std::move(entry)); }
  /// Writes the entries added so far, so that they survive this process.
  Status flush();
  /// Sets the identity that the recording will have. gc() uses it if this process dies or the recording is moved.
  Status name_recording(const std::string& identity);
  /// Ends the recording, which has this identity. Existing entries of it are merged.
  Status publish(const std::string& identity);
  /// Returns the name for go_on().
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] uint64_t new_bytes() const { return new_bytes_; }
  [[nodiscard]] const Entries& entries() const { return entries_; }

 private:
  Capture(Stash& stash, Dir dir, std::string name, Limits limits);
  void note_origin(const std::string& recording);
  Status check_room(uint64_t size_bytes);
  Result<Content> keep(const std::string& hash, uint64_t size_bytes, Readers readers,
                       const std::function<Status(int, std::string&)>& write);
  Stash& stash_;
  Dir dir_;
  Lock alive_;
  std::string name_;
  Limits limits_;
  Entries entries_;
  struct Known {
    Content content;
    Readers readers = Readers::owner;  ///< readers for whom it was added
  };
  std::map<std::string, Known> known_;  // by hash
  uint64_t new_bytes_ = 0, total_bytes_ = 0;
  bool published_ = false, is_heir_ = false;
};

/// Returns the user's stash: $PTDECODE_STASH ("off": none), $XDG_CACHE_HOME/ptdecode, ~/.cache/ptdecode; for root /var/cache/ptdecode
/// unless one of the first two is set. "" if there is none.
[[nodiscard]] std::string own_stash_path();
/// Returns the machine's stash: /var/cache/ptdecode; "" if PTDECODE_STASH is set.
[[nodiscard]] std::string system_stash_path();

/// Returns both, if they differ: the stashes that the command line searches for code. No other function reads the environment.
[[nodiscard]] std::vector<std::string> stash_paths();

inline constexpr const char* kSystemStash = "/var/cache/ptdecode";
inline constexpr const char* kObjects = "objects";
inline constexpr const char* kBuildIds = "build-ids";
inline constexpr const char* kRecordings = "recordings";
inline constexpr const char* kIncoming = "incoming";
inline constexpr const char* kParsed = "parsed";
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kEntriesFile = "entries";
inline constexpr const char* kIdentityFile = "identity";  ///< file of an unfinished recording, once its identity is known
inline constexpr uint64_t kMaxEntriesBytes = 256ULL << 20;

}  // namespace ptd::stash
