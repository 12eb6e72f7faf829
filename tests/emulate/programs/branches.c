/* A long loop of conditional branches, without calls. */
int main(void) {
  volatile unsigned sum = 0;
  unsigned random = 1;
  for (int i = 0; i < 500000; i++) {
    random = random * 1103515245u + 12345;
    if (random & 0x10000) sum++;
    if (random & 0x40000) sum += 2;
    if (random & 0x80000) sum += 3;
  }
  return 0;
}
