// Uses of the C library: callbacks from qsort, allocation, formatting, string functions chosen at run time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int by_length(const void* a, const void* b) {
  const char *x = *(char* const*)a, *y = *(char* const*)b;
  return strlen(x) != strlen(y) ? (int)strlen(x) - (int)strlen(y) : strcmp(x, y);
}
static char* word(unsigned seed) {
  char text[64];
  snprintf(text, sizeof text, "%u-%x-%s", seed * 2654435761u, seed, seed % 3 == 0 ? "three" : "other");
  return strdup(text);
}
int main(void) {
  char* words[300];
  for (unsigned i = 0; i < 300; ++i) words[i] = word(i);
  qsort(words, 300, sizeof *words, by_length);
  unsigned sum = 0;
  for (unsigned i = 0; i < 300; ++i) sum = sum * 31 + (unsigned)strtoul(words[i], NULL, 10), free(words[i]);
  printf("%u\n", sum);
  return 0;
}
