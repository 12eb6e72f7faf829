// Waits in sixteen ways, and measures each wait itself: waits FILE MILLISECONDS. The events that end the waits are prepared before the
// clock is read.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long ms;
static int fds[2], listener, lock_file;
static pid_t child;
static pthread_t helper;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore, ready;
static sigset_t unblocked;
static char path[4096];
static volatile uint64_t sink;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static struct timespec after(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  t.tv_nsec += ms * 1000000;
  t.tv_sec += t.tv_nsec / 1000000000;
  t.tv_nsec %= 1000000000;
  return t;
}
static void rest(void) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&t, &t) != 0) {
  }
}
static void check(int good) {
  if (!good) abort();
}

// Functions of other threads.
static void* sleeps(void* unused) {
  rest();
  return unused;
}
static void* writes(void* unused) {
  rest();
  check(write(fds[1], "x", 1) == 1);
  return unused;
}
static void* posts(void* unused) {
  rest();
  sem_post(&semaphore);
  return unused;
}
static void* holds_mutex(void* unused) {
  pthread_mutex_lock(&mutex);
  sem_post(&ready);
  rest();
  pthread_mutex_unlock(&mutex);
  return unused;
}
static void* holds_file(void* unused) {
  const int file = open(path, O_RDWR);
  check(flock(file, LOCK_EX) == 0);
  sem_post(&ready);
  rest();
  close(file);
  return unused;
}
static void* connects(void* unused) {
  struct sockaddr_storage address;
  socklen_t size = sizeof address;
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  check(getsockname(listener, (struct sockaddr*)&address, &size) == 0);
  rest();
  check(connect(file, (struct sockaddr*)&address, size) == 0);
  close(file);
  return unused;
}
static void* signals(void* to) {
  rest();
  pthread_kill(*(pthread_t*)to, SIGUSR1);
  return NULL;
}

// Preparations.
static void start(void* (*what)(void*)) {
  static pthread_t self;
  self = pthread_self();
  check(pthread_create(&helper, NULL, what, &self) == 0);
}
static void nothing(void) {}
static void make_pipe(void) {
  check(pipe(fds) == 0);
  start(writes);
}
static void make_sleeper(void) { start(sleeps); }
static void make_poster(void) {
  sem_init(&semaphore, 0, 0);
  start(posts);
}
static void make_semaphore(void) { sem_init(&semaphore, 0, 0); }
static void make_holder(void) {
  start(holds_mutex);
  sem_wait(&ready);
}
static void make_lock(void) {
  lock_file = open(path, O_RDWR);
  start(holds_file);
  sem_wait(&ready);
}
static void make_listener(void) {
  struct sockaddr address = {AF_UNIX, ""};
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  check(bind(listener, &address, sizeof(sa_family_t)) == 0 && listen(listener, 1) == 0);
  start(connects);
}
static void make_child(void) {
  child = fork();
  if (child != 0) return;
  rest();
  _exit(0);
}
static void make_signaller(void) { start(signals); }

// The waits.
static void by_nanosleep(void) { rest(); }
static void by_poll(void) { poll(NULL, 0, (int)ms); }
static void by_select(void) {
  struct timeval t = {ms / 1000, ms % 1000 * 1000};
  select(0, NULL, NULL, NULL, &t);
}
static void by_epoll(void) {
  static int file = -1;
  struct epoll_event event;
  file = epoll_create1(0);
  epoll_wait(file, &event, 1, (int)ms);
}
static void by_eventfd(void) {
  struct pollfd file = {eventfd(0, 0), POLLIN, 0};
  poll(&file, 1, (int)ms);
}
static void by_condition(void) {
  const struct timespec until = after(CLOCK_REALTIME);
  pthread_mutex_lock(&mutex);
  while (pthread_cond_timedwait(&condition, &mutex, &until) != ETIMEDOUT) {
  }
  pthread_mutex_unlock(&mutex);
}
static void by_semaphore(void) { sem_wait(&semaphore); }
static void by_timed_semaphore(void) {
  const struct timespec until = after(CLOCK_REALTIME);
  while (sem_timedwait(&semaphore, &until) != 0 && errno != ETIMEDOUT) {
  }
}
static void by_pipe(void) {
  char c;
  check(read(fds[0], &c, 1) == 1);
}
static void by_join(void) { pthread_join(helper, NULL); }
static void by_mutex(void) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}
static void by_waitpid(void) { check(waitpid(child, NULL, 0) == child); }
static void by_sigsuspend(void) { sigsuspend(&unblocked); }
static void by_sigtimedwait(void) {
  const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  sigset_t none;
  sigemptyset(&none);
  sigaddset(&none, SIGUSR2);
  sigtimedwait(&none, NULL, &t);
}
static void by_accept(void) { close(accept(listener, NULL, NULL)); }
static void by_flock(void) { check(flock(lock_file, LOCK_EX) == 0); }

static const struct {
  const char* name;
  void (*prepare)(void);
  void (*wait)(void);
  int joins;
} kWays[] = {
    {"nanosleep", nothing, by_nanosleep, 0},     {"poll", nothing, by_poll, 0},
    {"select", nothing, by_select, 0},           {"epoll", nothing, by_epoll, 0},
    {"eventfd", nothing, by_eventfd, 0},         {"condition", nothing, by_condition, 0},
    {"semaphore", make_poster, by_semaphore, 1}, {"timed_semaphore", make_semaphore, by_timed_semaphore, 0},
    {"pipe", make_pipe, by_pipe, 1},             {"join", make_sleeper, by_join, 0},
    {"mutex", make_holder, by_mutex, 1},         {"waitpid", make_child, by_waitpid, 0},
    {"accept", make_listener, by_accept, 1},     {"flock", make_lock, by_flock, 1},
    {"sigsuspend", make_signaller, by_sigsuspend, 1}, {"sigtimedwait", nothing, by_sigtimedwait, 0},
};

NOINLINE void spin(void) {
  for (uint64_t i = 0; i < 300000; ++i) sink += i;
}
// Wait I, the second time with all code known to the emulator. Each has its own name, for the report.
NOINLINE void wait_number(int i) { kWays[i].wait(); }

static void on_signal(int number) { (void)number; }

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  FILE* out = fopen(argv[1], "w");
  snprintf(path, sizeof path, "%s", argv[1]);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGUSR1, &action, NULL);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, &unblocked);
  sem_init(&ready, 0, 0);
  for (int i = 0; i < (int)(sizeof kWays / sizeof *kWays); ++i) {
    for (int round = 0; round < 2; ++round) {
      ms = round == 0 ? 1 : atol(argv[2]);
      kWays[i].prepare();
      const uint64_t first = now();
      spin();
      const uint64_t second = now();
      wait_number(i);
      const uint64_t third = now();
      if (kWays[i].joins) pthread_join(helper, NULL);
      if (kWays[i].prepare == make_lock) close(lock_file);
      if (round == 1) fprintf(out, "%s %llu %llu\n", kWays[i].name, (unsigned long long)(third - second), (unsigned long long)(second - first));
    }
  }
  return fclose(out);
}
