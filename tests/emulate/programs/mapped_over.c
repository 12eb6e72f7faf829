// Two code files alternate at one address by mmap(MAP_FIXED). Arguments: "same" (files whose code takes the same way) or "other";
// "write" (writes the files) or "run".
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kRounds = 1000, kPage = 4096, kInt3 = 0xcc };
typedef int (*Code)(int);

__attribute__((noinline)) int call(Code code, int value) { return code(value); }

int main(int count, char** arguments) {
  static const unsigned char kShort[] = {0x8d, 0x47, 50, 0xc3};                                      // lea 50(%rdi), %eax; ret
  static const unsigned char kLong[] = {0x90, 0x85, 0xff, 0x74, 2, 0x90, 0x90, 0x8d, 0x47, 70, 0xc3};  // skips two nops if 0
  static const unsigned char kAlike[] = {0xf8, 0x85, 0xff, 0x74, 2, 0x90, 0x90, 0x8d, 0x47, 70, 0xc3};  // clc for the first nop
  const int same = count > 2 && strcmp(arguments[1], "same") == 0, writes = count > 2 && strcmp(arguments[2], "write") == 0;
  int files[2];
  for (int i = 0; i < 2; ++i) {
    char name[32];
    snprintf(name, sizeof name, "code%d.bin", i);
    files[i] = open(name, writes ? O_CREAT | O_RDWR | O_TRUNC : O_RDONLY, 0755);
    if (files[i] < 0) return 1;
    if (!writes) continue;
    unsigned char page[kPage];
    memset(page, kInt3, sizeof page);
    if (i == 0) memcpy(page, kLong, sizeof kLong);
    if (i == 1) memcpy(page, same ? kAlike : kShort, same ? sizeof kAlike : sizeof kShort);
    if (write(files[i], page, sizeof page) != sizeof page) return 1;
  }
  if (writes) return 0;
  long sum = 0;
  void* at = mmap(NULL, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, files[0], 0);
  for (int i = 0; i < kRounds; ++i) {
    sum += call((Code)at, i % 3);
    at = mmap(at, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, files[(i + 1) & 1], 0);
  }
  printf("%ld\n", sum);
  return 0;
}
