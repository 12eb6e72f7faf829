// Announces code that is loaded, patched soon afterwards, runs for long, and is loaded again.
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "ptd_announce.h"

static const unsigned char kCode[] = {0x83, 0xc7, 0x10, 0x89, 0xf8, 0xc3};  // add $0x10,%edi; mov %edi,%eax; ret

int main(void) {
  unsigned char *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int (*function)(int) = (int (*)(int))at, sum = 0;
  struct ptd_announcement load = {.runtime = ptd_announce_register("twice", 0, 0), .kind = PTD_ANNOUNCE_LOAD, .phase = PTD_ANNOUNCE_END,
                                  .address = (uint64_t)at, .size = sizeof kCode, .code = at, .name = "generated"};
  memcpy(at, kCode, sizeof kCode);
  ptd_announce_code(&load);
  for (int i = 0; i < 10; ++i) sum += function(i);
  struct ptd_announcement patch = load;
  patch.kind = PTD_ANNOUNCE_PATCH;
  patch.phase = PTD_ANNOUNCE_BEGIN;
  patch.size = 3;
  patch.name = 0;
  ptd_announce_code(&patch);
  memcpy(at, "\x83\xef\x30", 3);  // sub $0x30,%edi
  patch.phase = PTD_ANNOUNCE_END;
  ptd_announce_code(&patch);
  for (int i = 0; i < 20000; ++i) sum += function(i);
  struct ptd_announcement unload = load;
  unload.kind = PTD_ANNOUNCE_UNLOAD;
  ptd_announce_code(&unload);
  memcpy(at, kCode, sizeof kCode);
  ptd_announce_code(&load);
  for (int i = 0; i < 10; ++i) sum += function(i);
  return sum == 1;
}
