// A file is mapped privately, executed, rewritten while it is not mapped, and mapped again, in several orders.
// remap FILE: what runs each time is what the file contained at that moment, or what was written to the private copy.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kSize = 4096 };
static const unsigned char kAdd[] = {0x89, 0xf8, 0x83, 0xc0, 0, 0xc3};                                             // return n + K
static const unsigned char kLoop[] = {0x31, 0xc0, 0x85, 0xff, 0x74, 6, 0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0xc3};  // count to n
static unsigned char* code;
static long sum;
static int file;

static void put(unsigned char* to, int kind) {
  memset(to, 0x90, sizeof kLoop);
  memcpy(to, kind % 2 != 0 ? kAdd : kLoop, kind % 2 != 0 ? sizeof kAdd : sizeof kLoop);
  if (kind % 2 != 0) to[4] = (unsigned char)kind;
}
static void write_file(int kind) {
  unsigned char page[kSize];
  memset(page, 0x90, sizeof page);
  put(page, kind);
  if (pwrite(file, page, sizeof page, 0) != kSize) exit(1);
}
static void map(int prot) {
  unsigned char* at = mmap(code, kSize, prot, MAP_PRIVATE | (code != NULL ? MAP_FIXED : 0), file, 0);
  if (at == MAP_FAILED) exit(1);
  code = at;
}
static void run(void) {
  for (int n = 0; n < 4; ++n) sum += ((int (*)(int))code)(n);
}
static void protect(int prot) {
  if (mprotect(code, kSize, prot) != 0) exit(1);
}

int main(int argc, char** argv) {
  const int kAll = PROT_READ | PROT_WRITE | PROT_EXEC, kExec = PROT_READ | PROT_EXEC;
  if (argc < 2) return 2;
  file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0755);
  if (file < 0) return 1;
  // Each byte: r run, u unmap, m map, x map without PROT_WRITE, p/w protect without/with it, 0-9 write to memory, a-f to the file.
  const char* orders[] = {"bmrumrudmr", "cxrubxrudxr", "am13rwp3rumr", "bmr2rprumrucmr", "bmr2rpwr4rprudmrwp", "amrbmrcmrdmr"};
  for (unsigned i = 0; i < sizeof orders / sizeof *orders; ++i) {
    for (const char* c = orders[i]; *c != 0; ++c) {
      if (*c == 'r') run();
      if (*c == 'u') munmap(code, kSize);
      if (*c == 'm') map(kAll);
      if (*c == 'x') map(kExec);
      if (*c == 'p') protect(kExec);
      if (*c == 'w') protect(kAll);
      if (*c >= '0' && *c <= '9') protect(kAll), put(code, *c - '0'), run();
      if (*c >= 'a' && *c <= 'f') write_file(*c - 'a');
    }
  }
  // Files that are renamed onto the path; each is mapped once.
  char other[4096];
  snprintf(other, sizeof other, "%s.new", argv[1]);
  for (int kind = 1; kind <= 6; ++kind) {
    munmap(code, kSize);
    close(file);
    file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0755);
    write_file(kind);
    if (rename(other, argv[1]) != 0) return 1;
    map(kExec);
    run();
  }
  printf("%ld\n", sum);
  return 0;
}
