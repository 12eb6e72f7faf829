// The machine's file systems: see guest_mounts.h.
#include "capture/emulate/guest/guest_mounts.h"

#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "capture/emulate/guest/guest_files.h"

namespace ptd::emulate::guest {
namespace {

namespace fs = std::filesystem;

// Loose caching: the host's files are taken not to change while the machine runs.
constexpr const char* kHostOptions = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";
constexpr const char* kWorkOptions = "trans=virtio,version=9p2000.L,msize=512000";

bool mount_root() {
  make_folder("/host");
  make_folder("/ram");
  make_folder("/root");
  if (!mount_at("host", "/host", "9p", MS_RDONLY, kHostOptions) || !mount_at("tmpfs", "/ram", "tmpfs")) return false;
  make_folder("/ram/upper");
  make_folder("/ram/work");
  if (mount_at("overlay", "/root", "overlay", 0, "lowerdir=/host,upperdir=/ram/upper,workdir=/ram/work")) {
    const int upper = open("/ram/upper", O_PATH | O_DIRECTORY);
    (void)dup2(upper, kUpperFd);
    close(upper);
    return true;
  }
  return mount_at("/host", "/root", nullptr, MS_BIND);
}

}  // namespace

void prepare_devices() {
  for (const char* folder : {"/proc", "/sys", "/dev"}) make_folder(folder);
  mount_at("proc", "/proc", "proc");
  mount_at("sysfs", "/sys", "sysfs");
  mount_at("devtmpfs", "/dev", "devtmpfs");
  const int console = open("/dev/console", O_RDWR);
  for (int fd = 0; fd < 3 && console >= 0; ++fd) (void)dup2(console, fd);
  std::vector<std::string> modules;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/modules", error)) modules.push_back(entry.path().string());
  std::sort(modules.begin(), modules.end());
  for (const std::string& module : modules) load_module(module);
}

bool enter_host_root(const GuestConfig& config) {
  if (!mount_root()) return false;
  for (const char* name : {"/proc", "/sys", "/dev"}) mount_at(name, std::string("/root") + name, nullptr, MS_MOVE);
  if (chdir("/root") != 0 || !mount_at(".", "/", nullptr, MS_MOVE) || chroot(".") != 0 || chdir("/") != 0) return false;
  make_folder(config.work);
  if (!mount_at("work", config.work, "9p", 0, kWorkOptions)) return false;
  if (!config.modules.empty()) {
    make_folder("/lib/modules/" + config.modules);
    mount_at("modules", "/lib/modules/" + config.modules, "9p", MS_RDONLY, kHostOptions);
  }
  for (const char* folder : {"/dev/pts", "/dev/shm", "/dev/ptdecode"}) make_folder(folder);
  mount_at("devpts", "/dev/pts", "devpts", 0, "ptmxmode=0666,mode=0620,gid=5");
  mount_at("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
  mount_at("tmpfs", "/dev/ptdecode", "tmpfs", 0, "mode=0700");
  mount_at("tracefs", "/sys/kernel/tracing", "tracefs");
  mount_at("debugfs", "/sys/kernel/debug", "debugfs");
  mount_at("bpf", "/sys/fs/bpf", "bpf");
  mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2");
  (void)symlink("/proc/self/fd", "/dev/fd");
  (void)symlink("/proc/self/fd/0", "/dev/stdin");
  (void)symlink("/proc/self/fd/1", "/dev/stdout");
  (void)symlink("/proc/self/fd/2", "/dev/stderr");
  return true;
}

void start_loopback() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  (void)ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
}

std::string list_changed_files() {
  const std::string root = "/proc/self/fd/" + std::to_string(kUpperFd) + "/";
  std::string lines;
  std::error_code error;
  for (fs::recursive_directory_iterator at(root, fs::directory_options::skip_permission_denied, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) lines += "/" + at->path().string().substr(root.size()) + "\n";
  }
  return lines;
}

}  // namespace ptd::emulate::guest
