// Detached sessions, client side: see session.h.
#include "capture/live/session/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>

#include "capture/live/events/workload.h"
#include "capture/live/session/session_dir.h"
#include "capture/live/session/session_keeper.h"
#include "capture/live/session/session_wire.h"
#include "capture/live/session/snapshot_file.h"
#include "image/base/system_error.h"

namespace ptd::live {
namespace {

/// How long a keeper may take: for one question of a list; to begin a command, which waits while another one has a snapshot taken; for
/// the snapshot itself.
constexpr std::chrono::seconds kListPatience{2}, kCommandPatience{10}, kSnapshotPatience{120};

/// What the shell or a script left open is not for a process that stays.
void close_inherited() {
  std::vector<int> others;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != dirfd(folder) && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) others.push_back(fd);
  }
  closedir(folder);
  for (const int fd : others) close(fd);
}

/// The keeper's process. Tells `ready` how it went: nothing is good, else why not.
[[noreturn]] void be_keeper(SessionKeeper& keeper, Workload* workload, int ready) {
  if (workload != nullptr) workload->forget();
  (void)setsid();
  (void)!chdir("/");  // no folder of anybody stays in use
  close_inherited();
  const Status settled = keeper.settle();
  if (!settled.ok()) {
    const std::string& why = settled.error().message;
    (void)!write(ready, why.data(), why.size());
    keeper.give_up();
    _exit(1);
  }
  leave_standard_streams();
  (void)!write(ready, "+", 1);
  close(ready);
  keeper.serve();
  _exit(0);
}

/// Returns whether the name's socket file exists and no process listens on it.
bool is_deserted(const SessionDir& dir, const std::string& name) {
  const int fd = dir.connect_to(name, kListPatience);
  if (fd < 0) return errno == ECONNREFUSED;
  close(fd);
  return false;
}

/// A socket file without a listener was left by two killed processes.
Status clear_stale(const SessionDir& dir, const std::string& name) {
  const uint64_t inode = dir.inode(name);
  if (inode == 0) return {};
  const int fd = dir.connect_to(name, kListPatience);
  if (fd >= 0 || errno == EAGAIN) {  // EAGAIN: more wait for it than it takes
    if (fd >= 0) close(fd);
    return Error{ErrorCode::already_exists, "session '" + name + "' already exists", 0};
  }
  if (errno == ECONNREFUSED) dir.remove(name, inode);
  return dir.inode(name) == 0 ? Status() : Status(system_error("cannot use the name '" + name + "'"));
}

Status fork_keeper(SessionKeeper& keeper, Workload* workload) {
  int ready[2] = {-1, -1};
  if (pipe2(ready, O_CLOEXEC) != 0) return system_error("pipe", ErrorCode::start_failed);
  const pid_t child = fork();
  if (child == 0) {
    close(ready[0]);
    be_keeper(keeper, workload, ready[1]);
  }
  close(ready[1]);
  char text[512];
  ssize_t got = -1;
  do {
    got = child < 0 ? 0 : read(ready[0], text, sizeof(text));
  } while (got < 0 && errno == EINTR);
  close(ready[0]);
  if (got != 1 || text[0] != '+') {
    keeper.give_up();
    if (child > 0) (void)waitpid(child, nullptr, 0);
    return Error{ErrorCode::start_failed, got > 0 ? std::string(text, static_cast<size_t>(got)) : "the session's process could not start",
                 0};
  }
  if (workload == nullptr) {
    keeper.enable_trace();
    return {};
  }
  const Status started = workload->start();
  if (!started.ok()) keeper.give_up();  // which ends it
  return started;
}

/// What came in place of an answer.
enum class NoAnswer : uint8_t { silence, hang_up, nonsense };

Error no_answer(const SessionDir& dir, const std::string& name, NoAnswer kind, std::chrono::seconds patience) {
  if (kind == NoAnswer::silence)
    return Error{ErrorCode::busy,
                 "session '" + name + "' does not answer within " + std::to_string(patience.count()) +
                     " s: its keeper is stopped (kill -CONT) or takes another snapshot",
                 0};
  const std::string what =
      kind == NoAnswer::hang_up ? "closes the connection without an answer" : "gives an answer that is not a session's";
  return Error{ErrorCode::bad_format,
               "session '" + name + "' " + what + ": another program or version of ptdecode listens there (end it, or remove " +
                   dir.path() + "/" + name + ")",
               0};
}

/// One question. A keeper that is killed meanwhile has a successor, who takes the next one.
Result<SessionReply> ask(const SessionDir& dir, const std::string& name, SessionRequest request, std::chrono::seconds patience,
                         int& passed_fd, int& connection) {
  constexpr int kTries = 20, kPauseUs = 50000;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + patience;
  passed_fd = connection = -1;
  NoAnswer kind = NoAnswer::silence;
  for (int i = 0; i < kTries && Clock::now() < end; ++i) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(end - Clock::now());
    const int fd = dir.connect_to(name, left);
    if (fd < 0 && errno == EAGAIN) {
      (void)usleep(kPauseUs);
      continue;
    }
    if (fd < 0) return Error{ErrorCode::no_such_session, "no session '" + name + "' (" + std::strerror(errno) + ")", 0};
    const timeval limit{left.count(), 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const RequestPacket packet{kSessionMagic, request};
    std::vector<std::byte> bytes(kMaxReplyBytes);
    const bool asked = send_packet(fd, std::as_bytes(std::span(&packet, 1)), -1, true);
    const long got = asked ? receive_packet(fd, bytes, passed_fd, true) : -1;
    SessionReply reply;
    if (got > 0 && decode_reply(bytes, reply)) {
      connection = fd;
      if (reply.error.empty()) return reply;
      return Error{ErrorCode::read_failed, "session '" + name + "': " + reply.error, 0};
    }
    const bool silent = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK), several = got < 0 && errno == EBADMSG;
    kind = silent ? NoAnswer::silence : got > 0 || several ? NoAnswer::nonsense : NoAnswer::hang_up;
    if (passed_fd >= 0) close(passed_fd);
    close(fd);
    if (silent) break;
    (void)usleep(kPauseUs);
  }
  return no_answer(dir, name, kind, patience);
}

/// Its status, which any keeper tells at once unless it is busy or stopped.
Result<SessionReply> ask_status(const SessionDir& dir, const std::string& name, std::chrono::seconds patience) {
  int passed = -1, connection = -1;
  Result<SessionReply> reply = ask(dir, name, SessionRequest::status, patience, passed, connection);
  if (passed >= 0) close(passed);
  if (connection >= 0) close(connection);
  return reply;
}

/// A command: only once the keeper has shown that it answers.
Result<SessionReply> command(const std::string& name, SessionRequest request, int& passed_fd, int& connection) {
  passed_fd = connection = -1;
  if (Status status = check_session_name(name); !status) return status.error();
  const Result<SessionDir> dir = SessionDir::open();
  if (!dir) return dir.error();
  if (Result<SessionReply> reply = ask_status(*dir, name, kCommandPatience); !reply) return reply;
  return ask(*dir, name, request, kSnapshotPatience, passed_fd, connection);
}

}  // namespace

Result<std::vector<std::string>> start_session(const SessionChoice& asked) {
  if (Status status = check_session_name(asked.name); !status) return status.error();
  Result<SessionDir> dir = SessionDir::open();
  if (!dir) return dir.error();
  if (Status status = dir->lock(); !status) return status.error();
  if (Status status = clear_stale(*dir, asked.name); !status) return status.error();
  SessionChoice choice = asked;
  std::optional<Workload> workload;
  std::unique_ptr<announce::AnnounceSocket> offers;
  if (!choice.command.empty()) {
    if (choice.announcements) {
      if (auto socket = announce::AnnounceSocket::create(); socket.ok()) offers = std::move(*socket);
    }
    Result<Workload> prepared = Workload::prepare(choice.command, offers ? offers->variable() : std::string());
    if (!prepared) return prepared.error();
    if (!choice.target.everything) choice.target.waiting_command = prepared->pid();
    workload = std::move(*prepared);
  }
  // The keeper has its own folder descriptor: a lock belongs to the open file description, which fork() shares.
  Result<SessionDir> own = SessionDir::open();
  if (!own) return own.error();
  Result<std::unique_ptr<SessionKeeper>> keeper = SessionKeeper::prepare(choice, std::move(*own), std::move(offers));
  if (!keeper) return keeper.error();
  const Status status = fork_keeper(**keeper, workload ? &*workload : nullptr);
  dir->unlock();
  if (!status.ok()) return status.error();
  (*keeper)->leave_offers();
  return (*keeper)->without();
}

Result<std::vector<SessionStatus>> list_sessions() {
  const Result<SessionDir> dir = SessionDir::open();
  if (!dir) return dir.error();
  // All at once: those that do not answer take one patience together.
  const std::vector<std::string> names = dir->names();
  std::vector<std::future<Result<SessionReply>>> replies;
  for (const std::string& name : names)
    replies.push_back(std::async(std::launch::async, [&dir, &name] { return ask_status(*dir, name, kListPatience); }));
  std::vector<SessionStatus> sessions;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const Result<SessionReply> reply = replies[i].get();
    // Checked after the request: a killed process may still have its socket open when the request is sent.
    if (!reply.ok() && is_deserted(*dir, name)) {
      if (Status status = dir->lock(); !status) return status.error();
      (void)clear_stale(*dir, name);
      dir->unlock();
    }
    if (!reply.ok() && dir->inode(name) == 0) continue;
    SessionStatus status;
    status.name = name;
    if (reply.ok()) status = reply->status;
    if (!reply.ok() && reply.error().code != ErrorCode::busy) status.trouble = reply.error().message;
    sessions.push_back(std::move(status));
  }
  return sessions;
}

Result<SessionStatus> take_snapshot(const std::string& name, const std::string& output) {
  int memory = -1, connection = -1;
  const Result<SessionReply> reply = command(name, SessionRequest::snapshot, memory, connection);
  Status status = reply.ok() ? Status() : Status(reply.error());
  if (reply.ok())
    status = memory >= 0 ? save_snapshot(memory, output) : Status(Error{ErrorCode::read_failed, "the session gave no snapshot", 0});
  if (memory >= 0) close(memory);
  if (connection >= 0) close(connection);
  if (!status.ok()) return status.error();
  return reply->status;
}

Status stop_session(const std::string& name) {
  int passed = -1, connection = -1;
  const Result<SessionReply> reply = command(name, SessionRequest::stop, passed, connection);
  if (passed >= 0) close(passed);
  if (connection >= 0) {  // it hangs up when it is through
    std::vector<std::byte> rest(1);
    (void)receive_packet(connection, rest, passed, true);
    close(connection);
  }
  return reply.ok() ? Status() : Status(reply.error());
}

}  // namespace ptd::live
