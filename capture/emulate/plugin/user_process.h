// The plugin's state in one emulated process: its blocks, its threads, its logs.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/shared/thread_state.h"
#include "capture/emulate/shared/user_config.h"
#include "capture/emulate/shared/work_clock.h"
#include "capture/emulate/unit/block_tracer.h"

namespace ptd::emulate {

/// Returns the time of the recording: of work_clock() if that is open, else of the host's time stamp counter, or nanoseconds on a host
/// without one.
[[nodiscard]] uint64_t read_clock();
[[nodiscard]] WorkClock& work_clock();

/// Set when a file cannot grow: the process has lost something and is not recorded further. The first set() informs the recorder.
class CutFlag {
 public:
  /// `path`: of the SharedCount kStoppedFile.
  void open(const std::string& path) { stopped_.open(path); }
  void set() {
    if (!set_.exchange(true)) stopped_.add();
  }
  void clear() { set_ = false; }
  [[nodiscard]] bool is_set() const { return set_; }

 private:
  std::atomic<bool> set_{false};
  SharedCount stopped_;
};

/// One thread of the program: its packets, truth and events, each in a file of its own. What it publishes survives any death of the
/// process; the recorder completes the files (complete_thread()). Used by that thread only, except where it can no longer run.
class UserThread {
 public:
  /// `name`: path of its files without their ending. `cut`: of its process.
  UserThread(const UserConfig& config, CutFlag& cut, const std::string& name, pid_t tid);
  UserThread(const UserThread&) = delete;
  UserThread& operator=(const UserThread&) = delete;

  /// Appends "tsc kind rest" to the events.
  void event(uint64_t tsc, const char* kind, const std::string& rest);
  /// Ends a step: from here on it is part of the recording whatever happens to the process.
  void publish() {
    if (!packets_.empty() || !truth_bytes_.empty() || state_ == nullptr) return publish_bytes(0);
    publish_step(0);
  }
  /// The thread waits before the block that it entered, which does not run until the thread is released.
  void set_held(bool held);
  /// The process dies; this thread runs nothing more. Its next instruction is the one that the emulator has in its registers. `fault`: that
  /// instruction raised the signal.
  void end_at_registers(const uint64_t* program_counter, bool fault);
  /// The thread exits, outside of what is traced.
  void finish(uint64_t tsc);
  /// What it last published.
  [[nodiscard]] TraceStep published() const { return state_ != nullptr ? state_->step() : TraceStep(); }
  /// Whether its files could be made.
  [[nodiscard]] bool has_files() const { return has_files_; }

  const pid_t tid;
  PtEncoder encoder;
  BlockTracer tracer;
  uint64_t sync_first = 0, sync_last = 0;  ///< known code changed between these times; 0: it did not
  int64_t call = -1;                       ///< number and arguments of the system call that is under way
  std::array<uint64_t, 6> call_args{};
  uint64_t called_at = 0;
  const uint64_t* registers = nullptr;  ///< the emulator's CPU state; null where it is not known
  uint64_t left_at = 0;                 ///< instruction before which the emulator left the block entered last; 0: it did not

 private:
  void publish_step(uint32_t more_flags) {
    TraceStep& step = state_->next();
    step.branches = encoder.waiting_branches();
    step.branch_count = encoder.waiting_count();
    step.insns = tracer.counts().insns;
    uint32_t flags = more_flags | state_->totals_flag();
    if (encoder.enabled()) flags |= TraceStep::kEnabled;
    if (encoder.losing()) flags |= TraceStep::kLosing;
    if (const Block* block = tracer.current(); block != nullptr) {
      step.ip = block->ip;
      flags |= TraceStep::kEntered;
    }
    step.flags = flags;
    state_->publish();
  }
  void publish_bytes(uint32_t more_flags);
  const UserConfig& config_;
  CutFlag& cut_;
  std::vector<std::byte> packets_, truth_bytes_;
  TruthLog truth_;
  MappedLog packet_log_, truth_log_, event_log_;
  ThreadState* state_ = nullptr;  ///< in the packet log; null if nothing more can be recorded
  uint64_t overflow_at_ = 0;
  bool has_files_ = true;
};

inline constexpr uint64_t kProtWrite = 2, kProtExec = 4;  // linux "PROT_WRITE"

/// One process image, from exec or fork to exec or exit. Translation calls come under QEMU's lock, system call ones from any thread.
class UserProcess {
 public:
  static constexpr unsigned kMaxVcpus = 65536;

  /// `folder`: the working folder, absolute. `mode`: of the code.
  void start(const std::string& folder, ExecMode mode);
  /// This thread forks now: the child begins with what the process has at this moment.
  void note_fork();
  /// After fork, in the child, whose only thread has vcpu index `vcpu`.
  void become_child(unsigned vcpu);
  [[nodiscard]] const UserConfig& config() const { return config_; }
  [[nodiscard]] UserThread* thread(unsigned vcpu) {
    UserThread* known = vcpu < kMaxVcpus ? threads_[vcpu] : nullptr;
    return known != nullptr ? known : add_thread(vcpu);
  }
  void remove_thread(unsigned vcpu);
  /// The thread that calls; null if it is none of the program's.
  [[nodiscard]] static UserThread* current_thread();

  /// `self` is about to end this program: by exit, exec or a signal. The others stop where they are, each before a block or in a system
  /// call, and stay there until release(). Waits for them, within a bound; who does not stop in time has an open end. True if any stopped.
  bool hold_others(const UserThread* self);
  void release() { holding_ = false; }
  [[nodiscard]] bool is_holding() const { return holding_.load(std::memory_order_relaxed); }
  /// The emulator jumps out of what this thread does: see UserThread::left_at. `program_counter`: as for die_by_signal().
  static void note_jump(size_t program_counter);
  /// In a thread that is to stop.
  void wait_for_release(UserThread& thread);
  /// This thread's signal `number` ends the process, with no handler and no further instruction. `program_counter`: words into the
  /// emulator's CPU state.
  void die_by_signal(int number, bool fault, size_t program_counter);

  /// A block was translated now: known or new, and whether its bytes replace others that were seen at their place.
  Block* translated(uint64_t ip, std::span<const SeenInsn> insns);
  /// A record shows a file at these addresses from now on, so code that is translated there is logged again, even if it is known.
  void show_file(uint64_t first, uint64_t size_bytes);
  /// `thread` enters a stale block: its bytes are the current ones from now on.
  void entered_stale(UserThread& thread, Block& block);
  /// The program takes signals at `handler`, and returns from it through `restorer`. `has_siginfo`: it set SA_SIGINFO.
  void watch_handler(uint64_t handler, uint64_t restorer, bool has_siginfo);
  /// The program may write where it executes: there, code that was not seen yet may be other than its file's.
  void note_writable_code() { writable_code_ = true; }
  /// A file's code is mapped there; `writable`: as by note_writable().
  void note_file(uint64_t first, uint64_t size_bytes, bool writable);
  /// The program may write there from now on. Where that is a file's code, blocks that were not seen yet may be other than the file's, so
  /// each is dated as a change.
  void note_writable(uint64_t first, uint64_t size_bytes);
  [[nodiscard]] bool is_handler(uint64_t address) const;
  /// Returns whether the kernel fills in the siginfo of the frames of the handler at `address`.
  [[nodiscard]] bool has_siginfo(uint64_t address) const;
  [[nodiscard]] bool is_restorer(uint64_t address) const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// A program that starts now can be recorded: the working folder is in reach. If not, it is counted as missing.
  [[nodiscard]] bool can_record_exec();

 private:
  struct Page {
    std::array<std::byte, 4096> bytes{};
    std::array<bool, 4096> known{};
    std::array<bool, 4096> logged{};  ///< since a file was last shown there
    std::vector<Block*> blocks;       ///< that have bytes in it
  };
  UserThread* add_thread(unsigned vcpu);
  template <class Stopped>
  bool wait_for_others(const UserThread* self, Stopped&& stopped);
  void open_block_log();
  struct Remembered {
    bool fresh = false;     ///< some byte must be logged
    bool remapped = false;  ///< some known byte must, because a record has shown a file there
    bool changed = false;   ///< some byte is other than what was known
  };
  Remembered remember(uint64_t ip, Bytes code);
  struct Range {
    uint64_t first = 0, end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  static bool meets(const std::vector<Range>& ranges, const Range& range);
  static void add_range(std::vector<Range>& ranges, const Range& range);
  void find_stale(const Block& fresh);
  void add_to_pages(Block& block);
  [[nodiscard]] uint64_t change_moment() const;
  void log_block(const Block& block, bool is_new, uint64_t now);
  void log_start(UserThread& thread);

  std::string folder_, name_, parent_name_;
  UserConfig config_;
  ExecMode mode_ = ExecMode::bits64;
  pid_t pid_ = 0, parent_pid_ = 0;
  pid_t forker_ = 0;  ///< the thread of the parent that forked
  uint64_t parent_blocks_ = 0, forked_at_ = 0;
  bool started_ = false;
  std::atomic<bool> writable_code_{false};
  std::vector<Range> files_;    ///< addresses of files' code
  std::vector<Range> written_;  ///< of them, those that the program may have written to
  CutFlag cut_;
  std::atomic<bool> holding_{false};
  SharedCount missing_;
  unsigned serial_ = 0, threads_starting_ = 0;
  std::unique_ptr<UserThread*[]> threads_;
  std::vector<std::unique_ptr<UserThread>> owned_;
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  BlockStore store_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  MappedLog block_log_;
  std::vector<std::byte> block_bytes_;
  std::unordered_map<uint64_t, bool> handlers_;  ///< address -> has_siginfo
  std::unordered_set<uint64_t> restorers_;
  std::unordered_set<std::string> first_maps_;
};

/// The program itself: what /proc/self/exe would be without the emulator.
[[nodiscard]] std::string program_path();
/// The file mappings of this process, one text a line "start end offset dev_major dev_minor inode prot path-in-hex".
[[nodiscard]] std::vector<std::string> file_maps();

}  // namespace ptd::emulate
