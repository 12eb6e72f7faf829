// Debuginfod: files by build id through libdebuginfod (declarations from elfutils' debuginfod.h).
#include "image/source/debuginfod.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "image/base/environment.h"
#include "image/source/library_function.h"

namespace ptd {
namespace {

constexpr size_t kMaxBuildIdLetters = 128;

constexpr int kQuietS = 10, kWholeS = 300;
constexpr uint64_t kLeastBytes = 64;  // minimum progress in kQuietS seconds
constexpr std::chrono::milliseconds kLookPause{20};

std::atomic<bool (*)()> g_stop = nullptr;

/// Returns the size of the file that libdebuginfod writes for this build id, 0 if there is none. Its name, and that of the cache, are its own.
uint64_t size_being_written(const std::string& build_id) {
  std::error_code error;
  uint64_t size = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || target.find("/" + build_id + "/") == std::string::npos) continue;
    struct stat file {};
    if (stat(entry.path().c_str(), &file) == 0 && S_ISREG(file.st_mode)) size = std::max(size, static_cast<uint64_t>(file.st_size));
  }
  return size;
}

/// The current download of this thread. Thread-local, because libdebuginfod passes no pointer to its progress function.
struct Download {
  using Clock = std::chrono::steady_clock;
  std::string build_id;
  uint64_t most_bytes = 0, seen_bytes = 0;
  Clock::time_point start = Clock::now(), last_progress = start, last_look = start;
  std::string why;  ///< why it was ended

  /// `done` and `total` are in bytes. A `total` of 0 or less is unknown; then `done` may count calls until the reply begins.
  int end_if_too_much(long done, long total) {
    const auto now = Clock::now();
    const auto bytes = static_cast<uint64_t>(std::max(done, 0L)), all = static_cast<uint64_t>(std::max(total, 0L));
    if (bytes >= seen_bytes + kLeastBytes) {  // counting calls, one per second, does not reach this
      last_progress = now;
      seen_bytes = bytes;
    }
    const auto stop = g_stop.load();
    if (stop != nullptr && stop()) why = "interrupted";
    if (std::max(bytes, all) > most_bytes) why = too_large("a reply of");
    if (now - last_look > kLookPause) {
      last_look = now;
      if (size_being_written(build_id) > most_bytes) why = too_large("a reply that unpacks to");  // `done` and `total` count its packed bytes
    }
    if (now - last_progress > std::chrono::seconds(kQuietS))
      why = "fewer than " + std::to_string(kLeastBytes) + " bytes in " + std::to_string(kQuietS) + " s";
    if (now - start > std::chrono::seconds(kWholeS)) why = "the file is not complete after " + std::to_string(kWholeS) + " s";
    return why.empty() ? 0 : 1;
  }
  [[nodiscard]] std::string too_large(const std::string& what) const { return what + " more than " + std::to_string(most_bytes >> 20) + " MiB"; }
};

thread_local Download* t_download = nullptr;

int on_progress(void* /*client*/, long done, long total) { return t_download == nullptr ? 0 : t_download->end_if_too_much(done, total); }

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
  Find executable = nullptr, debug = nullptr;

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
        !take(executable, "debuginfod_find_executable") || !take(debug, "debuginfod_find_debuginfo") ||
        !take(set_progress, "debuginfod_set_progressfn"))
      return false;
    client = begin();
    if (client != nullptr) set_progress(client, on_progress);
    return client != nullptr;
  }
};

std::shared_ptr<Debuginfod> Debuginfod::open() {
  if (environment::debuginfod_urls().empty()) return nullptr;
  auto library = std::make_unique<Library>();
  return library->open() ? std::shared_ptr<Debuginfod>(new Debuginfod(std::move(library))) : nullptr;
}

Debuginfod::Debuginfod(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Debuginfod::~Debuginfod() = default;

void Debuginfod::set_stop(bool (*stop)()) { g_stop = stop; }

std::string Debuginfod::find(const std::string& build_id, bool debug, uint64_t known_bytes) {
  if (!is_hex(build_id)) return {};
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace({build_id, debug});
  if (!is_new || !trouble_.empty()) return known->second;
  char* path = nullptr;
  const auto* id = reinterpret_cast<const unsigned char*>(build_id.c_str());
  Download download;
  download.build_id = build_id;
  download.most_bytes = most_bytes(known_bytes);
  t_download = &download;
  const int fd = (debug ? library_->debug : library_->executable)(library_->client, id, 0, &path);
  t_download = nullptr;
  if (fd >= 0) {
    if (path != nullptr) known->second = path;
    ::close(fd);
  } else if (fd != -ENOENT || !download.why.empty()) {
    trouble_ = download.why.empty() ? std::strerror(-fd) : download.why;
  }
  std::free(path);
  return known->second;
}

std::string Debuginfod::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace ptd
