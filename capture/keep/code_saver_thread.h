// CodeSaverThread: saves code on its own thread, so that file I/O never delays draining the kernel's rings.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "capture/keep/code_saver.h"

namespace ptd {

/// Receives mappings from the recording thread in rounds and saves their code on its own thread. Mappings that do not fit into the queue
/// are reported as not saved, and memory whose mapping may have ended unnoticed is no longer read.
///
///     who records     |--round--|       |--round--|                 each round: what is mapped, then when the round began
///     queue               m m m R           m R
///     this thread               |m---m---m--R look|--m-R look|      R: copies made before the round began hold
///
/// The thread starts with the first round. A process that is forked before that, or between pause() and go_on(), may take_over().
class CodeSaverThread {
 public:
  /// `queue_bytes`: size of the queue, including paths. Errors: of the stash.
  static Result<std::unique_ptr<CodeSaverThread>> begin(const std::string& recording, const SaveOptions& options,
                                                        uint64_t queue_bytes = kQueueBytes);
  ~CodeSaverThread();
  CodeSaverThread(const CodeSaverThread&) = delete;
  CodeSaverThread& operator=(const CodeSaverThread&) = delete;

  /// Ends a round of reading.
  struct Round {
    std::function<uint64_t()> now_ns;  ///< see CodeSaver::look(); called on the other thread
    uint64_t slack_ns = 0;
    uint64_t begun_ns = 0;    ///< CLOCK_MONOTONIC, before the first ring was looked at
    uint64_t file_bytes = 0;  ///< of the recording, that stay; see CodeSaver::on_written()
  };
  // By who records. None of these waits for a file, nor for the one that is read.
  void on_mapping(const perfio::MmapRecord& map, uint64_t time_ns);
  void on_round(const Round& round);
  /// Declares that mappings may have been lost: memory of this round and the next is not saved.
  void on_lost();
  /// Returns whether everything queued up to the first call since it last returned true is processed. Ends a pause.
  [[nodiscard]] bool is_settled();
  /// Pauses the thread until go_on(). Returns false if it is still busy, so that a fork() would interrupt its work.
  [[nodiscard]] bool pause();
  void go_on();
  /// In a forked process whose recording parent is dead: continues without a thread from the data that the parent had flushed.
  void take_over();

  /// Ends the recording and waits until everything is processed.
  Result<SaveReport> finish();
  [[nodiscard]] const std::string& stash_path() const { return saver_->stash_path(); }

  static constexpr uint64_t kQueueBytes = 32U << 20;

 private:
  enum class What : uint8_t { cover, mapping, round };
  struct Told {
    What what = What::cover;
    CodeSaver::Cover cover;
    std::unique_ptr<const perfio::MmapRecord> map;      // of a mapping
    uint64_t begun_ns = 0, file_bytes = 0, number = 0;  // of a round
    bool left_out = false;                              // of a round: not all mappings of it, or of the one before, were reported
  };
  CodeSaverThread(std::unique_ptr<CodeSaver> saver, uint64_t queue_bytes) : saver_(std::move(saver)), queue_bytes_(queue_bytes) {}
  static uint64_t size_of(const Told& told);
  void leave_out(const std::string& path);
  void start();
  void stop();
  void work();
  void work_through();
  [[nodiscard]] bool is_alone() const { return failed_ || !no_thread_.empty(); }
  bool take(Round& latest);
  void handle(const Told& told);

  std::unique_ptr<CodeSaver> saver_;  // the thread's as long as it runs
  std::unique_ptr<CodeSaver> heir_;   // in a process that took over
  const uint64_t queue_bytes_;
  // Of who records.
  std::vector<Told> round_;
  std::set<std::string> left_out_;
  uint64_t left_out_unnamed_ = 0, rounds_ = 0, asked_ = 0;
  uint64_t last_round_ns_ = 0, latest_begun_ns_ = 0;                              // of a round that was passed on, of any
  bool left_out_now_ = false, left_out_before_ = false, has_taken_over_ = false;  // in this round, in the one before
  std::string no_thread_;                                                         // why there is none
  std::thread thread_;
  std::deque<Told> work_;  // the thread's as long as it runs
  // Of both.
  std::atomic<uint64_t> waiting_bytes_ = 0, settled_ = 0;
  std::atomic<bool> failed_ = false;  // the thread had no memory to go on with
  std::mutex mutex_;                  // of what follows; held for a moment only
  std::condition_variable told_;
  std::deque<Told> queue_;
  Round latest_;
  bool rests_ = false, is_to_rest_ = false, stop_ = false;
};

}  // namespace ptd
