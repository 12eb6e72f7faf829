// ReplaySession: a recording at a moment, for debuggers: position, threads, memory.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/process_image.h"
#include "replay/replay_memory.h"
#include "replay/replay_run.h"
#include "replay/thread_list.h"

namespace ptd::replay {

/// Not thread-safe. The recording must outlive it.
class ReplaySession {
 public:
  ReplaySession(const Recording& recording, const ReplayFilter& filter);
  ReplaySession(const ReplaySession&) = delete;
  ReplaySession& operator=(const ReplaySession&) = delete;

  [[nodiscard]] const Recording& recording() const { return *recording_; }
  [[nodiscard]] ReplayCursor& cursor() { return cursor_; }
  [[nodiscard]] ReplayRun& run() { return run_; }
  [[nodiscard]] ReplayMemory& memory() { return memory_; }
  [[nodiscard]] const ThreadList& threads() const { return threads_; }
  [[nodiscard]] PageStore& store() { return store_; }

  /// The thread that stopped last; kNoThread if the recording has no flow.
  [[nodiscard]] ThreadKey current() const { return current_; }
  void set_current(ThreadKey thread);
  /// Must be called after the cursor has moved.
  void moved() { places_.clear(); }
  /// Moves to a time, and chooses the thread that executes there. Returns false if the recording has no flow.
  bool seek(TimeNs time);

  /// Returns the next instruction of a thread. If it executes none any more, its last one. Nothing if that is too far away to be found.
  std::optional<ReplayPlace> place_of(ThreadKey thread);
  /// Returns the time at which the code of a place was live: its time, unless that is before the code's record.
  TimeNs code_time(const ReplayPlace& place);
  /// Reads memory as ReplayMemory::read(), for a thread at its next instruction, at the time of its code. The bytes of the block that
  /// contains this are those that the processor executed.
  size_t read(ThreadKey thread, Ip ip, std::span<std::byte> out);
  /// Returns the files of a thread's process.
  ProcessImage image_of(ThreadKey thread);
  /// Returns the files of the process that executes an instruction.
  ProcessImage image_at(const ReplayPlace& place);
  /// Returns the times of the recording, within the filter. Empty if they are not known.
  [[nodiscard]] Interval span() const;

 private:
  void pass_gaps();
  std::optional<ReplayPlace> find_place(ThreadKey thread);

  const Recording* recording_;
  PageStore store_;
  ReplayCursor cursor_;
  ReplayRun run_;
  ReplayMemory memory_;
  ThreadList threads_;
  ThreadKey current_ = kNoThread;
  std::map<ThreadKey, std::optional<ReplayPlace>> places_;
  std::optional<ReplayPlace> dated_;  // of the last call of code_time(), which returned:
  TimeNs code_time_;
};

}  // namespace ptd::replay
