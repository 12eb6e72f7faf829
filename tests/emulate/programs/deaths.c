// deaths WAY [FILE]: dies in that way. FILE is mapped and counts what loops did: 8 bytes a thread. deaths work N: calls and returns. The same code runs natively and emulated.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kStop = 500 };  // the counter value that ends all loops
static volatile uint64_t* counters;
static volatile int never;
static sigjmp_buf jump;

// Some calls and returns before the end, so that branches and returns are pending in the encoder.
__attribute__((noinline)) static int work(int n) {
  __asm__ volatile("");
  return n < 2 ? n : work(n - 1) + work(n - 2);
}

// The loop for which tests compare `counted`: executed as often as the counter shows. PAUSE is slow under an emulator, which keeps
// recordings small.
__attribute__((noinline)) static void* spin(void* counter) {
  const void* stop = (const void*)(counters + kStop);
  __asm__ volatile(".globl counted\ncounted: incq (%0)\n pause\n cmpq $0, (%1)\n je counted\n" : : "r"(counter), "r"(stop) : "memory");
  return 0;
}

static void wait_for(volatile uint64_t* counter) {
  while (*counter < 1000) sched_yield();
}

static void start_spinning(int threads) {
  for (int i = 1; i <= threads; ++i) {
    pthread_t thread;
    pthread_create(&thread, 0, spin, (void*)(counters + i));
  }
  for (int i = 1; i <= threads; ++i) wait_for(counters + i);
}

__attribute__((noinline)) static void load_bad(void) { __asm__ volatile("movl %%eax, 8" ::: "memory"); }
// Fills the stack with one instruction, so that it is the one that faults; with a branch per round, since otherwise no packet distinguishes
// the rounds.
static void overflow(void) { __asm__ volatile("1: pushq %%rax\n cmpl $0, %0\n je 1b" : : "m"(never) : "memory"); }
static void* crash(void* unused) {
  (void)unused;
  usleep(100000);  // the first thread is waiting for this one by then
  load_bad();
  return 0;
}
static void* leave(void* unused) {
  (void)unused;
  usleep(100000);
  syscall(SYS_exit_group, 5);
  return 0;
}
static void* exec_true(void* unused) {
  (void)unused;
  execl("/proc/self/exe", "deaths", "exit", (char*)0);
  return 0;
}
static void in_thread(void* (*what)(void*)) {
  pthread_t thread;
  pthread_create(&thread, 0, what, 0);
  pthread_join(thread, 0);
}
static void crash_in_handler(int number) {
  work(number & 7);
  load_bad();
}
static void jump_out(int number) {
  work(number & 7);
  siglongjmp(jump, 1);
}
static void raise_again(int number) {
  signal(number, SIG_DFL);
  raise(number);
}
static void nest(int number) {
  work(3);
  if (number == SIGUSR1) raise(SIGUSR2);
  work(4);
}
static void* page(int prot) { return mmap((void*)0x20000000, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); }
static void run_off(char* at) { __asm__ volatile("1: movb (%0), %%al\n incq %0\n jmp 1b" : "+r"(at) : : "rax"); }
static void run_off_counted(char* at) { __asm__ volatile("1: movb (%0), %%al\n incq %0\n testq %0, %0\n jnz 1b" : "+r"(at) : : "rax"); }
static void fill_off(char* at) {
  long count = 1000000;
  __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(0) : "memory");
}
static void on_fault(int flags) {
  const stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, 0);
  struct sigaction action = {.sa_handler = raise_again, .sa_flags = flags};
  sigaction(SIGSEGV, &action, 0);
}
static void limit_cpu(void) {
  const struct rlimit limit = {1, 5};
  setrlimit(RLIMIT_CPU, &limit);
}
static void alarm_soon(void) {
  const struct itimerval timer = {{0, 0}, {0, 20000}};
  setitimer(ITIMER_REAL, &timer, 0);
}

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "";
  if (strcmp(way, "work") == 0) return argc > 2 ? work(atoi(argv[2])) & 0 : 2;
  if (argc > 2) {
    const int fd = open(argv[2], O_RDWR);
    counters = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
#define WAY(name) if (strcmp(way, name) == 0)
  work(9);
  WAY("segv") load_bad();
  WAY("bus") {
    const int fd = memfd_create("empty", 0);
    *(volatile char*)mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
  }
  WAY("ill") __asm__ volatile("ud2");
  WAY("fpe") __asm__ volatile("xorl %%edx, %%edx\n xorl %%ecx, %%ecx\n divl %%ecx" ::: "eax", "ecx", "edx");
  WAY("trap") __asm__ volatile("int3");
  WAY("hlt") __asm__ volatile("hlt");
  WAY("unaligned") __asm__ volatile("movaps 1(%%rsp), %%xmm0" ::: "xmm0");
  WAY("abort") abort();
  WAY("raise_kill") raise(SIGKILL);
  WAY("raise_term") raise(SIGTERM);
  WAY("pipe") {
    int ends[2];
    if (pipe(ends) != 0) return 2;
    close(ends[0]);
    return (int)write(ends[1], "x", 1);
  }
  WAY("stack") overflow();
  WAY("stack_handled") {
    on_fault(SA_ONSTACK | SA_NODEFER);
    overflow();
  }
  WAY("exit") exit(3);
  WAY("_exit") _exit(4);
  WAY("quick_exit") quick_exit(5);
  WAY("thread_exit") pthread_exit(0);
  WAY("exit_in_thread") in_thread(leave);
  WAY("crash_in_thread") in_thread(crash);
  WAY("exec") execl("/proc/self/exe", "deaths", "exit", (char*)0);
  WAY("exec_fails") {
    execl("/nonexistent", "x", (char*)0);
    execl("/dev/null", "x", (char*)0);
    load_bad();
  }
  WAY("exec_in_thread") in_thread(exec_true);
  WAY("fork_crash") {
    if (fork() == 0) load_bad();
    wait(0);
    _exit(6);
  }
  WAY("null_call") ((void (*)(void))(uintptr_t)never)();
  WAY("null_jump") __asm__ volatile("xorl %%eax, %%eax\n jmp *%%rax" ::: "rax");
  WAY("data_call") ((void (*)(void))page(PROT_READ | PROT_WRITE))();
  WAY("bad_return") __asm__ volatile("movq $0x4000, (%rsp)\n ret");
  WAY("direct_jump") __asm__ volatile("jmp 0x1000");
  WAY("run_off") run_off(page(PROT_READ));
  WAY("run_off_counted") run_off_counted(page(PROT_READ));
  WAY("fill_off") fill_off(page(PROT_READ | PROT_WRITE));
  WAY("no_memory") {
    char* memory = mmap(0, (size_t)1 << 60, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char*)memory = 1;
  }
  WAY("crash_in_handler") {
    signal(SIGUSR1, crash_in_handler);
    raise(SIGUSR1);
  }
  WAY("handled_then_default") {
    on_fault(SA_NODEFER);
    load_bad();
  }
  WAY("default_after_handler") {  // pending while the handler runs
    on_fault(0);
    load_bad();
  }
  WAY("jump_out") {
    signal(SIGSEGV, jump_out);
    if (sigsetjmp(jump, 1) == 0) load_bad();
    work(5);
    signal(SIGFPE, SIG_DFL);
    __asm__ volatile("xorl %%edx, %%edx\n xorl %%ecx, %%ecx\n divl %%ecx" ::: "eax", "ecx", "edx");
  }
  WAY("nested") {
    signal(SIGUSR1, nest);
    signal(SIGUSR2, nest);
    raise(SIGUSR1);
    load_bad();
  }
  // Ways that end a loop at a time that is known only from the counters.
  WAY("spin") spin((void*)counters);
  WAY("until_told") {
    spin((void*)(counters + 1));
    exit(3);
  }
  WAY("alarm") {
    alarm_soon();
    spin((void*)counters);
  }
  WAY("limit_cpu") {
    limit_cpu();
    spin((void*)counters);
  }
  WAY("threads_spin") {
    start_spinning(2);
    spin((void*)counters);
  }
  WAY("threads_crash") {
    start_spinning(3);
    load_bad();
  }
  WAY("threads_thread_crash") {
    start_spinning(2);
    in_thread(crash);
  }
  WAY("threads_abort") {
    start_spinning(2);
    abort();
  }
  WAY("threads_term") {
    start_spinning(2);
    raise(SIGTERM);
  }
  WAY("threads_kill") {
    start_spinning(2);
    raise(SIGKILL);
  }
  WAY("threads_exit") {
    start_spinning(3);
    exit(7);
  }
  WAY("threads_exit_in_thread") {
    start_spinning(2);
    in_thread(leave);
  }
  WAY("threads_exec") {
    start_spinning(2);
    execl("/proc/self/exe", "deaths", "exit", (char*)0);
  }
  WAY("threads_exec_in_thread") {
    start_spinning(2);
    in_thread(exec_true);
  }
  WAY("threads_exec_fails") {
    start_spinning(2);
    execl("/dev/null", "x", (char*)0);
    const uint64_t before = counters[1];
    while (counters[1] < before + 1000) sched_yield();
    load_bad();
  }
  return 9;
}
