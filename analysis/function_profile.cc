// FunctionProfile: see function_profile.h.
#include "ptdecode/function_profile.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ptd {
namespace {

constexpr unsigned kClassBits = 7;  // 128 classes a doubling: each less than 0.8 % wide

size_t class_of(uint64_t ns) {
  if (ns < (1U << kClassBits)) return ns;
  const auto shift = static_cast<unsigned>(std::bit_width(ns)) - kClassBits - 1;
  return (size_t{shift} << kClassBits) + (ns >> shift);
}

// The highest duration of a class.
uint64_t end_of(size_t index) {
  if (index < (2U << kClassBits)) return index;
  const size_t shift = (index >> kClassBits) - 1;
  return ((uint64_t{index & ((1U << kClassBits) - 1)} + (1U << kClassBits) + 1) << shift) - 1;
}

}  // namespace

void DurationCounts::add(uint64_t ns) {
  ++count_;
  max_ = std::max(max_, ns);
  if (classes_.empty()) {
    exact_.push_back(ns);
    if (exact_.size() < kExact) return;
    for (const uint64_t each : exact_) classify(each);
    exact_ = {};
    return;
  }
  classify(ns);
}

void DurationCounts::classify(uint64_t ns) {
  const size_t index = class_of(ns);
  if (index >= classes_.size()) classes_.resize((index | ((size_t{1} << kClassBits) - 1)) + 1);  // up to the next doubling
  ++classes_[index];
}

uint64_t DurationCounts::quantile(double share) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<uint64_t>(std::max(1.0, std::ceil(share * static_cast<double>(count_))));
  if (classes_.empty()) {
    std::sort(exact_.begin(), exact_.end());
    return exact_[std::min<uint64_t>(rank, count_) - 1];
  }
  uint64_t below = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    below += classes_[i];
    if (below >= rank) return std::min(end_of(i), max_);
  }
  return max_;
}

void FunctionProfile::add(std::span<const CallStep> steps) {
  for (const CallStep& step : steps) {
    if (step.kind != CallStepKind::leave) continue;
    if (step.function != kNoFunction && step.function >= functions_.size())
      functions_.resize(std::max<size_t>(step.function + 1, functions_.size() * 2));
    FunctionTotals& totals = step.function == kNoFunction ? untraced_ : functions_[step.function];
    const bool started = (step.flags & (kCallNoStart | kCallMiddle)) == 0, ended = (step.flags & kCallCut) == 0;
    totals.calls += started ? 1 : 0;
    totals.no_start += started ? 0 : 1;
    totals.no_end += started && !ended ? 1 : 0;
    totals.estimated += (step.flags & kCallEstimated) != 0 ? 1 : 0;
    totals.self_ns += step.self_ns;
    totals.self_instructions += step.self_instructions;
    totals.self_cycles += step.self_cycles;
    if (started && ended) totals.durations.add(step.total_ns());
    if ((step.flags & kCallInner) != 0) continue;
    totals.total_ns += step.total_ns();
    totals.off_cpu_ns += step.off_cpu_ns;
    totals.untraced_ns += step.untraced_ns;
    totals.lost_ns += step.lost_ns;
    totals.instructions += step.instructions;
    totals.cycles += step.cycles;
  }
}

}  // namespace ptd
