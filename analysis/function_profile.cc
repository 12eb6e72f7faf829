// FunctionProfile: see function_profile.h.
#include "ptdecode/function_profile.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace ptd {

// The highest duration of a class.
uint64_t DurationCounts::end_of(size_t index) {
  if (index < (2U << kClassBits)) return index;
  const size_t shift = (index >> kClassBits) - 1;
  return ((uint64_t{index & ((1U << kClassBits) - 1)} + (1U << kClassBits) + 1) << shift) - 1;
}

// Adds a value without a counter for its class.
void DurationCounts::add_first(uint64_t ns) {
  if (!classes_.empty()) return classify(ns);
  exact_.push_back(ns);
  if (exact_.size() >= kExact) classify_all();
}

void DurationCounts::classify_all() {
  for (const uint64_t each : exact_) classify(each);
  exact_ = {};
}

void DurationCounts::add_max(uint64_t max, uint64_t max_count) {
  if (max > max_ || max_count_ == 0) {
    max_ = max;
    max_count_ = max_count;
  } else if (max == max_) {
    max_count_ += max_count;
  }
}

void DurationCounts::add_class(uint64_t index, uint64_t count) {
  classify_all();
  index = std::min(index, kMostClass);
  if (index >= classes_.size()) classes_.resize((index | ((size_t{1} << kClassBits) - 1)) + 1);
  classes_[index] += count;
  count_ += count;
}

void DurationCounts::add(const DurationCounts& other) {
  if (other.is_exact()) {
    for (const uint64_t ns : other.exact_) add(ns);
    return;
  }
  other.each([this](uint64_t index, uint64_t count) { add_class(index, count); });
  add_max(other.max_, other.max_count_);
}

bool DurationCounts::subtract(const DurationCounts& other) {
  if (other.count_ == 0) return true;
  if (other.count_ > count_ || other.max_ > max_) return false;
  count_ -= other.count_;
  if (is_exact()) {
    if (!other.is_exact()) return false;
    std::sort(exact_.begin(), exact_.end());
    std::sort(other.exact_.begin(), other.exact_.end());
    std::vector<uint64_t> left;
    std::set_difference(exact_.begin(), exact_.end(), other.exact_.begin(), other.exact_.end(), std::back_inserter(left));
    exact_ = std::move(left);
    max_ = exact_.empty() ? 0 : exact_.back();
    max_count_ = static_cast<uint64_t>(std::count(exact_.begin(), exact_.end(), max_));
    return exact_.size() == count_;
  }
  bool good = count_ >= kExact;
  other.each([&](uint64_t value, uint64_t count) {
    const size_t index = other.is_exact() ? class_of(value) : value;
    good = good && index < classes_.size() && classes_[index] >= count;
    if (good) classes_[index] -= count;
  });
  if (other.max_ == max_) max_count_ -= std::min(max_count_, other.max_count_);
  return good && max_count_ != 0;
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

namespace {

// All members that are sums.
constexpr uint64_t FunctionTotals::*kSums[] = {
    &FunctionTotals::calls,        &FunctionTotals::no_start,    &FunctionTotals::no_end,
    &FunctionTotals::self_ns,      &FunctionTotals::total_ns,    &FunctionTotals::off_cpu_ns,
    &FunctionTotals::untraced_ns,  &FunctionTotals::lost_ns,     &FunctionTotals::self_instructions,
    &FunctionTotals::instructions, &FunctionTotals::self_cycles, &FunctionTotals::cycles,
    &FunctionTotals::estimated,    &FunctionTotals::undated};

}  // namespace

void FunctionTotals::add(const FunctionTotals& other) {
  for (uint64_t FunctionTotals::*const sum : kSums) this->*sum += other.*sum;
  durations.add(other.durations);
}

bool FunctionTotals::subtract(const FunctionTotals& other) {
  for (uint64_t FunctionTotals::*const sum : kSums) this->*sum -= other.*sum;
  return durations.subtract(other.durations);
}

FunctionTotals& FunctionProfile::of(FunctionId function) {
  if (function == kNoFunction) return untraced_;
  if (function >= functions_.size()) functions_.resize(std::max<size_t>(function + 1, functions_.size() * 2));
  return functions_[function];
}

void FunctionProfile::add(const FunctionProfile& other) {
  untraced_.add(other.untraced_);
  for (FunctionId id = 0; id < other.functions_.size(); ++id) of(id).add(other.functions_[id]);
}

bool FunctionProfile::subtract(const FunctionProfile& other) {
  bool good = untraced_.subtract(other.untraced_);
  for (FunctionId id = 0; id < other.functions_.size(); ++id) good = of(id).subtract(other.functions_[id]) && good;
  return good;
}

void FunctionProfile::add(std::span<const CallStep> steps) {
  for (const CallStep& step : steps) {
    if (step.kind != CallStepKind::leave) continue;
    add(step.function, {step.flags, step.total_ns(), step.off_cpu_ns, step.untraced_ns, step.lost_ns, step.self_ns, step.instructions,
                        step.self_instructions, step.cycles, step.self_cycles});
  }
}

}  // namespace ptd
