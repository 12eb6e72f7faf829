// Executes code that no file has afterwards: of a deleted file, of a memfd, and of memory that is written to while it runs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const unsigned char kReturn1[] = {0xb8, 1, 0, 0, 0, 0xc3};  // mov $1,%eax; ret

static void *map_code(int fd) {
  unsigned char page[4096] = {0};
  memcpy(page, kReturn1, sizeof kReturn1);
  if (write(fd, page, sizeof page) != sizeof page) exit(1);
  return mmap(NULL, sizeof page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
}

int main(int argc, char **argv) {
  const int deleted = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0700);
  (void)argc;
  unlink(argv[1]);
  unsigned char *places[] = {map_code(deleted), map_code(memfd_create("code", 0)),
                             mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
  memcpy(places[2], kReturn1, sizeof kReturn1);
  usleep(700000);
  int sum = 0;
  for (int i = 0; i < 3; ++i) sum += ((int (*)(void))places[i])();
  places[2][1] = 2;  // now it returns 2
  usleep(700000);
  sum += ((int (*)(void))places[2])();
  printf("%d %d %p %p %p\n", getpid(), sum, (void *)places[0], (void *)places[1], (void *)places[2]);
  return 0;
}
