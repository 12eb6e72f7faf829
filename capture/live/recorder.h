// Recorder: a recording from start to end: events, rings, the file, and a second process that completes the file if this one is killed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/live/events/announce_tap.h"
#include "capture/live/events/commit_page.h"
#include "capture/live/events/event_set.h"
#include "capture/live/events/live_clock.h"
#include "capture/live/events/workload.h"
#include "capture/live/kernel/kernel_capture.h"
#include "capture/live/kernel/program_store.h"
#include "capture/live/session/backup_process.h"
#include "capture/live/session/trace_revival.h"
#include "perfio/perf_writer.h"

namespace ptd::live {

/// The result of a round of reading the rings.
struct RecordRound {
  std::function<uint64_t()> now_ns;  ///< now on the recording's clock, for any thread; late by `slack_ns` at most; 0: unknown
  uint64_t slack_ns = 0;
  uint64_t begun_ns = 0;    ///< CLOCK_MONOTONIC: what was recorded before is in this round or in one before it
  uint64_t file_bytes = 0;  ///< of the recording, that stay whatever happens
};

/// Callbacks that save the recorded code. They are called on the thread that drains the rings and must be fast; slow work belongs on
/// another thread. Each may be empty.
struct CodeSaverHooks {
  /// Called for each recorded mapping, with the record's time (0: mapped before the recording).
  std::function<void(const perfio::MmapRecord& map, uint64_t time_ns)> on_mapping;
  std::function<void(const RecordRound& round)> on_round;
  /// Called before the end of a round in which mappings may have been lost.
  std::function<void()> on_lost;
  /// Called at the end: returns whether everything queued up to the first call is processed. Recording continues until then.
  std::function<bool()> is_settled;
  /// Called around fork(): returns false if a fork would interrupt work; then it is called again later.
  std::function<bool()> pause;
  std::function<void()> go_on;
  /// Called in a process that takes over from a killed recorder: before it continues, and when the file is complete.
  std::function<void()> take_over, on_taken_over;
};

struct RecordChoice {
  std::string output = "perf.data";  ///< "-": the pipe form on standard output
  bool directory = false;            ///< perf's directory form
  bool kcore = false;                ///< also the kernel's text, at the start and at the end (directory form)
  int compression_level = 0;
  TargetChoice target;
  std::optional<TraceChoice> trace;
  RingWishes wishes;
  /// Returns AUXTRACE_INFO of the trace, with the clock of its rings; null without a trace.
  std::function<Result<perfio::AuxtraceInfoRecord>(const perfio::TimeConvRecord* clock)> make_info;
  bool announcements = true;         ///< also what run-times announce of their code
  std::vector<std::string> command;  ///< to be started
  std::vector<std::string> cmdline;  ///< of the recorder, for the file's header
  int stop_fd = -1;                  ///< readable: stop
  CodeSaverHooks saver;
};

struct RecordReport {
  uint64_t records = 0, lost_records = 0, aux_bytes = 0, aux_truncated = 0, file_bytes = 0;
  CaptureCounts kernel;
  std::vector<std::string> notes;  ///< what this kernel or user cannot have
  int exit_status = -1;            ///< of the command, if it has ended
};

/// Each round reads the rings, writes the file, stores the progress of both, and only then releases the ring space. So every record is in a
/// ring or in the file at any time, and a backup process of both completes the file if this process is killed. Not thread-safe.
class Recorder {
 public:
  /// Opens events and file; the program waits. An existing output is renamed to OUTPUT.old. Errors: of the kernel and the file system.
  static Result<std::unique_ptr<Recorder>> start(RecordChoice choice);
  ~Recorder();
  /// Records until the program, or all of the target, has ended, or stop_fd is readable. Recorded processes continue to run.
  Status run();
  /// Stops the events, drains the rings and completes the file. Removes the file if the program could not be run.
  Status finish();
  [[nodiscard]] const RecordReport& report() const { return report_; }

 private:
  explicit Recorder(RecordChoice choice) : choice_(std::move(choice)) {}
  Status open_events();
  Status open_file();
  void give_up_file();
  Status write_start();
  Status start_backup();
  Status restart_backup();
  void take_over();
  void make_capture(bool first);
  void make_tap(bool continues);
  [[nodiscard]] std::vector<int32_t> recorded_processes() const;
  void follow(Bytes record);
  [[nodiscard]] const perfio::EventAttr& attr_of(RingRole role) const;
  void on_record(EventRings& rings, Bytes record);
  void note_time(const EventRings& rings, Bytes record);
  [[nodiscard]] perfio::RecordContext lost_context(const EventRings& rings) const;
  Status tell_losses();
  void tell_lost(const EventRings& rings) const;
  void tell_mapping(const EventRings& rings, Bytes record);
  Status take_aux(EventRings& rings, size_t index, bool all);
  Status drain(bool all);
  [[nodiscard]] Progress progress() const;
  void copy_kernel_after();
  Status wait_for_keeping();
  Status stop_and_write();

  RecordChoice choice_;
  std::optional<Workload> workload_;
  std::optional<EventSet> events_;
  std::unique_ptr<perfio::PerfWriter> writer_;
  bool output_begun_ = false, output_moved_ = false;
  std::unique_ptr<KernelCapture> capture_;
  std::unique_ptr<announce::AnnounceSocket> offers_;
  std::unique_ptr<AnnounceTap> tap_;
  std::optional<ProgramStore> programs_;
  std::unique_ptr<CommitPage> commit_;
  std::optional<BackupProcess> backup_;
  RecordReport report_;
  std::vector<std::byte> scratch_;
  TraceRevival revival_;
  Status first_error_;
  uint64_t kernel_records_ = 0;  ///< of the rings with that role
  LiveClock clock_;
  bool wants_backup_ = false;  ///< it was killed, and there is no other one yet
  bool refused_ = false;       ///< the program could not be run
};

}  // namespace ptd::live
