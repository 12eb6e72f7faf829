// WholeFile: resolves an output path and replaces the file atomically.
#include "image/base/whole_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "image/base/fd.h"
#include "image/base/mapped_file.h"
#include "image/base/read_files.h"
#include "image/base/system_error.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 1U << 16;
constexpr int kMaxLinks = 40;  // same as the kernel's MAXSYMLINKS
constexpr std::string_view kProc = "/proc/";
constexpr size_t kMostTemporaries = 16;  // open at a time; further ones remain after a signal

/// A temporary file, for the signal handler. The path is never freed while `owner` is set.
struct Temporary {
  std::atomic<pid_t> owner{0};  ///< 0: free, -1: being filled. A forked process does not remove the files of its parent
  std::array<char, PATH_MAX> path{};
};
std::array<Temporary, kMostTemporaries> g_temporaries;
static_assert(std::atomic<pid_t>::is_always_lock_free);

void add_temporary(const std::string& path) {
  if (path.size() >= PATH_MAX) return;
  for (Temporary& slot : g_temporaries) {
    pid_t free = 0;
    if (!slot.owner.compare_exchange_strong(free, -1)) continue;
    std::copy_n(path.c_str(), path.size() + 1, slot.path.begin());
    slot.owner = ::getpid();
    return;
  }
}

void remove_temporary(const std::string& path) {
  for (Temporary& slot : g_temporaries) {
    if (slot.owner > 0 && path == slot.path.data()) slot.owner = 0;
  }
}

void end_by_signal(int number) {
  remove_unfinished_files();
  std::signal(number, SIG_DFL);
  (void)::raise(number);
}

constexpr int kTries = 16;  // temporary names may be left over from a killed process with the same id

/// What is at an output's path. Links are followed only to learn whether they end in something that is written directly.
struct Place {
  bool there = false;      ///< a link at the path leads to something, or it is no link and exists
  mode_t mode = 0;         ///< of what it leads to
  bool of_procfs = false;  ///< ends in a procfs link, which the kernel resolves without a path
  int descriptor = -1;     ///< descriptor of this process
  bool foreign = false;    ///< a link that another user created in a world-writable folder: not followed

  [[nodiscard]] bool direct() const { return there && (descriptor >= 0 || of_procfs || !S_ISREG(mode)); }
};

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Applies the rule of the kernel's fs.protected_symlinks, which an administrator may have turned off.
bool is_foreign(const struct stat& link, const std::string& folder) {
  struct stat place {};
  if (::stat(folder.c_str(), &place) != 0) return true;
  return (place.st_mode & S_IWOTH) != 0 && link.st_uid != ::geteuid() && link.st_uid != place.st_uid;
}

int number_of(const std::string& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

void follow(std::string path, Place& place) {
  for (int links = 0; links < kMaxLinks; ++links) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) break;
    const std::string folder = folder_of(path);
    struct statfs system {};
    std::error_code error;
    if (::statfs(folder.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) {
      const std::string real = fs::canonical(folder, error).string(), own = "/proc/" + std::to_string(::getpid());
      place.of_procfs = real.size() > kProc.size() && real.starts_with(kProc) && real[kProc.size()] >= '0' && real[kProc.size()] <= '9';
      if (real == own + "/fd" || real == own + "/task/" + std::to_string(::gettid()) + "/fd")
        place.descriptor = number_of(path.substr(path.rfind('/') + 1));
      if (place.of_procfs) break;
    }
    place.foreign = is_foreign(info, folder);
    if (place.foreign) break;
    const fs::path to = fs::read_symlink(path, error);
    if (error) break;
    path = to.is_absolute() ? to.string() : folder + "/" + to.string();
  }
}

Error open_error(const std::string& path, int number) { return system_error(path + ": cannot write", ErrorCode::write_failed, number); }

/// Errors: file_open, also for a link of another user that the kernel or is_foreign() refuses to follow.
Result<Place> look_at(const std::string& path) {
  Place place;
  struct stat info {};
  place.there = ::stat(path.c_str(), &info) == 0;
  place.mode = info.st_mode;
  if (!place.there && errno != ENOENT && errno != ELOOP) return open_error(path, errno);
  follow(path, place);
  if (place.foreign) return open_error(path, EACCES);
  return place;
}

// Standard output itself, or its pipe under another name. Its reader may leave early, as `head` does.
bool is_standard_output(int fd) {
  struct stat own {
  }, standard{};
  return ::fstat(fd, &own) == 0 && ::fstat(STDOUT_FILENO, &standard) == 0 && own.st_dev == standard.st_dev && own.st_ino == standard.st_ino;
}

// What is written to a temporary file needs a folder that takes one.
Status check_folder(const std::string& path) {
  const Result<Place> place = look_at(path);
  if (!place) return place.error();
  if (place->direct() || (place->there && place->descriptor >= 0)) return {};
  const std::string folder = fs::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) return open_error(path, errno);
  return {};
}

Error refusal(const std::string& path, std::string_view what) {
  return Error{ErrorCode::bad_output, path + " is " + std::string(what) + ": -o names the output file, -i the recording", 0};
}

}  // namespace

FileKind file_kind(const std::string& path) {
  if (!is_regular_file(path)) return FileKind::other;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::array<char, 8> magic{};
  const ssize_t got = fd.ok() ? ::pread(fd.get(), magic.data(), magic.size(), 0) : -1;
  const std::string_view start(magic.data(), got < 0 ? 0 : static_cast<size_t>(got));
  if (start == "PERFILE2" || start == "2ELIFREP" || start == "PERFFILE" || start == "ELIFFREP") return FileKind::recording;
  if (start == kBundleMagic) return FileKind::bundle;
  if (start.starts_with("\x7f"
                        "ELF"))
    return FileKind::program;
  return start.starts_with("JiTD") || start.starts_with("DTiJ") ? FileKind::jitdump : FileKind::other;
}

std::string_view name_of(FileKind kind) {
  static constexpr std::array<std::string_view, 5> kNames = {"", "a recording", "a bundle", "a program or library", "a jitdump"};
  return kNames.at(static_cast<size_t>(kind));
}

Status check_output(const std::string& path, const OutputRules& rules) {
  if (path == "-") return {};  // standard output
  const auto check_kind = [&rules](const std::string& place) -> Status {
    const FileKind kind = file_kind(place);
    return kind == FileKind::other || kind == rules.kind ? Status() : Status(refusal(place, name_of(kind)));
  };
  if (Status status = check_kind(path); !status) return status;
  std::error_code ignored;
  if (rules.keep_old) return fs::exists(path, ignored) ? check_kind(path + ".old") : Status();
  if (was_read(path)) return refusal(path, "a file that is read as input");
  return path.empty() ? Status() : check_folder(path);
}

Status check_not_program(const std::string& path, const std::string& program) {
  std::error_code ignored;
  for (const std::string& lost : {path, path + ".old"}) {
    if (fs::exists(path, ignored) && fs::equivalent(lost, program, ignored)) return refusal(lost, "the program to run");
  }
  return {};
}

Status keep_as_old(const std::string& path) {
  const std::string old = path + ".old";
  if (::rename(path.c_str(), old.c_str()) == 0) return {};
  return system_error("cannot rename " + path + " to " + old, ErrorCode::write_failed);
}

Result<bool> keep_old_recording(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(fs::symlink_status(path, error))) return false;
  if (Status allowed = check_output(path, kRecordingOutput); !allowed) return allowed.error();
  // A link to nothing is renamed, too.
  const bool recording = fs::is_directory(status) ? fs::exists(path + "/data", error) || fs::is_empty(path, error)
                                                  : !fs::exists(status) || fs::is_regular_file(status);
  if (!recording && !fs::is_directory(status)) return false;  // a device, a pipe: written as it is
  if (!recording) return Error{ErrorCode::bad_output, path + " is a directory but not a recording", 0};
  const std::string old = path + ".old";
  if (fs::is_directory(old, error) && (fs::exists(old + "/data", error) || fs::is_empty(old, error))) fs::remove_all(old, error);
  if (Status kept = keep_as_old(path); !kept) return kept.error();
  return true;
}

Result<std::unique_ptr<WholeFile>> WholeFile::open(const std::string& path, const OutputRules& rules) {
  const auto straight = [&](int fd) -> Result<std::unique_ptr<WholeFile>> {
    if (fd < 0) return open_error(path, errno);
    return std::unique_ptr<WholeFile>(new WholeFile(fd, path, rules));
  };
  if (path == "-") return straight(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (Status status = check_output(path, rules); !status) return status.error();
  const Result<Place> place = look_at(path);
  if (!place) return place.error();
  if (place->there && place->descriptor >= 0) return straight(::fcntl(place->descriptor, F_DUPFD_CLOEXEC, 3));
  if (place->direct()) return straight(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | (S_ISREG(place->mode) ? O_TRUNC : 0)));
  if (path.empty() || path.ends_with('/')) return open_error(path, path.empty() ? ENOENT : EISDIR);
  struct stat replaced {};
  const bool kept_mode = !rules.keep_old && ::lstat(path.c_str(), &replaced) == 0 && S_ISREG(replaced.st_mode);
  for (int i = 0; i < kTries; ++i) {
    const std::string temporary = path + ".part" + std::to_string(::getpid()) + (i == 0 ? "" : "." + std::to_string(i));
    add_temporary(temporary);  // first, because a signal may come as soon as the file is there
    const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, rules.mode);
    if (fd < 0) {
      const int error = errno;
      remove_temporary(temporary);
      if (error == EEXIST) continue;
      return open_error(path, error);
    }
    if (kept_mode) (void)::fchmod(fd, replaced.st_mode & rules.mode);
    std::unique_ptr<WholeFile> file(new WholeFile(fd, path, rules));
    file->temporary_ = temporary;
    return file;
  }
  return open_error(path, EEXIST);
}

Result<Fd> create_private(const std::string& path) {
  const Result<Place> place = look_at(path);
  if (!place) return place.error();
  // An existing file may be open elsewhere or have other names, so it is unlinked and not reused. Of a link, only the link is removed.
  if (!place->direct() && ::unlink(path.c_str()) != 0 && errno != ENOENT) return open_error(path, errno);
  Fd fd(place->direct() ? ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY)
                        : ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.ok()) return open_error(path, errno);
  return fd;
}

void remove_unfinished_files() {
  for (Temporary& slot : g_temporaries) {
    if (slot.owner == ::getpid()) (void)::unlink(slot.path.data());
  }
}

WholeFile::~WholeFile() {
  if (fd_ >= 0) ::close(fd_);
  if (temporary_.empty()) return;
  (void)::unlink(temporary_.c_str());
  remove_temporary(temporary_);
}

void remove_temporaries_on_signals() {
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction current {};
    if (::sigaction(number, nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = end_by_signal;
    ::sigemptyset(&ours.sa_mask);
    (void)::sigaction(number, &ours, nullptr);
  }
}

Error WholeFile::failed() const { return open_error(path_, error_); }

bool WholeFile::write(std::string_view text) {
  pending_.append(text);
  return pending_.size() < kBufferBytes ? error_ == 0 && !closed_ : flush();
}

bool WholeFile::flush() {
  if (error_ == 0 && !closed_ && !write_all(fd_, pending_.data(), pending_.size())) {
    const int number = errno;
    closed_ = number == EPIPE && is_standard_output(fd_);
    error_ = closed_ ? 0 : number;
  }
  pending_.clear();
  return error_ == 0 && !closed_;
}

bool WholeFile::replace() {
  const std::string old = path_ + ".old";
  const bool kept = rules_.keep_old && ::rename(path_.c_str(), old.c_str()) == 0;
  if (rules_.keep_old && !kept && errno != ENOENT) return false;
  if (::rename(temporary_.c_str(), path_.c_str()) == 0) return true;
  const int number = errno;
  if (kept) (void)::rename(old.c_str(), path_.c_str());
  errno = number;
  return false;
}

Status WholeFile::finish() {
  (void)flush();
  if (::close(std::exchange(fd_, -1)) != 0 && error_ == 0) error_ = errno;
  const Status allowed = error_ != 0 || temporary_.empty() ? Status() : check_output(path_, rules_);
  if (!allowed) return allowed;  // the destructor removes the temporary file
  if (error_ == 0 && !temporary_.empty() && !replace()) error_ = errno;
  if (error_ != 0) return failed();
  remove_temporary(temporary_);
  temporary_.clear();
  return {};
}

}  // namespace ptd
