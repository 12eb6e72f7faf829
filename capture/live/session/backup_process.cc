// BackupProcess: see backup_process.h.
#include "capture/live/session/backup_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "image/base/system_error.h"

namespace ptd::live {
namespace {

/// One byte, or nothing at the end of the stream.
bool read_byte(int fd) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(fd, &byte, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

[[noreturn]] void hold(int fd, const BackupProcess::Duties& duties) {
  (void)setsid();  // a signal to the first one's group is not for this one
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP}) (void)signal(number, SIG_IGN);
  (void)prctl(PR_SET_NAME, "ptdecode-hold");
  const Status adopted = duties.adopt();
  const char word = adopted.ok() ? 'y' : 'n';
  if (send(fd, &word, 1, MSG_NOSIGNAL) != 1 || !adopted.ok()) _exit(1);
  leave_standard_streams();
  if (!read_byte(fd)) duties.take_over();
  _exit(0);
}

}  // namespace

void leave_standard_streams() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  for (const int fd : {0, 1, 2}) (void)dup2(null, fd);
  if (null > 2) close(null);
}

Result<BackupProcess> BackupProcess::start(const Duties& duties) {
  int pair[2] = {-1, -1};
  const auto fail = [] { return system_error("second process", ErrorCode::start_failed); };
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return fail();
  BackupProcess backup;
  backup.fd_ = pair[0];
  backup.pid_ = fork();
  if (backup.pid_ < 0) {
    close(pair[1]);
    return fail();
  }
  if (backup.pid_ == 0) {
    close(pair[0]);
    hold(pair[1], duties);
  }
  close(pair[1]);
  char word = 0;
  ssize_t got = 0;
  do {
    got = read(backup.fd_, &word, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1 || word != 'y') return Error{ErrorCode::start_failed, "the second process could not map the rings", 0};
  return backup;
}

BackupProcess::~BackupProcess() {
  if (fd_ < 0) return;
  const char word = 'e';
  (void)send(fd_, &word, 1, MSG_NOSIGNAL);
  close(fd_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

BackupProcess::BackupProcess(BackupProcess&& other) noexcept : fd_(std::exchange(other.fd_, -1)), pid_(std::exchange(other.pid_, -1)) {}

BackupProcess& BackupProcess::operator=(BackupProcess&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(pid_, other.pid_);
  return *this;
}

}  // namespace ptd::live
