// Sizes of rings and AUX areas: requested sizes, and limits of the user and the cgroup.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/error.h"

namespace ptd::live {

/// Sizes per cpu or thread. All are powers of two.
struct RingSizes {
  uint32_t target_pages = 256, kernel_pages = 64, trace_pages = 32;
  uint64_t aux_bytes = 4U << 20;
};

/// The limits of this machine and user.
struct RingLimits {
  uint64_t page_bytes = 4096;
  bool unlimited_lock = false;    ///< CAP_IPC_LOCK, or perf_event_paranoid below 0
  uint64_t mlock_kb = 516;        ///< /proc/sys/kernel/perf_event_mlock_kb, for each cpu
  uint64_t memlock_bytes = 0;     ///< RLIMIT_MEMLOCK, on top of that; ~0: no limit
  uint64_t memory_bytes = ~0ULL;  ///< of the machine, or of the cgroup if that is less
  uint32_t cpus = 1;              ///< online
};

/// Reads the limits; `root` is a prefix of /proc and /sys. A missing file leaves the default.
[[nodiscard]] RingLimits read_limits(const std::string& root = "");

/// Requested sizes; 0: default.
struct RingWishes {
  uint64_t data_bytes = 0, aux_bytes = 0;
  uint32_t rings = 1;  ///< sets of rings: cpus, or threads
  bool trace = false;
};

/// Returns the requested sizes, or the largest ones up to the defaults within the limits. Locked memory is counted like in the kernel
/// ([Linux] kernel/events/core.c, perf_mmap()): each mapping with its control page. At most a quarter of the memory goes to rings.
/// Errors: usage if the requested sizes are not possible, with the limit and the command that raises it.
[[nodiscard]] Result<RingSizes> choose_ring_sizes(const RingLimits& limits, const RingWishes& wishes);
/// Returns the bytes that one set of rings locks.
[[nodiscard]] uint64_t locked_bytes(const RingSizes& sizes, uint64_t page_bytes, bool trace);

/// "512K", "4M", "1G", "128" (pages) -> bytes. Errors: usage.
[[nodiscard]] Result<uint64_t> parse_ring_bytes(const std::string& text, uint64_t page_bytes);

}  // namespace ptd::live
