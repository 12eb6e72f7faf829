// Debuginfod: files by build id through libdebuginfod (declarations from elfutils' debuginfod.h).
#include "image/source/debuginfod.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "image/base/environment.h"
#include "image/base/inherited_signals.h"
#include "image/source/library_function.h"

namespace ptd {
namespace {

constexpr size_t kMaxBuildIdLetters = 128;

constexpr int kQuietS = 10, kWholeS = 300;
constexpr uint64_t kLeastBytes = 64;  // minimum progress in kQuietS seconds
// How often the limits are checked, and how long a download may take to end after one is passed: libdebuginfod looks once per second.
constexpr std::chrono::milliseconds kLookPause{100}, kEndPause{1500};

std::atomic<bool (*)()> g_stop = nullptr;

/// The file that libdebuginfod writes for a build id. Its name, and that of the cache, are its own.
struct WrittenFile {
  std::filesystem::path folder;  ///< of this build id in the cache; empty: none is written
  std::filesystem::path part;    ///< the file that the reply is written to: "executable.XXXXXX", until it is complete
  uint64_t size_bytes = 0;
};
WrittenFile find_written(const std::string& build_id) {
  std::error_code error;
  WrittenFile written;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::filesystem::path target = std::filesystem::read_symlink(entry.path(), error);
    if (error || target.parent_path().filename() != build_id) continue;
    struct stat file {};
    if (stat(entry.path().c_str(), &file) != 0 || !S_ISREG(file.st_mode)) continue;
    written.folder = target.parent_path();
    if (target.has_extension()) written.part = target;
    written.size_bytes = std::max(written.size_bytes, static_cast<uint64_t>(file.st_size));
  }
  return written;
}

/// One download and its limits. libdebuginfod 0.188 calls its progress function once per second, 0.192 only after the reply has begun, so
/// the download has a thread of its own, and the thread that waits for it checks the limits.
class Download {
 public:
  using Clock = std::chrono::steady_clock;
  Download(std::string build_id, bool debug, uint64_t most_bytes)
      : build_id_(std::move(build_id)), debug_(debug), most_bytes_(most_bytes) {}

  /// Called by libdebuginfod: true to end. `done` and `total` are in bytes. A `total` of 0 or less is unknown; then `done` may count calls
  /// until the reply begins.
  bool on_progress(long done, long total) {
    const std::lock_guard lock(mutex_);
    const auto bytes = static_cast<uint64_t>(std::max(done, 0L)), all = static_cast<uint64_t>(std::max(total, 0L));
    if (bytes >= seen_bytes_ + kLeastBytes) {  // counting calls, one per second, does not reach this
      last_progress_ = Clock::now();
      seen_bytes_ = bytes;
    }
    if (std::max(bytes, all) > most_bytes_) end(too_large("a reply of"));
    return !why_.empty();
  }
  /// Waits until finish(). Returns false if a limit is passed and the download does not end.
  bool wait() {
    std::unique_lock lock(mutex_);
    while (!finished_) {
      check();
      if (!why_.empty() && Clock::now() - ended_ > kEndPause) {
        remove_part();
        return false;
      }
      (void)changed_.wait_for(lock, kLookPause);
    }
    return true;
  }
  [[nodiscard]] const std::string& build_id() const { return build_id_; }
  [[nodiscard]] bool is_debug() const { return debug_; }
  /// `fd`: the result of libdebuginfod, which wrote the file to `path`.
  void finish(int fd, const char* path) {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    if (fd >= 0) {
      if (path != nullptr) path_ = path;
      why_.clear();
    } else if (why_.empty()) {
      if (fd != -ENOENT) why_ = std::strerror(-fd);
    } else {
      forget_miss();
    }
    changed_.notify_all();
  }
  struct Result {
    std::string path;  ///< "": none
    std::string why;   ///< the download failed, or a limit was passed
  };
  [[nodiscard]] Result result() const {
    const std::lock_guard lock(mutex_);
    return {path_, why_};
  }

 private:
  void check() {
    const auto now = Clock::now();
    const auto stop = g_stop.load();
    if (stop != nullptr && stop()) end("interrupted");
    const WrittenFile written = find_written(build_id_);
    if (!written.folder.empty()) folder_ = written.folder;
    if (written.size_bytes > most_bytes_) end(too_large("a reply that unpacks to"));  // progress may count its packed bytes
    if (now - last_progress_ > std::chrono::seconds(kQuietS))
      end("fewer than " + std::to_string(kLeastBytes) + " bytes in " + std::to_string(kQuietS) + " s");
    if (now - start_ > std::chrono::seconds(kWholeS)) end("the file is not complete after " + std::to_string(kWholeS) + " s");
  }
  void end(std::string why) {
    if (!why_.empty()) return;
    why_ = std::move(why);
    ended_ = Clock::now();
    if (folder_.empty()) folder_ = find_written(build_id_).folder;
  }
  // A download that does not end in time goes on, perhaps until this process ends: its file would stay.
  void remove_part() const {
    const std::filesystem::path part = find_written(build_id_).part;
    if (!part.empty()) (void)::unlink(part.c_str());
  }
  // After a download that its progress function ended, libdebuginfod may leave an empty file, by which it does not query a server for this
  // build id in the next 10 minutes.
  void forget_miss() const {
    if (folder_.empty()) return;
    const std::filesystem::path file = folder_ / (debug_ ? "debuginfo" : "executable");
    struct stat info {};
    if (lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) (void)::unlink(file.c_str());
  }
  [[nodiscard]] std::string too_large(const std::string& what) const {
    return what + " more than " + std::to_string(most_bytes_ >> 20) + " MiB";
  }

  const std::string build_id_;
  const bool debug_;
  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t seen_bytes_ = 0;
  Clock::time_point start_ = Clock::now(), last_progress_ = start_, ended_;
  std::filesystem::path folder_;
  bool finished_ = false;
  std::string path_, why_;
};

/// The download of this thread. Thread-local, because libdebuginfod passes no pointer to its progress function.
thread_local Download* t_download = nullptr;

int on_progress(void* /*client*/, long done, long total) { return t_download != nullptr && t_download->on_progress(done, total) ? 1 : 0; }

bool is_hex(const std::string& text) {
  return !text.empty() && text.size() <= kMaxBuildIdLetters &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

struct Debuginfod::Library {
  using Begin = void* (*)();
  using End = void (*)(void*);
  using Progress = int (*)(void* client, long done, long total);
  using SetProgress = void (*)(void* client, Progress);
  using Find = int (*)(void* client, const unsigned char* build_id, int build_id_bytes, char** path);  // length 0: hex text
  void* handle = nullptr;
  void* client = nullptr;
  End end = nullptr;
  Find find_executable = nullptr, find_debuginfo = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (client != nullptr) end(client);  // the library stays loaded: others in the process may use it
  }
  template <typename Function>
  bool take(Function& function, const char* name) const {
    return take_function(handle, name, function);
  }
  bool open() {
    handle = ::dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    Begin begin = nullptr;
    SetProgress set_progress = nullptr;
    if (handle == nullptr || !take(begin, "debuginfod_begin") || !take(end, "debuginfod_end") ||
        !take(find_executable, "debuginfod_find_executable") || !take(find_debuginfo, "debuginfod_find_debuginfo") ||
        !take(set_progress, "debuginfod_set_progressfn"))
      return false;
    client = begin();
    if (client != nullptr) set_progress(client, on_progress);
    return client != nullptr;
  }
  void find(Download& download) const {
    t_download = &download;
    char* path = nullptr;
    const auto* id = reinterpret_cast<const unsigned char*>(download.build_id().c_str());
    const int fd = (download.is_debug() ? find_debuginfo : find_executable)(client, id, 0, &path);
    download.finish(fd, path);
    if (fd >= 0) ::close(fd);
    std::free(path);
  }
};

std::shared_ptr<Debuginfod> Debuginfod::open() {
  if (environment::debuginfod_urls().empty()) return nullptr;
  auto library = std::make_shared<Library>();
  return library->open() ? std::shared_ptr<Debuginfod>(new Debuginfod(std::move(library))) : nullptr;
}

Debuginfod::Debuginfod(std::shared_ptr<Library> library) : library_(std::move(library)) {}
Debuginfod::~Debuginfod() = default;

void Debuginfod::set_stop(bool (*stop)()) { g_stop = stop; }

std::string Debuginfod::find(const std::string& build_id, bool debug, uint64_t known_bytes) {
  if (!is_hex(build_id)) return {};
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace({build_id, debug});
  if (!is_new || !trouble_.empty()) return known->second;
  std::thread thread;
  const auto download = std::make_shared<Download>(build_id, debug, most_bytes(known_bytes));
  try {
    const NoSignals none;
    thread = std::thread([library = library_, download] { library->find(*download); });
  } catch (const std::system_error& error) {
    trouble_ = std::string("cannot start a thread: ") + error.what();
    return {};
  }
  if (download->wait()) {
    thread.join();
  } else {
    thread.detach();  // it keeps the library's client, which nothing else uses from now on
  }
  Download::Result result = download->result();
  known->second = std::move(result.path);
  trouble_ = std::move(result.why);
  return known->second;
}

std::string Debuginfod::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace ptd
