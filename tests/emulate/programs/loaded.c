// Loads plugin.so 20 times, each time at another address, calls its function fold() once, and unloads it. All of it takes about a millisecond.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>

static int add(int a, int b) { return a + b; }

int main(void) {
  const int values[] = {3, 4, 6};
  for (int i = 0; i < 20; ++i) {
    void* library = dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 1;
    int (*fold)(const int*, int, int (*)(int, int)) = (int (*)(const int*, int, int (*)(int, int)))dlsym(library, "fold");
    if (fold(values, 3, add) == 0) return 2;
    dlclose(library);
    // Code of no file at the library's address and past it.
    if (mmap(NULL, (size_t)(i + 1) << 14, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 3;
  }
  return 0;
}
