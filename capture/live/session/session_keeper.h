// SessionKeeper: the process of a detached session. It reads the rings into the log and answers requests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/live/events/announce_tap.h"
#include "capture/live/events/commit_page.h"
#include "capture/live/events/event_set.h"
#include "capture/live/events/live_clock.h"
#include "capture/live/kernel/kernel_capture.h"
#include "capture/live/session/backup_process.h"
#include "capture/live/session/session.h"
#include "capture/live/session/session_dir.h"
#include "capture/live/session/session_log.h"
#include "capture/live/session/session_wire.h"
#include "capture/live/session/trigger_watch.h"
#include "perfio/perf_writer.h"

namespace ptd::live {

/// Everything in memory shared with the backup process, or in descriptors, survives a kill of this process: rings, log, counters, the
/// socket. The keeper sleeps in one poll(), without a timeout unless it listens to announcements. It wakes up for filled rings,
/// requests, the end of the backup process, SIGTERM, and the removal of the session's file. Not thread-safe.
class SessionKeeper {
 public:
  /// Opens events, records the initial state and creates the socket, in the client's process. Errors as for start_session().
  /// `offers`: where the program that the session starts offers its rings; null: nowhere.
  static Result<std::unique_ptr<SessionKeeper>> prepare(const SessionChoice& choice, SessionDir dir,
                                                        std::unique_ptr<announce::AnnounceSocket> offers);
  ~SessionKeeper();
  /// After fork(), in the process of the keeper: sets up rings, capture and backup process.
  Status settle();
  /// Runs until the session ends; then its file is removed and the backup process has ended.
  void serve();
  /// Removes the session's file, if it is still this session's, when no keeper could be started.
  void give_up() const { dir_.remove(choice_.name, inode_); }
  [[nodiscard]] const std::vector<std::string>& without() const { return events_->without(); }
  void enable_trace() const { events_->enable_trace(); }
  /// In the client's process: leaves the socket's folder to the keeper.
  void leave_offers() const;

 private:
  struct Client {
    int fd = -1;
    bool has_snapshot = false;  // it may still be reading it
  };
  enum Counter : size_t { kSnapshots, kRecords, kLost, kTakeovers, kStopNs, kStarted, kStopped, kHits, kTriggered, kFailures, kCounters };

  SessionKeeper(SessionChoice choice, SessionDir dir) : choice_(std::move(choice)), dir_(std::move(dir)) {}
  Status open_socket();
  Status open_trigger();
  Status map_rings();
  Status note_start();
  Status start_backup();
  void take_over();
  void make_capture(bool first);
  void make_tap(bool continues);
  [[nodiscard]] std::vector<int32_t> recorded_processes() const;
  void follow(Bytes record);
  void watch_folder();
  void watch_signals();
  void drain();
  void on_record(size_t ring, Bytes record);
  [[nodiscard]] Bytes news_of_lost(EventRings& rings, Bytes record);
  void tell_losses();
  void accept_clients();
  void answer(Client& client);
  void close_client(Client& client) const;
  [[nodiscard]] bool file_is_gone();
  [[nodiscard]] SessionStatus status() const;
  Status write_snapshot(int fd);
  void look_at_trigger();
  Status take_own_snapshot(const std::string& output);
  Status write_header(perfio::PerfWriter& writer);
  Status write_trace(perfio::PerfWriter& writer);
  Status write_log(perfio::PerfWriter& writer, perfio::Features& features) const;
  void refresh_kernel_maps();
  void count(Counter counter, uint64_t by);
  void set(Counter counter, uint64_t value);

  SessionChoice choice_;
  SessionDir dir_;
  std::optional<EventSet> events_;
  std::unique_ptr<SessionLog> log_;
  std::unique_ptr<CommitPage> counters_;
  std::unique_ptr<KernelCapture> capture_;
  std::unique_ptr<announce::AnnounceSocket> offers_;
  std::unique_ptr<AnnounceTap> tap_;
  std::unique_ptr<TriggerWatch> trigger_;
  uint64_t triggered_at_ns_ = 0;
  std::optional<BackupProcess> backup_;
  std::vector<Client> clients_;
  std::vector<perfio::MmapRecord> kernel_maps_;
  std::vector<std::byte> scratch_, lost_;
  LiveClock clock_;
  std::vector<size_t> resume_;  // rings whose trace the kernel has turned off
  std::string modules_;         // /proc/modules when kernel_maps_ was made
  int listen_fd_ = -1, folder_fd_ = -1, signal_fd_ = -1;
  uint64_t inode_ = 0;
  bool stop_ = false;
};

}  // namespace ptd::live
