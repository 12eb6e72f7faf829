// The plugin's state in one emulated process.
#include "capture/emulate/plugin/user_process.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "capture/emulate/plugin/emulator_hooks.h"
#include "capture/emulate/plugin/kept_file.h"
#include "capture/emulate/plugin/mapped_file_id.h"
#include "capture/emulate/plugin/qemu_api.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ptd::emulate {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Ticks between the change of code and the PSB+ on either side: more than a nanosecond at any clock.
constexpr uint64_t kSyncTicks = 32;

constexpr size_t kStepBytes = 4096;  // more than most steps write

// Signal handlers use it: its storage exists from the thread's start.
__attribute__((tls_model("initial-exec"))) thread_local UserThread* tl_thread = nullptr;

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

/// Holds a flag for a short time, without a system call of its own that could block.
class Spin {
 public:
  explicit Spin(std::atomic_flag& flag) : flag_(flag) {
    constexpr int kSpins = 128;  // then the holder probably waits for this processor
    for (int i = 0; flag_.test_and_set(std::memory_order_acquire); ++i) {
      if (i >= kSpins) (void)sched_yield();
    }
  }
  ~Spin() { flag_.clear(std::memory_order_release); }
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

 private:
  std::atomic_flag& flag_;
};

}  // namespace

WorkClock& work_clock() {
  static WorkClock clock;
  return clock;
}

uint64_t read_clock() {
  if (const WorkClock& clock = work_clock(); clock.is_open()) return clock.now();
#if defined(__x86_64__)
  return __rdtsc();
#else
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
#endif
}

// The kernel writes a newline in a path as an escape, and nothing else (linux "fs/proc/task_mmu.c", show_vma_header_prefix).
std::string path_of_map(std::string path) {
  constexpr std::string_view kNewline = "\\012";
  for (size_t at = path.find(kNewline); at != std::string::npos; at = path.find(kNewline, at + 1)) path.replace(at, kNewline.size(), "\n");
  return path;
}

// From the words that exec_emulated() passed: QEMU 10.0 declares qemu_plugin_path_to_binary(), but does not export it.
std::string program_path() {
  constexpr size_t kAfterPlugin = 3;  // QEMU, -plugin and its value come first
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  std::string word;
  while (words.size() < kAfterPlugin + 3 && std::getline(file, word, '\0')) words.push_back(word);
  const size_t at = words.size() > kAfterPlugin && words[kAfterPlugin] == "-0" ? kAfterPlugin + 2 : kAfterPlugin;
  return at < words.size() ? words[at] : "";
}

struct HostMap {
  uint64_t start = 0, end = 0, file_offset_bytes = 0, inode = 0;
  unsigned major = 0, minor = 0;
  bool is_readable = false, is_writable = false;
  std::string path;
};

std::vector<HostMap> host_maps() {
  std::vector<HostMap> maps;
  std::ifstream file("/proc/self/maps");
  std::string line;
  while (std::getline(file, line)) {
    HostMap map;
    char prot[8] = "";
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &map.start, &map.end, prot,
                    &map.file_offset_bytes, &map.major, &map.minor, &map.inode, &path_at) != 7) {
      continue;
    }
    map.is_readable = prot[0] == 'r';
    map.is_writable = prot[1] == 'w';
    map.path = path_of_map(line.substr(static_cast<size_t>(path_at)));
    maps.push_back(std::move(map));
  }
  return maps;
}

std::vector<std::string> file_maps() {
  std::vector<std::string> maps;
  for (const HostMap& map : host_maps()) {
    if (map.inode == 0) continue;
    std::ostringstream text;
    text << map.start << ' ' << map.end - map.start << ' ' << map.file_offset_bytes << ' ' << map.major << ' ' << map.minor << ' '
         << map.inode << ' ' << (1 | (map.is_writable ? 2 : 0) | 4) << ' ' << hex_of(map.path);
    maps.push_back(text.str());
  }
  return maps;
}

// The rest of an event of a line of file_maps(). The build id is "?" if its path names another file by now.
std::string content_words(const std::string& map, const std::string& copy) {
  const MappedFileLine file(map);
  FileContent content;
  const bool known = content_of(file.path, file.major, file.minor, file.inode, content);
  return (known ? hex_of(content.build_id) : "?") + ' ' + hex_of(copy) + ' ' + std::to_string(content.written_at_ns);
}

UserThread::UserThread(const UserConfig& config, CutFlag& cut, const std::string& name, pid_t id)
    : tid(id),
      encoder(config.pt, packets_),
      tracer(encoder, config.truth ? &truth_ : nullptr, false),
      config_(config),
      cut_(cut),
      truth_(truth_bytes_),
      overflow_at_(config.overflow_bytes) {
  packets_.reserve(kStepBytes);
  truth_bytes_.reserve(kStepBytes);
  has_files_ = packet_log_.open(name + ".pt") && (!config.truth || truth_log_.open(name + ".truth")) && event_log_.open(name + ".events");
  if (has_files_) state_ = new (packet_log_.owner_area()) ThreadState;
}

void UserThread::event(uint64_t tsc, const char* kind, const std::string& rest) {
  const std::string line = std::to_string(tsc) + ' ' + kind + (rest.empty() ? "" : " ") + rest + '\n';
  if (!event_log_.append(std::as_bytes(std::span(line))) && has_files_) cut_.set();
}

void UserThread::publish_bytes(uint32_t more_flags) {
  encoder.taken(packets_.size());
  const auto append = [](MappedLog& log, Bytes bytes) { return bytes.empty() || log.append(bytes); };
  if (state_ != nullptr && !cut_.is_set() && (!append(truth_log_, truth_bytes_) || !append(packet_log_, packets_))) cut_.set();
  packets_.clear();
  truth_bytes_.clear();
  if (state_ == nullptr) return;
  if (cut_.is_set()) {
    packet_log_.cut();
    state_ = nullptr;
    return;
  }
  state_->set_totals({packet_log_.size(), truth_log_.size(), encoder.time(), tracer.counts().irregular, tracer.counts().overflows});
  publish_step(more_flags);
  if (config_.overflow_bytes != 0 && encoder.written() >= overflow_at_) {
    overflow_at_ = encoder.written() + config_.overflow_bytes;
    tracer.overflow(config_.overflow_blocks);
  }
}

void UserThread::set_held(bool held) { publish_bytes(held ? uint32_t{TraceStep::kHeld} : 0U); }

void UserThread::end_at_registers(const uint64_t* program_counter, bool fault) {
  tracer.leave_async({*program_counter, fault || *program_counter == left_at}, read_clock());
  tracer.stop();
  publish_bytes(TraceStep::kEnded);
}

void UserThread::finish(uint64_t tsc) {
  tracer.stop();
  publish_bytes(TraceStep::kEnded);
  event(tsc, "exit", "");
}

void UserProcess::start(const std::string& folder, ExecMode mode) {
  folder_ = folder;
  mode_ = mode;
  std::ifstream file(folder + "/" + kConfigFile);
  std::ostringstream text;
  text << file.rdbuf();
  config_ = config_from_text(text.str());
  if (config_.work_clock) work_clock().open(folder);
  LogSpace::open(folder + "/" + kSpaceFile, config_.most_log_bytes);
  threads_ = std::make_unique<UserThread*[]>(kMaxVcpus);
  missing_.open(folder + "/" + kMissingFile);
  cut_.open(folder + "/" + kStoppedFile);
  pid_ = getpid();
  for (const HostMap& map : host_maps()) first_maps_.insert(std::to_string(map.start));
  open_block_log();
}

void UserProcess::open_block_log() {
  name_ = std::to_string(pid_) + "." + std::to_string(read_clock());
  cut_.clear();
  if (!block_log_.open(folder_ + "/" + name_ + ".blocks")) cut_.set();
}

bool UserProcess::can_record_exec() {
  const bool in_reach = access((folder_ + "/" + kConfigFile).c_str(), R_OK) == 0 && access(folder_.c_str(), W_OK | X_OK) == 0;
  if (!in_reach) missing_.add_with_detail(static_cast<uint64_t>(getpid()));
  return in_reach;
}

UserThread* UserProcess::add_thread(unsigned vcpu) {
  if (vcpu >= kMaxVcpus) return nullptr;
  unsigned serial = 0;
  {
    const Spin hold(lock_);
    serial = serial_++;
    ++threads_starting_;
  }
  const pid_t tid = this_thread();
  const std::string name = folder_ + "/" + name_ + "." + std::to_string(tid) + "." + std::to_string(serial);
  auto made = std::make_unique<UserThread>(config_, cut_, name, tid);  // opens files, while other threads run on
  UserThread* thread = made.get();
  if (!thread->has_files()) missing_.add_with_detail(static_cast<uint64_t>(getpid()));
  if (mode_ == ExecMode::a64) thread->tracer.note_times();  // ETMv4 packets are made of the ground truth
  const Spin hold(lock_);
  owned_.push_back(std::move(made));
  --threads_starting_;
  threads_[vcpu] = tl_thread = thread;
  log_start(*thread);
  return thread;
}

// The first thread tells what the process began with; the others only that they are there.
void UserProcess::log_start(UserThread& thread) {
  const uint64_t now = read_clock();
  thread.event(now, "thread", std::to_string(pid_) + ' ' + std::to_string(thread.tid));
  if (started_) return;
  started_ = true;
  if (!parent_name_.empty()) {
    thread.event(now, "forked",
                 std::to_string(parent_pid_) + ' ' + parent_name_ + ' ' + std::to_string(parent_blocks_) + ' ' +
                     std::to_string(forked_at_) + ' ' + std::to_string(forker_));
    return;
  }
  thread.event(now, "started", "");
  const std::string own = hex_of(folder_);
  for (const std::string& map : file_maps()) {
    if (first_maps_.count(map.substr(0, map.find(' '))) != 0 || map.find(' ' + own) != std::string::npos) continue;
    const MappedFileLine file(map);
    const Range range{file.start, file.start + file.size_bytes};
    add_range(files_, range);
    if ((file.prot & kProtWrite) != 0) add_range(written_, range);
    thread.event(now, "first_map", map + ' ' + content_words(map, keep_unnamed(folder_, file, {program_path()})));
  }
  // QEMU 8.2 and later give the program a vdso, mapped without a name and, as all its code, as data that the emulator reads.
  for (const HostMap& map : host_maps()) {
    if (map.inode != 0 || !map.path.empty() || !map.is_readable || map.is_writable || first_maps_.count(std::to_string(map.start)) != 0)
      continue;
    const std::string copy = keep_memory(folder_, map.start, map.end - map.start);
    if (!copy.empty())
      thread.event(
          now, "first_map",
          std::to_string(map.start) + ' ' + std::to_string(map.end - map.start) + " 0 0 0 0 5 " + hex_of("[vdso]") + " ? " + hex_of(copy));
  }
}

void UserProcess::note_fork() {
  forked_at_ = read_clock();
  forker_ = this_thread();
}

void UserProcess::become_child(unsigned vcpu) {
  parent_pid_ = pid_;
  parent_name_ = name_;
  parent_blocks_ = store_.size();
  pid_ = getpid();
  lock_.clear();
  holding_ = false;
  started_ = false;
  serial_ = threads_starting_ = 0;
  for (std::unique_ptr<UserThread>& thread : owned_) (void)thread.release();  // their buffers are the parent's to write
  owned_.clear();
  std::fill(threads_.get(), threads_.get() + kMaxVcpus, nullptr);
  block_bytes_.clear();
  open_block_log();
  add_thread(vcpu);
}

UserThread* UserProcess::current_thread() { return tl_thread; }

// The emulator restores the program counter before it leaves a block, and leaves one between two blocks with the next block's. A system
// call is left at the instruction itself, which retires.
void UserProcess::note_jump(size_t program_counter) {
  UserThread* thread = tl_thread;
  if (thread == nullptr || thread->registers == nullptr || thread->tracer.current() == nullptr) return;
  const Block& block = *thread->tracer.current();
  const uint64_t ip = thread->registers[program_counter];
  const bool leaves_program = block.kind == BlockEnd::far || block.kind == BlockEnd::software_interrupt;
  if (block.index_of(ip) < 0 || (leaves_program && ip == block.last_ip) || !is_in_generated_code()) return;
  thread->left_at = ip;
}

void UserProcess::remove_thread(unsigned vcpu) {
  if (vcpu >= kMaxVcpus || threads_[vcpu] == nullptr) return;
  UserThread* thread = threads_[vcpu];
  thread->finish(read_clock());
  std::unique_ptr<UserThread> removed;  // closes its files after the lock is released
  const Spin hold(lock_);
  threads_[vcpu] = nullptr;
  const auto found = std::find_if(owned_.begin(), owned_.end(), [&](const auto& owned) { return owned.get() == thread; });
  if (found != owned_.end()) {
    removed = std::move(*found);
    owned_.erase(found);
  }
  if (tl_thread == thread) tl_thread = nullptr;
}

// Stores the bytes as the current ones.
UserProcess::Remembered UserProcess::remember(uint64_t ip, Bytes code) {
  Remembered result;
  for (size_t i = 0; i < code.size();) {
    const uint64_t at = ip + i, in_page = at % kPageBytes;
    std::unique_ptr<Page>& page = pages_[at / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    const size_t count = std::min<size_t>(code.size() - i, kPageBytes - in_page);
    for (size_t k = 0; k < count; ++k) {
      const bool known = page->known[in_page + k], logged = page->logged[in_page + k];
      result.fresh = result.fresh || !logged;
      result.remapped = result.remapped || (known && !logged);
      result.changed = result.changed || (known && page->bytes[in_page + k] != code[i + k]);
      page->known[in_page + k] = page->logged[in_page + k] = true;
      page->bytes[in_page + k] = code[i + k];
    }
    i += count;
  }
  return result;
}

void UserProcess::add_to_pages(Block& block) {
  for (uint64_t page = block.ip / kPageBytes; page <= (block.end - 1) / kPageBytes; ++page) pages_[page]->blocks.push_back(&block);
}

// Bytes of `fresh` are other than what was known. The emulator forgets blocks over memory that is written, but not those whose memory is
// written through another address: such blocks go on, and are to tell when.
void UserProcess::find_stale(const Block& fresh) {
  for (uint64_t page = fresh.ip / kPageBytes; page <= (fresh.end - 1) / kPageBytes; ++page) {
    for (Block* other : pages_[page]->blocks) {
      const uint64_t first = std::max(other->ip, fresh.ip), end = std::min(other->end, fresh.end);
      if (first >= end || other == &fresh) continue;
      if (std::memcmp(other->bytes + (first - other->ip), fresh.bytes + (first - fresh.ip), end - first) == 0) continue;
      other->stale = other->watched = true;
    }
  }
}

// Passes time on a clock of work, before and after the change: the next change may be a few instructions away, and the PSB+s around each
// need room.
uint64_t UserProcess::change_moment() const {
  if (!work_clock().is_open() || !config_.date_changes) return read_clock();
  work_clock().pass(2 * kSyncTicks);
  const uint64_t now = read_clock();
  work_clock().pass(kSyncTicks);
  return now;
}

void UserProcess::log_block(const Block& block, bool is_new, uint64_t now) {
  TruthLog log(block_bytes_);
  log.put(is_new ? 0 : 1);
  log.put(block.number);
  log.put(now);
  if (is_new) {
    log.put(block.ip);
    log.put(block.insns);
    const auto* lengths = reinterpret_cast<const std::byte*>(block.lengths);
    block_bytes_.insert(block_bytes_.end(), lengths, lengths + block.insns);
    block_bytes_.insert(block_bytes_.end(), block.bytes, block.bytes + block.size_bytes);
  }
  if (!block_log_.append(block_bytes_)) cut_.set();
  block_bytes_.clear();
}

Block* UserProcess::translated(uint64_t ip, std::span<const SeenInsn> insns) {
  const Spin hold(lock_);
  const BlockStore::Added added = store_.add(ip, mode_, insns);
  if (added.block == nullptr) return nullptr;
  Block& block = *added.block;
  const Remembered seen = remember(ip, block.code());
  if (added.is_new) add_to_pages(block);
  block.stale = false;
  if (seen.changed) find_stale(block);
  if (added.is_new && handlers_.count(ip) != 0) block.watched = true;
  if (!added.is_new && !seen.fresh && !seen.changed) return &block;
  const bool may_be_patched = (mode_ == ExecMode::a64 && writable_code_) || meets(written_, {block.ip, block.end});
  const bool changed = seen.changed || seen.remapped || (seen.fresh && may_be_patched);
  const uint64_t now = changed ? change_moment() : read_clock();
  log_block(block, added.is_new, now);
  if (changed && tl_thread != nullptr && config_.date_changes) {
    // Code of a new mapping did not change between two instructions of this thread: all of the block ran after the change.
    if (tl_thread->sync_first == 0) tl_thread->sync_first = seen.remapped ? now + kSyncTicks : now - kSyncTicks;
    tl_thread->sync_last = now + kSyncTicks;
  }
  return &block;
}

bool UserProcess::meets(const std::vector<Range>& ranges, const Range& range) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& each) { return each.first < range.end && range.first < each.end; });
}

void UserProcess::add_range(std::vector<Range>& ranges, const Range& range) {
  if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
}

void UserProcess::note_file(uint64_t first, uint64_t size_bytes, bool writable) {
  const Spin hold(lock_);
  const Range range{first, first + std::min(size_bytes, ~first)};
  add_range(files_, range);
  if (writable) add_range(written_, range);
}

void UserProcess::note_writable(uint64_t first, uint64_t size_bytes) {
  const Spin hold(lock_);
  const Range range{first, first + std::min(size_bytes, ~first)};
  if (meets(files_, range)) add_range(written_, range);
}

void UserProcess::show_file(uint64_t first, uint64_t size_bytes) {
  const Spin hold(lock_);
  const uint64_t end = first + std::min(size_bytes, ~first);
  for (auto& [number, page] : pages_) {
    const uint64_t base = number * kPageBytes;
    if (page == nullptr || base >= end || base + kPageBytes <= first) continue;
    for (uint64_t i = 0; i < kPageBytes; ++i) page->logged[i] = page->logged[i] && (base + i < first || base + i >= end);
  }
}

void UserProcess::entered_stale(UserThread& thread, Block& block) {
  const Spin hold(lock_);
  if (!block.stale) return;
  const bool changed = remember(block.ip, block.code()).changed;
  block.stale = false;
  if (!changed) return;
  find_stale(block);
  const uint64_t now = change_moment();
  log_block(block, false, now);
  if (!config_.date_changes) return;
  if (thread.sync_first == 0) thread.sync_first = now - kSyncTicks;
  thread.sync_last = now + kSyncTicks;
}

void UserProcess::watch_handler(uint64_t handler, uint64_t restorer, bool has_siginfo) {
  const Spin hold(lock_);
  handlers_[handler] = has_siginfo;
  restorers_.insert(restorer);
  store_.for_each_at(handler, [](Block& block) { block.watched = true; });
}

bool UserProcess::is_handler(uint64_t address) const { return handlers_.count(address) != 0; }
bool UserProcess::has_siginfo(uint64_t address) const {
  const auto found = handlers_.find(address);
  return found != handlers_.end() && found->second;
}
bool UserProcess::is_restorer(uint64_t address) const { return restorers_.count(address) != 0; }

}  // namespace ptd::emulate
