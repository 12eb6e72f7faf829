/* Functions of a module, as its object file has them. */
volatile int module_state;

static inline int scale(int value) { return value * 3 + module_state; }

__attribute__((noinline)) int module_add(int value) { return scale(value) + 1; }
__attribute__((noinline)) int module_take(int value) { return scale(value) - 1; }
__attribute__((noinline)) int module_shift(int value) { return scale(value) << 2; }
__attribute__((noinline)) int module_mask(int value) { return scale(value) & 0xff; }
__attribute__((noinline)) int module_loop(int value) {
  int sum = 0;
  for (int i = 0; i < value; ++i) sum += module_add(i) ^ module_mask(i);
  return sum;
}
__attribute__((noinline)) int module_pick(int value) {
  switch (value) {
    case 1: return module_add(1);
    case 2: return module_take(2);
    case 3: return module_shift(3);
    case 7: return module_loop(7);
    default: return module_mask(value);
  }
}
__attribute__((noinline)) int module_read(const int *values) { return scale(values[0]) + values[1]; }
__attribute__((noinline)) void module_write(int *values) { values[0] = module_state; }
__attribute__((noinline, section(".init.text"))) int module_init(void) { return module_pick(module_state); }
__attribute__((noinline, section(".exit.text"))) void module_exit(void) { module_write((int *)&module_state); }
