/* The program that first.c executes. Its functions lie where those of first.c are. */
__attribute__((noinline)) int after(int x) { return x ^ (x >> 3); }

int main(void) {
  volatile int sum = 0;
  for (int i = 0; i < 7; ++i) sum += after(i);
  return 0;
}
