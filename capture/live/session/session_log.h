// SessionLog: the state of a detached session's target, in memory of fixed size that outlives the writing process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::live {

inline constexpr uint16_t kNoRing = 0xffff;
/// The trailer of records, the same for all of a recorder's events (LiveEvent): tid, time, cpu, identifier.
inline constexpr size_t kTrailerBytes = 32;
/// Returns the time in a record's trailer; 0 if it has none.
[[nodiscard]] uint64_t trailer_time(Bytes record);

/// The kind of a log entry.
enum class EntryKind : uint16_t {
  record,        ///< of the kernel, or in its form
  code,          ///< a TEXT_POKE record by which the recorder tells of code that it has read
  program,       ///< a BPF program, as feature section
  announcement,  ///< of a run-time: AnnouncementHead, then the record
};

/// Precedes the record of an announcement.
struct AnnouncementHead {
  int32_t pid = -1, tid = -1;
  uint64_t time = 0;  ///< as in the kernel's records
};

struct LogEntry {
  EntryKind kind = EntryKind::record;
  uint16_t ring = 0;      ///< index of the ring that it came from; kNoRing: none
  uint64_t position = 0;  ///< of the ring after it; 0 if it came from none
  Bytes bytes;            ///< valid until the log is written to
};

/// The last records of a session, preceded by the state that older records left: threads and their names, mappings, existing kernel code.
/// When the log is full, its older part is folded into that state (state_fold.h): ended processes are dropped, a mapping keeps its last
/// record. There are two areas: folding fills the other one and then switches with one store, so the log is consistent at any time, even if
/// a process is killed. One process writes; another may continue after its death.
///
///   area:  [ state: COMM MMAP2 ... KSYMBOL ... ][ records of the rings, oldest first ->        free ]
class SessionLog {
 public:
  /// In memory shared with children of fork(). Errors: file_open.
  static Result<std::unique_ptr<SessionLog>> create(size_t capacity_bytes, size_t rings);
  ~SessionLog();
  SessionLog(const SessionLog&) = delete;
  SessionLog& operator=(const SessionLog&) = delete;

  /// Sets a function that returns whether a process still exists. A process without recent records for which it returns false is dropped at
  /// the next fold: its EXIT was lost, or was read before its FORK.
  void ask_who_lives(std::function<bool(int32_t pid)> lives) { lives_ = std::move(lives); }
  /// Appends an entry; folds first if there is no space. An entry that does not fit even then (more than half a log) is counted as dropped.
  void append(const LogEntry& entry);
  /// Calls the function for every entry, oldest first.
  void each(const std::function<void(const LogEntry&)>& on_entry) const;
  /// Returns how far each ring has been read into the log.
  [[nodiscard]] std::vector<uint64_t> positions() const;

  [[nodiscard]] uint64_t used_bytes() const;
  [[nodiscard]] uint64_t folds() const;
  /// Returns the number of entries that did not fit.
  [[nodiscard]] uint64_t forgotten() const;

 private:
  SessionLog(std::byte* memory, size_t capacity, size_t rings) : memory_(memory), capacity_(capacity), rings_(rings) {}
  struct Dated {
    uint64_t time = 0;
    LogEntry entry;
  };
  [[nodiscard]] std::vector<Dated> by_time(size_t which) const;
  void fold();
  [[nodiscard]] uint64_t* words() const { return reinterpret_cast<uint64_t*>(memory_); }
  [[nodiscard]] size_t active() const;
  [[nodiscard]] std::byte* area(size_t which) const;
  [[nodiscard]] uint64_t* used(size_t which) const { return words() + 2 + which; }
  [[nodiscard]] uint64_t* state(size_t which) const { return words() + 4 + which; }
  [[nodiscard]] uint64_t* reached(size_t which) const { return words() + 6 + which * rings_; }
  bool put(size_t which, const LogEntry& entry);
  void each_of(size_t which, const std::function<void(const LogEntry&)>& on_entry) const;

  std::byte* memory_;  // epoch, forgotten, used of both areas, how much of it is state, positions of both, areas
  size_t capacity_, rings_;
  std::function<bool(int32_t)> lives_;
};

}  // namespace ptd::live
