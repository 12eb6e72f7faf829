// Sizes of rings: see ring_sizes.h.
#include "capture/live/events/ring_sizes.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <sstream>

#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/start_scan.h"

namespace ptd::live {
namespace {

constexpr uint64_t kKilo = 1024;
constexpr uint32_t kSmallestPages = 8;
constexpr uint64_t kSmallestAuxPages = 4;

uint64_t number_or(const std::string& text, uint64_t fallback) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return fallback;
  return std::strtoull(text.c_str(), nullptr, 10);
}

/// The tightest memory limit of the cgroups that this process is in, up to the root ([Linux] Documentation/admin-guide/cgroup-v2.rst
/// "memory.max"; cgroup-v1/memory.rst "memory.limit_in_bytes").
uint64_t cgroup_limit(const std::string& root) {
  uint64_t least = ~uint64_t{0};
  const Result<std::string> text = read_text_file(root + "/proc/self/cgroup");
  if (!text) return least;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const std::string base = root + (version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      least = std::min(least, number_or(first_line(base + path + (version2 ? "/memory.max" : "/memory.limit_in_bytes")), ~uint64_t{0}));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

uint64_t machine_memory(const std::string& root) {
  const Result<std::string> text = read_text_file(root + "/proc/meminfo");
  const size_t at = text ? text->find("MemTotal:") : std::string::npos;
  if (at == std::string::npos) return ~uint64_t{0};
  const size_t digits = text->find_first_of("0123456789", at);
  return digits == std::string::npos ? ~uint64_t{0} : number_or(text->substr(digits), 0) * kKilo;
}

/// CAP_IPC_LOCK (14) of the effective set.
bool may_lock(const std::string& root) {
  constexpr unsigned kCapIpcLock = 14;
  const Result<std::string> text = read_text_file(root + "/proc/self/status");
  const size_t at = text ? text->find("CapEff:\t") : std::string::npos;
  if (at == std::string::npos) return false;
  return (std::strtoull(text->c_str() + at + 8, nullptr, 16) >> kCapIpcLock & 1) != 0;
}

/// What the limits leave for one set of rings.
uint64_t room_for_one(const RingLimits& limits, uint32_t rings) {
  const uint64_t by_memory = limits.memory_bytes / 4 / rings;
  if (limits.unlimited_lock || limits.memlock_bytes == ~uint64_t{0}) return by_memory;
  return std::min(by_memory, (limits.mlock_kb * kKilo * limits.cpus + limits.memlock_bytes) / rings);
}

std::string kib(uint64_t bytes) { return std::to_string(bytes / kKilo) + " KiB"; }

}  // namespace

RingLimits read_limits(const std::string& root) {
  RingLimits limits;
  limits.page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  limits.mlock_kb = number_or(first_line(root + "/proc/sys/kernel/perf_event_mlock_kb"), limits.mlock_kb);
  limits.unlimited_lock = may_lock(root) || first_line(root + "/proc/sys/kernel/perf_event_paranoid").starts_with("-");
  rlimit lock{};
  if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0) limits.memlock_bytes = lock.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : lock.rlim_cur;
  limits.memory_bytes = std::min(machine_memory(root), cgroup_limit(root));
  const std::vector<int32_t> cpus = parse_cpu_list(first_line(root + "/sys/devices/system/cpu/online"));
  limits.cpus = std::max<uint32_t>(1, static_cast<uint32_t>(cpus.size()));
  return limits;
}

uint64_t locked_bytes(const RingSizes& sizes, uint64_t page_bytes, bool trace) {
  const uint64_t sideband = (uint64_t{sizes.target_pages} + 1 + sizes.kernel_pages + 1) * page_bytes;
  return trace ? sideband + (uint64_t{sizes.trace_pages} + 1) * page_bytes + sizes.aux_bytes : sideband;
}

Result<RingSizes> choose_ring_sizes(const RingLimits& limits, const RingWishes& wishes) {
  RingSizes sizes;
  const uint64_t room = room_for_one(limits, std::max<uint32_t>(1, wishes.rings));
  if (wishes.data_bytes != 0) {
    sizes.target_pages = static_cast<uint32_t>(std::bit_ceil(std::max<uint64_t>(1, wishes.data_bytes / limits.page_bytes)));
  }
  if (wishes.aux_bytes != 0) sizes.aux_bytes = std::bit_ceil(std::max(limits.page_bytes, wishes.aux_bytes));
  const auto fits = [&] { return locked_bytes(sizes, limits.page_bytes, wishes.trace) <= room; };
  while (!fits()) {  // the largest ring whose size the user did not set shrinks first
    const bool aux_gives = wishes.trace && wishes.aux_bytes == 0 && sizes.aux_bytes > kSmallestAuxPages * limits.page_bytes;
    const bool data_gives = wishes.data_bytes == 0 && sizes.target_pages > kSmallestPages;
    if (aux_gives && (!data_gives || sizes.aux_bytes >= sizes.target_pages * limits.page_bytes)) {
      sizes.aux_bytes /= 2;
    } else if (data_gives && sizes.target_pages >= sizes.kernel_pages) {
      sizes.target_pages /= 2;
    } else if (sizes.kernel_pages > kSmallestPages) {
      sizes.kernel_pages /= 2;
    } else if (sizes.trace_pages > kSmallestPages) {
      sizes.trace_pages /= 2;
    } else if (data_gives) {
      sizes.target_pages /= 2;
    } else {
      return Error{ErrorCode::bad_option,
                   "rings of " + kib(locked_bytes(sizes, limits.page_bytes, wishes.trace)) + " a cpu are more than the " + kib(room) +
                       " that this user may lock: choose smaller ones with -m, or raise the limit with ulimit -l, or "
                       "sysctl kernel.perf_event_mlock_kb",
                   0};
    }
  }
  return sizes;
}

Result<uint64_t> parse_ring_bytes(const std::string& text, uint64_t page_bytes) {
  const Error bad{ErrorCode::bad_option, "-m: '" + text + "' is not a size: give a number of pages, or of bytes with the suffix K, M or G",
                  0};
  char* end = nullptr;
  if (text.empty() || text[0] < '0' || text[0] > '9') return bad;
  const uint64_t number = std::strtoull(text.c_str(), &end, 10);
  constexpr uint64_t kMost = 1ULL << 40;
  uint64_t unit = page_bytes;
  const std::string suffix = end;
  if (suffix == "K" || suffix == "k") unit = kKilo;
  if (suffix == "M" || suffix == "m") unit = kKilo * kKilo;
  if (suffix == "G" || suffix == "g") unit = kKilo * kKilo * kKilo;
  if (suffix == "B" || suffix == "b") unit = 1;
  if (number == 0 || number > kMost / unit || (unit == page_bytes && !suffix.empty())) return bad;
  return number * unit;
}

}  // namespace ptd::live
