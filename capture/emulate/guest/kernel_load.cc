// Load: processes whose system calls execute the changed code: files, pipes, switches, wake-ups, faults, forks, timers.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "capture/emulate/guest/guest_files.h"
#include "capture/emulate/guest/kernel_changes.h"

namespace ptd::emulate::guest {
namespace {

void touch_files() {
  char buffer[4096];
  for (const char* path : {"/proc/self/stat", "/proc/loadavg", "/proc/uptime", "/proc/self/status"}) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0) continue;
    (void)!read(fd, buffer, sizeof(buffer));
    close(fd);
  }
  const int fd = open("/dev/shm/scratch", O_RDWR | O_CREAT, 0600);
  (void)!write(fd, buffer, sizeof(buffer));
  close(fd);
}

void touch_memory() {
  constexpr size_t kBytes = 64 << 10;
  auto* memory = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) return;
  for (size_t i = 0; i < kBytes; i += 4096) memory[i] = 1;
  munmap(memory, kBytes);
}

void fork_once() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  if (child > 0) (void)waitpid(child, nullptr, 0);
}

/// Two processes that wake each other up.
void ping_pong(uint32_t pause_ms) {
  int pipes[2][2];
  if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0) return;
  char byte = 0;
  if (fork() == 0) {
    while (read(pipes[0][0], &byte, 1) == 1) (void)!write(pipes[1][1], &byte, 1);
    _exit(0);
  }
  for (unsigned turn = 0;; ++turn) {
    (void)!write(pipes[0][1], &byte, 1);
    (void)!read(pipes[1][0], &byte, 1);
    if (turn % 4 == 0) sleep_ms(pause_ms);
  }
}

void call_often(uint32_t number, uint32_t pause_ms) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return;
  char buffer[512] = "";
  for (unsigned turn = number;; ++turn) {
    for (int i = 0; i < 20; ++i) (void)syscall(SYS_getppid);
    (void)!write(sockets[0], buffer, sizeof(buffer));
    (void)!read(sockets[1], buffer, sizeof(buffer));
    pollfd wait{sockets[1], POLLIN, 0};
    (void)poll(&wait, 1, 0);
    if (turn % 3 == 0) touch_files();
    if (turn % 5 == 0) touch_memory();
    if (turn % 11 == 0) fork_once();
    if (turn % 7 == 0) sched_yield();
    sleep_ms(pause_ms);
  }
}

}  // namespace

void start_load(uint32_t processes, uint32_t pause_ms) {
  for (uint32_t i = 0; i < processes; ++i) {
    if (fork() != 0) continue;
    if (i == 1) pin_to(1);
    if (i == 0) ping_pong(pause_ms);
    call_often(i, pause_ms);
    _exit(0);
  }
}

}  // namespace ptd::emulate::guest
