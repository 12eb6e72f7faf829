// Choices: which of several versions of the code one flow took, and what follows from that.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/arm/waypoint_runs.h"
#include "decoder/version_floors.h"

namespace ptd::arm {

/// The forks of one element of the trace, in order: a fork is a fetch whose versions continue the flow differently.
struct ForkScript {
  struct Fork {
    uint32_t taken = 0;  ///< number of the way taken
    uint32_t ways = 0;
  };
  std::vector<Fork> forks;  ///< those given take these ways, those added the likeliest
  size_t passed = 0;
  uint32_t unlikely = 0;  ///< forks passed that do not take the likeliest way
  uint64_t fetches = 0;   ///< of several versions
  bool cut = false;       ///< there were more forks than kMost: of those that follow, only the likeliest way is taken
  static constexpr size_t kMost = 256;
  void begin(std::vector<Fork> given) {
    forks = std::move(given);
    passed = 0;
    unlikely = 0;
    fetches = 0;
    cut = false;
  }
};

/// What the versions that a flow took imply for its next instruction.
struct VersionBounds {
  TimeNs not_before;
  Floors floors;
  /// Keeps what holds for `other`, too.
  void lower_to(const VersionBounds& other) {
    not_before = std::min(not_before, other.not_before);
    floors.lower_to(other.floors);
  }
};

/// The choices of one flow. Versions that continue it in the same way are no fork: the likeliest is taken and marked ambiguous.
class Choices final : public CandidateChooser {
 public:
  explicit Choices(ForkScript& script) : script_(&script) {}
  [[nodiscard]] CodeChoice choose(const CodeFork& fork) override;
  [[nodiscard]] Interval narrowed(Interval when) const override {
    const TimeNs first = std::max(when.first, bounds_.not_before);
    return {first, std::max(first, when.last)};
  }
  [[nodiscard]] std::span<const VersionFloor> floors() const override { return bounds_.floors.span(); }
  /// Returns whether a fork was passed since the script began.
  [[nodiscard]] bool met_fork() const { return script_->passed != 0; }
  [[nodiscard]] ForkScript& script() const { return *script_; }
  [[nodiscard]] VersionBounds& bounds() { return bounds_; }
  [[nodiscard]] const VersionBounds& bounds() const { return bounds_; }

 private:
  [[nodiscard]] size_t likeliest(const CodeFork& fork) const;
  ForkScript* script_;
  VersionBounds bounds_;
};

}  // namespace ptd::arm
