/* A server in two versions: with -DREGRESSED, checksum() takes four times as many steps, but only for requests of kind b, and kind c is new. */
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned sink;

__attribute__((noinline)) unsigned checksum(const unsigned char *bytes, int rounds) {
  unsigned sum = 0;
  for (int i = 0; i < rounds; ++i) sum = sum * 31 + bytes[i & 63];
  return sum;
}
__attribute__((noinline)) void reply(unsigned sum) {
  for (int i = 0; i < 50; ++i) sink += sum;
}
__attribute__((noinline)) void handle_a(const unsigned char *bytes) { reply(checksum(bytes, 100)); }
__attribute__((noinline)) void handle_b(const unsigned char *bytes) {
#ifdef REGRESSED
  reply(checksum(bytes, 400));
#else
  reply(checksum(bytes, 100));
#endif
}
#ifdef REGRESSED
__attribute__((noinline)) void handle_c(void) { sink += 1; }
#else
__attribute__((noinline)) void handle_old(void) { sink += 2; }
#endif
int main(int count, char **words) {
  unsigned char bytes[64] = {1, 2, 3};
  const int requests = count > 1 ? atoi(words[1]) : 100;
  for (int i = 0; i < requests; ++i) {
    handle_a(bytes);
    handle_b(bytes);
  }
#ifdef REGRESSED
  handle_c();
#else
  handle_old();
#endif
  return sink == 0;
}
