/* Writes functions of different sizes to one place, announces each, and calls it. Each instruction has a number of its own. */
#include <ptd_announce.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
  unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) return 1;
  const uint32_t runtime = ptd_announce_register("sizes", 0, 0);
  for (int round = 0; round < 100; round++) {
    const int count = 2 + round * 7 % 20;
    const unsigned size = 5 * count + 1;
    struct ptd_announcement what = {.runtime = runtime, .kind = PTD_ANNOUNCE_LOAD, .phase = PTD_ANNOUNCE_BEGIN, .address = (uint64_t)code, .size = size};
    ptd_announce_code(&what);
    for (int i = 0; i < count; i++) {
      const int number = 100 * round + i;
      code[5 * i] = i == 0 ? 0xb8 : 0x05; /* mov eax, number; add eax, number */
      memcpy(code + 5 * i + 1, &number, sizeof number);
    }
    code[size - 1] = 0xc3;
    what.phase = PTD_ANNOUNCE_END;
    what.code = code;
    ptd_announce_code(&what);
    ((void (*)(void))code)();
  }
  return 0;
}
