// Stash: code saved when recordings were made, stored once per content, for use when the original files have changed.
//
//   DIR/format                   "ptdecode-stash 1": the layout below
//   DIR/lock                     recorders hold it shared while they add, gc exclusively
//   DIR/objects/xx/yyyy...       a content in raw form, named by its SHA-256; written once, whole, never changed. Its mode: 0400; in the
//                                machine's stash 0444 if it came from a file that everybody may read
//   DIR/build-ids/xx/ID.HASH     a link for people and other tools; only its name is read
//   DIR/recordings/IDENTITY/     of one recording: `entries` (process, generation, mapping -> content; stash_entries.h), and under its hash
//                                a hard link to each content that they name
//   DIR/incoming/NAME/           the same of a recording in the making, locked by who makes it; `identity` as soon as that is known
//   DIR/parsed/FORMAT/xx/HASH    a content taken apart (parsed_symbols.h); made again from the raw form whenever its format is another
//
// Terms: a *content* is the bytes of one file; an *entry* says that a mapping of a process showed a content; a *recording* is named by its
// identity, which is taken from its own bytes, so that it may be moved and copied.
//
// **Invariant:** a content's link count is one plus the recordings that refer to it, also of those whose entries cannot be read.
// **Invariant:** a name appears when what it names is whole and on the disk; no kill and no full disk leaves half of anything.
// **Invariant:** no byte is given to anybody that was not hashed after it was read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "image/source/mapped_file.h"
#include "image/stash/stash_dir.h"
#include "image/stash/stash_entries.h"
#include "ptdecode/error.h"

namespace ptd::stash {

struct Limits {
  uint64_t file_bytes = 1ULL << 30;        ///< a larger file is not taken
  uint64_t recording_bytes = 4ULL << 30;   ///< new bytes that one recording may add
  uint64_t total_bytes = 32ULL << 30;      ///< of all contents
  uint64_t least_free_bytes = 1ULL << 30;  ///< of the file system, or a twentieth of it if that is less
};

/// A content as it stands in the stash.
struct Content {
  std::string hash, build_id;
  uint64_t size_bytes = 0;
  bool is_new = false;  ///< it was not there before, or not whole
};

/// One stash. Any number of processes may use it at once. One thread, but for read().
class Stash {
 public:
  enum class Access : uint8_t { read, write };
  /// Errors: file_open (absent, another user's, not writable), unsupported (the layout of a later version).
  static Result<std::unique_ptr<Stash>> open(const std::string& path, Access access);

  /// The bytes of a content, after they were hashed. Errors: file_open if it is not there; file_format if it is damaged. Thread-safe.
  [[nodiscard]] Result<std::shared_ptr<const MappedFile>> read(const std::string& hash) const;
  /// Hashes of contents with a build id (hex), up to zero padding.
  [[nodiscard]] std::vector<std::string> with_build_id(const std::string& build_id) const;
  /// What a recording has here. Errors: file_open if nothing.
  [[nodiscard]] Result<Entries> entries_of(const std::string& identity) const;
  [[nodiscard]] std::vector<std::string> recordings() const;
  /// The recording was opened: gc goes by it. Where this user may not write, nothing happens.
  void note_use(const std::string& identity) const;
  [[nodiscard]] const std::string& path() const { return top_.path(); }
  [[nodiscard]] const Dir& top() const { return top_; }
  /// Bytes of all contents.
  [[nodiscard]] uint64_t total_bytes() const;
  /// Makes `dir`, which is incoming/`name` and holds links to contents, what the recording has here; with what it has already it becomes
  /// one. `entries`: of `dir`; then of both. Errors: of the file system; then all is as it was.
  [[nodiscard]] Status take_in(const Dir& dir, const std::string& name, const std::string& identity, Entries& entries) const;

 private:
  friend class Capture;
  explicit Stash(Dir top) : top_(std::move(top)) {}
  [[nodiscard]] Result<Fd> lock_file() const;
  Dir top_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const MappedFile>> checked_;  ///< contents that were read
};

/// Who may read a content of the machine's stash.
enum class Readers : uint8_t {
  owner,  ///< who put it there: it was deleted, in memory, or not for everybody's eyes
  all,
};

/// A file that every user may read, by its own mode and those of the folders above it. Not one that has no name any more.
[[nodiscard]] bool open_to_all(int fd);

/// What one recording puts into a stash, from its beginning to its end. What was flushed stays if this process dies: see gc().
class Capture {
 public:
  /// `recording`: the path that it will have. Errors: of the file system.
  static Result<std::unique_ptr<Capture>> begin(Stash& stash, const std::string& recording, const Limits& limits);
  /// Goes on with what the capture `name` of a process that is dead had flushed. The caller was forked from that process, and so has its
  /// lock. Errors: file_open.
  static Result<std::unique_ptr<Capture>> go_on(Stash& stash, const std::string& name, const std::string& recording, const Limits& limits);
  /// Leaves nothing behind if publish() was not called; of a capture that another one began all is left to gc().
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Copies a file from its first byte; what is in the stash already costs two hashes, and is written anew if it is damaged. In the
  /// machine's stash other users may read it if they may read the file where it is (open_to_all()). Errors: unsupported beyond a limit,
  /// file_open.
  Result<Content> add(int fd);
  /// The same of bytes in memory, for this user alone unless they are said to be everybody's (the kernel's own).
  Result<Content> add(Bytes bytes, Readers readers = Readers::owner);
  void add_entry(Entry entry) { entries_.entries.push_back(std::move(entry)); }
  /// Writes what add_entry() was told so far, so that it outlives this process.
  Status flush();
  /// The recording will have this identity, whatever becomes of its path and of this process: gc() goes by it.
  Status name_recording(const std::string& identity);
  /// The recording is made and has this identity. With entries that it has already they become one.
  Status publish(const std::string& identity);
  /// By which go_on() finds it.
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
    Readers readers = Readers::owner;  ///< that it was added for
  };
  std::map<std::string, Known> known_;  // by hash
  uint64_t new_bytes_ = 0, total_bytes_ = 0;
  bool published_ = false, is_heir_ = false;
};

/// The user's own stash: $PTDECODE_STASH ("off": none), $XDG_CACHE_HOME/ptdecode, ~/.cache/ptdecode; of root /var/cache/ptdecode unless one
/// of the first two is set. "" if there is none.
[[nodiscard]] std::string own_stash_path();
/// The machine's: /var/cache/ptdecode; "" if PTDECODE_STASH says which one to use.
[[nodiscard]] std::string system_stash_path();

/// Both, as far as they differ: where the command line looks for code, and programs that want to do as it does. Nothing else reads the
/// environment.
[[nodiscard]] std::vector<std::string> stash_paths();

inline constexpr const char* kSystemStash = "/var/cache/ptdecode";
inline constexpr const char* kObjects = "objects";
inline constexpr const char* kBuildIds = "build-ids";
inline constexpr const char* kRecordings = "recordings";
inline constexpr const char* kIncoming = "incoming";
inline constexpr const char* kParsed = "parsed";
inline constexpr const char* kEntriesFile = "entries";
inline constexpr const char* kIdentityFile = "identity";  ///< of a recording in the making, once it is known
inline constexpr uint64_t kMaxEntriesBytes = 256ULL << 20;

}  // namespace ptd::stash
