// Unusual actions of a program that disturb a tracer, one per run: see main().
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static volatile long sum;
static void work(void) { for (int i = 0; i < 200000; i++) sum += (sum ^ i) & 1 ? 3 : i; }
static void *thread(void *p) { work(); return p; }
// Code that is written through another address than that of its execution: here and at its second instruction.
static void alias(void) {
  int fd = memfd_create("code", 0);
  unsigned char *write_at, *run_at;
  if (ftruncate(fd, 4096)) exit(1);
  write_at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  run_at = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  for (int i = 0; i < 50; i++) {
    unsigned char code[] = {0x90, 0x90, 0xb8, (unsigned char)i, 0, 0, 0, 0xc3};
    memcpy(write_at, code, sizeof code);
    sum += ((int (*)(void))run_at)() + ((int (*)(void))(run_at + 2))();
  }
}
static void vsyscall(void) { for (int i = 0; i < 3; i++) sum += ((long (*)(long *))0xffffffffff600400)(0) != 0; }
static void refused(void) {
  char *words[] = {"true", 0};
  sum += execve("/bin/true", (char **)8, environ) == -1 && errno == EFAULT;
  sum += execve("/bin/true", words, (char **)8) == -1 && errno == EFAULT;
  work();
}
static void run(int (*how)(void)) {
  int status = 0;
  pid_t child = fork();
  if (child == 0) _exit(how());
  waitpid(child, &status, 0);
  if (status != 0) printf("failed: %x\n", status);
}
static char *one[] = {"true", 0};
static int by_folder(void) { return chdir("/bin") || syscall(SYS_execveat, AT_FDCWD, "true", one, environ, 0); }
static int by_descriptor(void) { return fexecve(open("/bin/true", O_RDONLY | O_CLOEXEC), one, environ); }
static void execs(void) { run(by_folder); run(by_descriptor); }
static void limited(void) {
  const struct rlimit none = {0, 0};
  pthread_t other;
  signal(SIGXFSZ, SIG_DFL);
  setrlimit(RLIMIT_FSIZE, &none);
  work();
  pthread_create(&other, 0, thread, 0);
  pthread_join(other, 0);
}
static unsigned char *patched;
static void handler(int number) { (void)number; sum += ((int (*)(void))patched)(); }
static void patch_under_signals(void) {
  const struct itimerval often = {{0, 500}, {0, 500}};
  patched = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(patched, "\xb8\1\0\0\0\xc3", 6);
  signal(SIGALRM, handler);
  setitimer(ITIMER_REAL, &often, 0);
  for (int i = 0; i < 2000; i++) { patched[1] = i; sum += ((int (*)(void))patched)(); }
}
int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  if (!strcmp(what, "alias")) alias();
  if (!strcmp(what, "vsyscall")) vsyscall();
  if (!strcmp(what, "refused")) refused();
  if (!strcmp(what, "execs")) execs();
  if (!strcmp(what, "limited")) limited();
  if (!strcmp(what, "patch")) patch_under_signals();
  if (!strcmp(what, "work")) work();
  puts("done");
  return 0;
}
