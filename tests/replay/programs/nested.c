/* A static program whose calls are nested to different depths, with much trace: indirect calls. */
static int leaf(int x) { return x ^ (x >> 3); }
static int outer(int x);
static int (*volatile const kFunctions[2])(int) = {leaf, outer};

static int outer(int x) {
  int sum = 0;
  for (int i = x & 3; i > 0; --i) sum += kFunctions[(x >> i) & 1](x >> 2);
  return sum;
}

int main(void) {
  volatile int sum = 0;
  for (int i = 0; i < 6000; ++i) sum += outer(i * 40503);
  return 0;
}
