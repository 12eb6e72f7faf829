// FunctionProfile: calls, own and total time of each function, with the distribution of its calls' durations.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ptdecode/call_tree.h"
#include "ptdecode/export.h"

namespace ptd {

/// A distribution of durations: exact up to kExact values, then in classes of less than 1 % width. Not thread-safe; quantile() sorts.
class PTD_API DurationCounts {
 public:
  void add(uint64_t ns) {
    ++count_;
    if (ns >= max_) [[unlikely]]
      add_max(ns, 1);
    if (const size_t index = class_of(ns); index < classes_.size()) [[likely]] {
      ++classes_[index];
    } else {
      add_first(ns);
    }
  }
  /// Adds all values of `other`.
  void add(const DurationCounts& other);
  /// Removes the values of `other`, which must have been added. Returns false if the result is less exact than if they had never been
  /// added.
  [[nodiscard]] bool subtract(const DurationCounts& other);
  /// Calls use(class, count) for each class with values; while is_exact(), calls use(value, 1) for each value.
  template <typename Use>
  void each(const Use& use) const {
    for (const uint64_t ns : exact_) use(ns, uint64_t{1});
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i] != 0) use(uint64_t{i}, classes_[i]);
    }
  }
  /// Returns whether each value is stored, rather than classes of values.
  [[nodiscard]] bool is_exact() const { return classes_.empty(); }
  /// Adds `count` values of a class. For each distribution, also call add_max() with its largest value.
  void add_class(uint64_t index, uint64_t count);
  /// Sets the largest value, if it is larger than max(), and how many values are equal to it.
  void add_max(uint64_t max, uint64_t max_count);
  static constexpr uint64_t kMostClass = (uint64_t{58} << 7) - 1;  ///< the last class
  /// Returns how many values are max().
  [[nodiscard]] uint64_t max_count() const { return max_count_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] uint64_t max() const { return max_; }
  /// Returns the smallest duration that at least `share` (0..1] of all values do not exceed; 0 if there are none.
  [[nodiscard]] uint64_t quantile(double share) const;

 private:
  static constexpr size_t kExact = 1024;
  static constexpr unsigned kClassBits = 7;  ///< 128 classes a doubling: each less than 0.8 % wide
  static size_t class_of(uint64_t ns) {
    if (ns < (1U << kClassBits)) return ns;
    const auto shift = static_cast<unsigned>(std::bit_width(ns)) - kClassBits - 1;
    return (size_t{shift} << kClassBits) + (ns >> shift);
  }
  static uint64_t end_of(size_t index);
  void add_first(uint64_t ns);
  void classify(uint64_t ns);
  void classify_all();
  mutable std::vector<uint64_t> exact_;
  std::vector<uint64_t> classes_;
  uint64_t count_ = 0, max_ = 0, max_count_ = 0;
};

/// What counts of a call that ended: the members of its CallStep of kind leave.
struct EndedCall {
  uint8_t flags = 0;
  uint64_t total_ns = 0, off_cpu_ns = 0, untraced_ns = 0, lost_ns = 0, self_ns = 0;
  uint64_t instructions = 0, self_instructions = 0, cycles = 0, self_cycles = 0;
};

struct FunctionTotals {
  uint64_t calls = 0;                                     ///< calls whose start was seen
  uint64_t no_start = 0;                                  ///< calls whose start was not seen; not in `calls`
  uint64_t no_end = 0;                                    ///< of `calls`, those whose end was not seen
  uint64_t estimated = 0;                                 ///< of all_calls(), those whose times are estimates: kCallEstimated
  uint64_t undated = 0;                                   ///< of all_calls(), those without times: kCallUndated
  uint64_t self_ns = 0, total_ns = 0;                     ///< total: including callees, off-cpu and untraced time; recursion counts once
  uint64_t off_cpu_ns = 0, untraced_ns = 0, lost_ns = 0;  ///< parts of total_ns in which it did not run
  uint64_t self_instructions = 0, instructions = 0;
  uint64_t self_cycles = 0, cycles = 0;  ///< core cycles; 0 without CYC packets
  DurationCounts durations;              ///< of the calls that were seen from start to end, and have times
  /// Adds a call of the function.
  void add(const EndedCall& call);
  /// Adds the totals of other calls of the function.
  void add(const FunctionTotals& other);
  /// Removes totals that were added. Returns false as DurationCounts::subtract() does.
  [[nodiscard]] bool subtract(const FunctionTotals& other);
  [[nodiscard]] uint64_t all_calls() const { return calls + no_start; }
  [[nodiscard]] bool has_times() const { return undated < all_calls(); }  ///< otherwise the sums of times are unknown
  [[nodiscard]] uint64_t partial() const { return no_start + no_end; }    ///< calls whose start or end was not seen
  /// Whether anything ran: a call that is only open in the time window, below others that are not listed either, has neither time nor
  /// instructions there.
  [[nodiscard]] bool met() const { return calls != 0 || (no_start != 0 && (total_ns | self_ns | instructions | self_instructions) != 0); }
};

/// Counters by FunctionId, updated with steps of calls. Not thread-safe. References are valid until the next add().
class PTD_API FunctionProfile {
 public:
  /// Adds the calls that end in these steps.
  void add(std::span<const CallStep> steps);
  /// Adds a call.
  void add(FunctionId function, const EndedCall& call);
  /// Returns the totals of a function, which the caller may change.
  [[nodiscard]] FunctionTotals& of(FunctionId function);
  void add(const FunctionProfile& other);
  /// Removes calls that were added. Returns false as DurationCounts::subtract() does.
  [[nodiscard]] bool subtract(const FunctionProfile& other);
  [[nodiscard]] const std::vector<FunctionTotals>& functions() const { return functions_; }
  /// Returns the profile of kNoFunction: code that was not traced.
  [[nodiscard]] const FunctionTotals& untraced() const { return untraced_; }

 private:
  std::vector<FunctionTotals> functions_;
  FunctionTotals untraced_;
};

[[gnu::always_inline]] inline void FunctionTotals::add(const EndedCall& call) {
  constexpr unsigned kSpecial = kCallNoStart | kCallMiddle | kCallCut | kCallEstimated | kCallUndated;
  if ((call.flags & kSpecial) == 0) [[likely]] {
    ++calls;
    durations.add(call.total_ns);
  } else {
    const bool started = (call.flags & (kCallNoStart | kCallMiddle)) == 0, ended = (call.flags & kCallCut) == 0;
    const bool dated = (call.flags & kCallUndated) == 0;
    calls += started ? 1 : 0;
    no_start += started ? 0 : 1;
    no_end += started && !ended ? 1 : 0;
    estimated += (call.flags & kCallEstimated) != 0 ? 1 : 0;
    undated += dated ? 0 : 1;
    if (started && ended && dated) durations.add(call.total_ns);
  }
  self_ns += call.self_ns;
  self_instructions += call.self_instructions;
  self_cycles += call.self_cycles;
  if ((call.flags & kCallInner) != 0) return;
  total_ns += call.total_ns;
  instructions += call.instructions;
  cycles += call.cycles;
  if ((call.off_cpu_ns | call.untraced_ns | call.lost_ns) == 0) return;
  off_cpu_ns += call.off_cpu_ns;
  untraced_ns += call.untraced_ns;
  lost_ns += call.lost_ns;
}

[[gnu::always_inline]] inline void FunctionProfile::add(FunctionId function, const EndedCall& call) {
  (function < functions_.size() ? functions_[function] : of(function)).add(call);
}

}  // namespace ptd
