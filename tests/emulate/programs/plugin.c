// A library that calls back: see plugin_host.c.
int fold(const int *values, int count, int (*step)(int, int)) {
  int result = 1;
  for (int i = 0; i < count; ++i) {
    if (values[i] % 3 == 0) result = step(result, values[i]);
    else if (values[i] % 3 == 1) result ^= values[i] << (i % 7);
  }
  return result;
}
