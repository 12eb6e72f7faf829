// Loads ./reload.so, calls it, replaces it by ./second.so (argument "rename" or "write") and does the same again. Compiled with -DLIBRARY=N it is
// that library.
#ifdef LIBRARY
int function(int n) { return n * LIBRARY; }
#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int load(void) {
  void* library = dlopen("./reload.so", RTLD_NOW);
  if (library == NULL) return -1;
  const int result = ((int (*)(int))dlsym(library, "function"))(7);
  dlclose(library);
  return result;
}

int main(int argc, char** argv) {
  const int first = load();
  system(argc > 1 && strcmp(argv[1], "write") == 0 ? "cat second.so > reload.so" : "cp second.so new.so; mv new.so reload.so");
  printf("%d %d\n", first, load());
  return 0;
}
#endif
