// Prints the least time of a load of 4 KiB on the channel that is on: channel_cost NAME. For user_events it waits until somebody listens.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ptd_announce.h"

enum { kRounds = 30, kLoads = 50 };

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char** argv) {
  static unsigned char code[4096];
  const uint32_t runtime = ptd_announce_register("cost", NULL, NULL);
  struct ptd_announcement what = {.runtime = runtime, .kind = PTD_ANNOUNCE_LOAD, .phase = PTD_ANNOUNCE_END, .size = sizeof code, .code = code, .name = "f"};
  uint64_t least = UINT64_MAX;
  if (argc != 2) return 2;
  for (int i = 0; strcmp(argv[1], "user_events") == 0 && i < 100 && !ptd_announce_enabled(); ++i) usleep(50000);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t begin = now_ns();
    for (int i = 0; i < kLoads; ++i) {
      what.address = (uint64_t)(i + 1) << 12;
      ptd_announce_code(&what);
    }
    const uint64_t took = (now_ns() - begin) / kLoads;
    if (took < least) least = took;
    ptd_announce_page.header.tail = ptd_announce_page.header.head; /* as a reader does */
    usleep(20000);
  }
  printf("cost %s %lu\n", argv[1], (unsigned long)least);
  return 0;
}
