/* A JIT whose code is loaded, moved, patched and unloaded N times, in few places that are reused at once, and announced.
 * lives N [MODE [PLACES]]: MODE late: nothing is announced before a reader is there; silent: every 97th change is not
 * announced; burst: many changes at once, with long names, more than the ring holds; outside: also announces code where it has none; forks: a child
 * does the same, with its parent's code; stops: after each N changes, prints the live code and waits for a line of input; names: also writes
 * /tmp/perf-PID.map, and prints how often each life was called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptd_announce.h"

enum { kMostPlaces = 4096, kPlaceBytes = 320, kTests = 24 };

static unsigned char* area;
static struct { int live; unsigned size, patch_at; long life; } places[kMostPlaces];
static FILE* perf_map;
static unsigned* calls; /* of each life */
static int place_count = 12;
static unsigned long seed = 1;
static uint32_t runtime;
static int silent, forked, in_burst;
static long changes;

static unsigned next_random(void) {
  seed = seed * 6364136223846793005ul + 1442695040888963407ul;
  return (unsigned)(seed >> 33);
}

static unsigned char* place(int i) { return area + i * kPlaceBytes; }

static void announce(int kind, int phase, unsigned char* at, unsigned char* from, unsigned size, const void* code, int flags) {
  if (silent && changes % 97 == 0) return;
  char name[2048];
  snprintf(name, sizeof name, "life_%0*ld", in_burst ? 2000 : 1, changes);
  const struct ptd_announcement what = {.runtime = runtime, .kind = (uint8_t)kind, .phase = (uint8_t)phase, .flags = (uint16_t)flags,
                                        .address = (uint64_t)(uintptr_t)at, .old_address = (uint64_t)(uintptr_t)from, .size = size,
                                        .code = code, .name = name};
  ptd_announce_code(&what);
}

static void relist(void* user) {
  (void)user;
  for (int i = 0; i < place_count; ++i)
    if (places[i].live) announce(PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_END, place(i), NULL, places[i].size, place(i), PTD_ANNOUNCE_RELISTED);
}

/* Tests of bits of the argument, each with a branch over a number of instructions that differs from one function to the next. */
static unsigned generate(unsigned char* at, unsigned* patch_at) {
  unsigned char* begin = at;
  const unsigned tests = 2 + next_random() % kTests;
  *patch_at = 0;
  for (unsigned i = 0; i < tests; ++i) {
    const unsigned skip = 1 + next_random() % 5;
    const unsigned char test[] = {0x40, 0xf6, 0xc7, (unsigned char)(1u << next_random() % 8), (unsigned char)(next_random() % 2 ? 0x74 : 0x75),
                                  (unsigned char)skip};
    memcpy(at, test, sizeof test); /* test $bit, %dil; je or jne */
    if (i == 0) *patch_at = (unsigned)(at - begin) + 4;
    at += sizeof test;
    memset(at, 0x90, skip);
    at += skip;
  }
  *at++ = 0xc3;
  return (unsigned)(at - begin);
}

/* The code at this place has a new name. */
static void name_it(int i) {
  places[i].life = changes;
  if (perf_map == NULL) return;
  fprintf(perf_map, "%lx %x life_%ld\n", (unsigned long)(uintptr_t)place(i), places[i].size, changes);
  fflush(perf_map);
}

static void run(int i) {
  if (!places[i].live) return;
  if (calls != NULL) ++calls[places[i].life];
  void (*code)(unsigned);
  unsigned char* at = place(i);
  memcpy(&code, &at, sizeof code);
  code(next_random());
}

static void load(int i) {
  unsigned char code[kPlaceBytes];
  places[i].size = generate(code, &places[i].patch_at);
  announce(PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_BEGIN, place(i), NULL, places[i].size, NULL, 0);
  memcpy(place(i), code, places[i].size);
  places[i].live = 1;
  name_it(i);
  announce(PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_END, place(i), NULL, places[i].size, place(i), 0);
}

static void unload(int i) {
  announce(PTD_ANNOUNCE_UNLOAD, PTD_ANNOUNCE_END, place(i), NULL, places[i].size, NULL, 0);
  places[i].live = 0;
}

static void move(int from, int to) {
  announce(PTD_ANNOUNCE_MOVE, PTD_ANNOUNCE_BEGIN, place(to), place(from), places[from].size, NULL, 0);
  memcpy(place(to), place(from), places[from].size);
  places[to] = places[from];
  places[from].live = 0;
  name_it(to);
  announce(PTD_ANNOUNCE_MOVE, PTD_ANNOUNCE_END, place(to), place(from), places[to].size, place(to), 0);
}

static void patch(int i) { /* je becomes jne, or the other way round */
  unsigned char* at = place(i) + places[i].patch_at;
  announce(PTD_ANNOUNCE_PATCH, PTD_ANNOUNCE_BEGIN, at, NULL, 1, at, 0);
  *at ^= 1;
  announce(PTD_ANNOUNCE_PATCH, PTD_ANNOUNCE_END, at, NULL, 1, at, 0);
}

static void fork_now(void) {
  forked = fork() == 0;
}

/* A line for each place: its address and bytes. */
static void print_live(void) {
  for (int i = 0; i < place_count; ++i) {
    if (!places[i].live) continue;
    printf("%lx ", (unsigned long)(uintptr_t)place(i));
    for (unsigned at = 0; at < places[i].size; ++at) printf("%02x", place(i)[at]);
    printf("\n");
  }
  printf("end\n");
  fflush(stdout);
}

int main(int argc, char** argv) {
  const long rounds = argc > 1 ? atol(argv[1]) : 1000;
  const int late = argc > 2 && strcmp(argv[2], "late") == 0;
  const int burst = argc > 2 && strcmp(argv[2], "burst") == 0, outside = argc > 2 && strcmp(argv[2], "outside") == 0;
  const int forks = argc > 2 && strcmp(argv[2], "forks") == 0;
  const int stops = argc > 2 && strcmp(argv[2], "stops") == 0;
  char line[64];
  if (argc > 2 && strcmp(argv[2], "names") == 0) {
    snprintf(line, sizeof line, "/tmp/perf-%d.map", (int)getpid());
    perf_map = fopen(line, "w");
    calls = calloc((size_t)rounds + 1, sizeof *calls);
  }
  silent = argc > 2 && strcmp(argv[2], "silent") == 0;
  if (argc > 3) place_count = atoi(argv[3]);
  area = mmap(NULL, place_count * kPlaceBytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return 1;
  if (late) {
    unsetenv("PTD_ANNOUNCE");
    for (int i = 0; i < place_count; i += 2) load(i);
  }
  runtime = ptd_announce_register("lives", relist, NULL);
  for (int tries = 0; late && !ptd_announce_enabled() && tries < 5000; ++tries) usleep(1000);
  for (changes = 1; changes <= rounds || stops; ++changes) {
    if (stops && changes % rounds == 0) {
      print_live();
      if (fgets(line, sizeof line, stdin) == NULL) return 0;
    }
    const int i = (int)(next_random() % (unsigned)place_count), j = (int)(next_random() % (unsigned)place_count);
    if (!places[i].live) {
      load(i);
    } else if (next_random() % 4 == 0 && !places[j].live) {
      move(i, j);
      run(j);
    } else if (next_random() % 2 == 0) {
      patch(i);
    } else {
      unload(i);
    }
    if (outside) {
      static const unsigned char kRet = 0xc3;
      announce(PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_END, (unsigned char*)0x10000, NULL, 1, &kRet, 0);
    }
    in_burst = burst && changes % 1000 < 500;
    if (in_burst) continue;
    if (forks && !forked && changes % 100 == 0) fork_now();
    run(i);
    run((int)(next_random() % (unsigned)place_count));
    if (forked && changes % 100 == 50) _exit(0);
  }
  while (wait(NULL) > 0) {
  }
  for (long life = 1; calls != NULL && life <= rounds; ++life)
    if (calls[life] != 0) printf("life_%ld %u\n", life, calls[life]);
  return 0;
}
