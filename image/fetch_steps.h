// FetchSteps: counts the cost of a thread's fetches in code with many versions.
#pragma once

#include <cstdint>

namespace ptd {

/// Maximum number of steps of a fetch; a fetch that needs more returns FetchStatus::too_many.
inline constexpr uint64_t kMostFetchSteps = 1U << 18;

/// The counters of one thread, for callers that limit its work. A fetch depends only on `most`.
struct FetchSteps {
  uint64_t taken = 0;               ///< versions that fetches compared and combined; 0 for code that does not change
  uint64_t walked = 0;              ///< instructions that decoders walked in parallel or searching backwards, while versions were undecided
  uint64_t most = kMostFetchSteps;  ///< approximate limit of one fetch
};

[[nodiscard]] FetchSteps& fetch_steps();

/// During its lifetime, each fetch of this thread takes at most `most` steps.
class FetchStepLimit {
 public:
  explicit FetchStepLimit(uint64_t most) : before_(fetch_steps().most) { fetch_steps().most = most < before_ ? most : before_; }
  ~FetchStepLimit() { fetch_steps().most = before_; }
  FetchStepLimit(const FetchStepLimit&) = delete;
  FetchStepLimit& operator=(const FetchStepLimit&) = delete;

 private:
  uint64_t before_;
};

}  // namespace ptd
