// Value types of all modules: addresses, times, address spaces.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace ptd {

using Bytes = std::span<const std::byte>;

/// A virtual address of code (linear instruction pointer), canonical and sign-extended to 64 bits.
struct Ip {
  uint64_t value = 0;
  friend constexpr auto operator<=>(Ip, Ip) = default;
};
constexpr Ip operator+(Ip ip, uint64_t offset) { return Ip{ip.value + offset}; }
constexpr uint64_t operator-(Ip a, Ip b) { return a.value - b.value; }

/// Returns true for addresses in the upper canonical half, which x86-64 and arm64 kernels use.
constexpr bool is_kernel_half(Ip ip) { return (ip.value >> 63) != 0; }

/// A value of the cpu's time stamp counter, as the trace gives it (ticks).
struct Tsc {
  uint64_t value = 0;
  friend constexpr auto operator<=>(Tsc, Tsc) = default;
};

/// A point on the timeline's clock: perf nanoseconds, or raw ticks where a recording has no conversion.
struct TimeNs {
  uint64_t value = 0;
  friend constexpr auto operator<=>(TimeNs, TimeNs) = default;
};
inline constexpr TimeNs kTimeMin{0};
inline constexpr TimeNs kTimeMax{std::numeric_limits<uint64_t>::max()};

/// A closed interval [first, last] that contains an uncertain time. An exactly known time has first == last. A plain value.
struct Interval {
  TimeNs first = kTimeMin;
  TimeNs last = kTimeMax;
  friend constexpr bool operator==(Interval, Interval) = default;

  [[nodiscard]] constexpr bool contains(TimeNs t) const { return first <= t && t <= last; }
  [[nodiscard]] constexpr bool contains(Interval other) const { return first <= other.first && other.last <= last; }
  [[nodiscard]] constexpr bool overlaps(Interval other) const { return first <= other.last && other.first <= last; }
  [[nodiscard]] constexpr bool empty() const { return last < first; }
};
constexpr Interval intersect(Interval a, Interval b) { return {a.first < b.first ? b.first : a.first, a.last < b.last ? a.last : b.last}; }
constexpr Interval hull(Interval a, Interval b) { return {a.first < b.first ? a.first : b.first, a.last < b.last ? b.last : a.last}; }

/// One address space: the kernel, or one user mm. A process gets a new one at exec; threads share one.
struct SpaceId {
  uint32_t value = 0;
  friend constexpr auto operator<=>(SpaceId, SpaceId) = default;
};
inline constexpr SpaceId kKernelSpace{0};
inline constexpr SpaceId kNoSpace{0xffffffffU};

/// The execution mode, which decides how instruction bytes are decoded: an x86 mode ([SDM] "MODE.Exec Packet") or an Arm instruction set.
enum class ExecMode : uint8_t { unknown, bits16, bits32, bits64, a64, a32, t32 };

}  // namespace ptd
