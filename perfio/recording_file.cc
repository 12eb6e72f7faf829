// Opening and spooling.
#include "perfio/recording_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "image/base/environment.h"
#include "image/base/fd.h"
#include "image/base/interrupt.h"
#include "image/base/system_error.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

/// False as soon as the first bytes are those of no recording: then the rest, perhaps endless, need not be read to refuse it.
bool may_be_recording(const char* data, size_t size) {
  uint64_t magic = 0;
  if (size < sizeof magic) return true;
  std::memcpy(&magic, data, sizeof magic);
  return magic == kPerfMagic2 || magic == kPerfMagic2Swapped || magic == kPerfMagic1;
}

/// What the copy of an input without end leaves free on its file system: this, or a twentieth of it if that is less.
constexpr uint64_t kLeastFreeBytes = 1ULL << 30, kLeastFreeShare = 20;

bool has_room(int fd, uint64_t more_bytes) {
  struct statvfs info {};
  if (::fstatvfs(fd, &info) != 0 || info.f_blocks == 0) return true;  // unknown: write() reports a full one
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize, all = uint64_t{info.f_blocks} * info.f_frsize;
  return free >= std::min(kLeastFreeBytes, all / kLeastFreeShare) + more_bytes;
}

/// Waits for input, or for the end of it. check_interrupt() may throw meanwhile. A FIFO has no end before its first writer comes, although
/// read() returns 0 until then.
void wait_for_input(int fd) {
  constexpr int kPauseMs = 100;
  pollfd wanted{fd, POLLIN, 0};
  int ready = 0;
  do {
    check_interrupt();
    ready = ::poll(&wanted, 1, kPauseMs);
  } while (ready == 0 || (ready < 0 && errno == EINTR));
}

Result<Fd> spool(int from, const std::string& path) {
  std::string name = environment::temporary_folder() + "/ptdecode-XXXXXX";
  Fd to(::mkostemp(name.data(), O_CLOEXEC));
  if (to.get() < 0) return system_error("cannot make a temporary file at " + name, ErrorCode::write_failed);
  ::unlink(name.c_str());
  std::vector<char> buffer(1U << 18);
  size_t filled = 0;
  uint64_t copied_bytes = 0;
  bool first = true, more = true;
  while (more) {
    wait_for_input(from);
    const ssize_t got = ::read(from, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return system_error("cannot read " + path, ErrorCode::read_failed);
    filled += static_cast<size_t>(got);
    more = got != 0;
    if (more && first && filled < sizeof(uint64_t)) continue;  // a pipe may give its magic in pieces
    if (first && !may_be_recording(buffer.data(), filled)) more = false;
    first = false;
    if (!has_room(to.get(), filled))
      return Error{ErrorCode::no_space,
                   "cannot spool " + path + " to " + name + ": the file system is nearly full after " + std::to_string(copied_bytes) +
                       " bytes (TMPDIR names another folder)",
                   0};
    copied_bytes += filled;
    if (!write_all(to.get(), buffer.data(), filled)) return system_error("cannot spool " + path + " to " + name, ErrorCode::write_failed);
    filled = 0;
  }
  return to;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> open_recording_file(const std::string& path) {
  const bool standard_input = path == "-";
  const std::string name = input_name(path);
  // O_NONBLOCK: open() of a FIFO does not wait for a writer, so that check_interrupt() can end the wait.
  Fd fd(standard_input ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error("cannot open " + name);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return system_error("cannot stat " + name);
  if (S_ISDIR(status.st_mode)) return Error{ErrorCode::is_directory, name + " is a directory", 0};
  if (!S_ISREG(status.st_mode)) {
    auto spooled = spool(fd.get(), name);
    if (!spooled) return spooled.error();
    fd = std::move(spooled.value());
    if (standard_input && ::dup2(fd.get(), STDIN_FILENO) < 0) return system_error("cannot keep what came from standard input");
  }
  return MappedFile::open(fd.get(), name);
}

}  // namespace ptd::perfio
