// Sizes of rings and AUX areas: requested sizes, and limits of the user and the cgroup.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/error.h"

namespace ptd::live {

/// Of each cpu or thread. All are powers of two.
struct RingSizes {
  uint32_t target_pages = 256, kernel_pages = 64, trace_pages = 32;
  uint64_t aux_bytes = 4U << 20;
};

/// What this machine and this user allow.
struct RingLimits {
  uint64_t page_bytes = 4096;
  bool unlimited_lock = false;    ///< CAP_IPC_LOCK, or perf_event_paranoid below 0
  uint64_t mlock_kb = 516;        ///< /proc/sys/kernel/perf_event_mlock_kb, for each cpu
  uint64_t memlock_bytes = 0;     ///< RLIMIT_MEMLOCK, on top of that; ~0: no limit
  uint64_t memory_bytes = ~0ULL;  ///< of the machine, or of the cgroup if that is less
  uint32_t cpus = 1;              ///< online
};

/// Reads the limits; `root` stands before /proc and /sys. Files that are absent leave the defaults.
[[nodiscard]] RingLimits read_limits(const std::string& root = "");

/// Sizes asked for: 0 where it is left to the program.
struct RingWishes {
  uint64_t data_bytes = 0, aux_bytes = 0;
  uint32_t rings = 1;  ///< sets of rings: cpus, or threads
  bool trace = false;
};

/// The largest sizes up to the usual ones that the limits hold, or those asked for. Locked memory is counted as the kernel does
/// ([Linux] kernel/events/core.c, perf_mmap()): each mapping with its control page. At most a quarter of the memory goes to rings.
/// Errors: usage if what was asked for is not possible, with the limit and the command that lifts it.
[[nodiscard]] Result<RingSizes> choose_ring_sizes(const RingLimits& limits, const RingWishes& wishes);
/// Bytes that one set of rings locks.
[[nodiscard]] uint64_t locked_bytes(const RingSizes& sizes, uint64_t page_bytes, bool trace);

/// "512K", "4M", "1G", "128" (pages) -> bytes. Errors: usage.
[[nodiscard]] Result<uint64_t> parse_ring_bytes(const std::string& text, uint64_t page_bytes);

}  // namespace ptd::live
