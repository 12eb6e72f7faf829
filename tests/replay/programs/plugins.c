/* Loads and unloads the library plugin.so three times. */
#include <dlfcn.h>

static int call(void *library) {
  int (*function)(int) = (int (*)(int))dlsym(library, "plugin");
  return function(3);
}

int main(void) {
  int sum = 0;
  for (int i = 0; i < 3; i++) {
    void *library = dlopen("./plugin.so", RTLD_NOW);
    if (!library) return 1;
    sum += call(library);
    dlclose(library);
  }
  return sum != 12;
}
