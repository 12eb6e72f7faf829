// Helpers of the program in the emulated machine: see guest_files.h.
#include "capture/emulate/guest/guest_files.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "capture/live/kernel/kernel_memory.h"

namespace ptd::emulate::guest {

void say(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  std::printf("ptdecode-guest: %s\n", line);
  (void)std::fflush(stdout);
}

bool write_file(const std::string& path, const std::string& text, bool append) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | (append ? O_APPEND : O_TRUNC));
  size_t done = 0;
  ssize_t got = 0;
  while (fd >= 0 && done < text.size() && (got = write(fd, text.data() + done, text.size() - done)) > 0) done += static_cast<size_t>(got);
  const int number = errno;
  if (fd >= 0) close(fd);
  if (done == text.size()) return true;
  static std::mutex lock;
  static std::set<std::string> said;
  const std::lock_guard hold(lock);
  if (said.insert(path + text).second) say("%s <- %s: %s", path.c_str(), text.c_str(), std::strerror(number));
  return false;
}

std::string read_file(const std::string& path) {
  const Result<std::string> text = live::read_text_file(path);
  return text ? *text : std::string();
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}

void sleep_ms(uint32_t ms) {
  const timespec pause{ms / 1000, static_cast<long>(ms % 1000) * 1000000};
  (void)nanosleep(&pause, nullptr);
}

bool load_module(const std::string& path) {
  constexpr int kCompressed = 4;  // MODULE_INIT_COMPRESSED_FILE of <linux/module.h>, Linux 5.17
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool loaded = fd >= 0 && (syscall(SYS_finit_module, fd, "", path.ends_with(".ko") ? 0 : kCompressed) == 0 || errno == EEXIST);
  if (!loaded) say("module %s: %s", path.c_str(), std::strerror(errno));
  if (fd >= 0) close(fd);
  return loaded;
}

bool unload_module(const std::string& name) {
  const bool gone = syscall(SYS_delete_module, name.c_str(), O_NONBLOCK) == 0;
  if (!gone) say("unload %s: %s", name.c_str(), std::strerror(errno));
  return gone;
}

bool mount_at(const char* source, const std::string& target, const char* type, unsigned long flags, const char* options) {
  if (mount(source, target.c_str(), type, flags, options) == 0) return true;
  say("mount %s at %s: %s", type == nullptr ? source : type, target.c_str(), std::strerror(errno));
  return false;
}

void make_folder(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) (void)mkdir(path.substr(0, at).c_str(), 0755);
  (void)mkdir(path.c_str(), 0755);
}

}  // namespace ptd::emulate::guest
