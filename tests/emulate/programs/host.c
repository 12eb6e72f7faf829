// Replaces QEMU: loads the plugin, passes it a version and a target, and prints its reply.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct Info {
  const char* target;
  struct {
    int least, current;
  } version;
  int system;
  struct {
    int cpus, most_cpus;
  } size;
};

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  void* plugin = dlopen(argv[1], RTLD_LAZY);
  if (plugin == NULL) return printf("%s\n", dlerror()), 2;
  int (*install)(unsigned long, const struct Info*, int, char**) =
      (int (*)(unsigned long, const struct Info*, int, char**))dlsym(plugin, "qemu_plugin_install");
  const struct Info info = {argv[2], {atoi(argv[3]), atoi(argv[3])}, atoi(argv[4]), {1, 1}};
  printf("%d\n", install(1, &info, 0, NULL));
  return 0;
}
