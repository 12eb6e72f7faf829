// Announces what it does to four places of 64 bytes, ROUNDS times in turn: load, run, patch, run, unload. One more place holds code from before.
// usage: four_slots ROUNDS [wait]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ptd_announce.h"

enum { kSlots = 4, kSlotBytes = 64, kCodeBytes = 6 };

static unsigned char* slots; /* the first is the early code */
static uint32_t runtime;

static unsigned char* slot(int index) { return slots + index * kSlotBytes; }

/* mov $value, %eax; ret */
static void write_code(unsigned char* at, uint32_t value) {
  at[0] = 0xb8;
  memcpy(at + 1, &value, sizeof value);
  at[5] = 0xc3;
}

static void announce(uint8_t kind, uint8_t phase, uint16_t flags, const unsigned char* at, const char* name) {
  const struct ptd_announcement what = {.runtime = runtime, .kind = kind, .phase = phase, .flags = flags, .address = (uintptr_t)at,
                                        .size = kCodeBytes, .code = kind == PTD_ANNOUNCE_UNLOAD ? NULL : at, .name = name};
  ptd_announce_code(&what);
}

static void relist(void* user) {
  (void)user;
  announce(PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_END, PTD_ANNOUNCE_RELISTED, slot(0), "early");
}

static uint32_t run(const unsigned char* at) {
  uint32_t (*code)(void);
  memcpy(&code, &at, sizeof code);
  return code();
}

int main(int argc, char** argv) {
  const uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
  slots = mmap(NULL, (kSlots + 1) * kSlotBytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slots == MAP_FAILED) return 1;
  write_code(slot(0), 7);
  runtime = ptd_announce_register("four slots", relist, NULL);
  for (int i = 0; argc > 2 && i < 600 && !ptd_announce_enabled(); ++i) usleep(50000);
  ptd_announce_poll(runtime);
  if (argc > 2) usleep(2000000); /* perf opens the event before it records */
  for (uint32_t i = 0; i < rounds; ++i) {
    unsigned char* at = slot(1 + (int)(i % kSlots));
    char name[32];
    snprintf(name, sizeof name, "f%u", i);
    write_code(at, 1000000 + i);
    announce(PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_END, 0, at, name);
    if (run(at) != 1000000 + i) return 2;
    announce(PTD_ANNOUNCE_PATCH, PTD_ANNOUNCE_BEGIN, 0, at, name);
    write_code(at, 2000000 + i);
    announce(PTD_ANNOUNCE_PATCH, PTD_ANNOUNCE_END, 0, at, name);
    if (run(at) != 2000000 + i) return 2;
    announce(PTD_ANNOUNCE_UNLOAD, PTD_ANNOUNCE_END, 0, at, name);
  }
  printf("slots at %p\n", (void*)slots);
  return 0;
}
