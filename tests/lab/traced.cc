// traced PROGRAM...: all cpus of the lab's machine are traced while the program runs. Static: it runs in the guest.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "capture/emulate/shared/system_control.h"

namespace {

uint64_t descriptor_table() {
  struct __attribute__((packed)) {
    uint16_t limit = 0;
    uint64_t base = 0;
  } table;
  asm volatile("sidt %0" : "=m"(table));
  return table.base;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  ptd::emulate::tell_tracer_start(descriptor_table());
  const pid_t child = fork();
  if (child == 0) {
    (void)execvp(argv[1], argv + 1);
    _exit(127);
  }
  int status = 1;
  (void)waitpid(child, &status, 0);
  ptd::emulate::tell_tracer_stop();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
