// FetchSteps: counts the cost of a thread's fetches in code with many versions.
#pragma once

#include <cstdint>

namespace ptd {

/// No fetch of a CodeView takes more steps; it gives FetchStatus::too_many.
inline constexpr uint64_t kMostFetchSteps = 1U << 18;

/// Of one thread, for whoever bounds its work. A fetch depends on `most` and on nothing else here.
struct FetchSteps {
  uint64_t taken = 0;               ///< versions that fetches have compared and combined; none for code that does not change
  uint64_t walked = 0;              ///< instructions that decoders have walked side by side or in looking back, where versions were open
  uint64_t most = kMostFetchSteps;  ///< of one fetch, about
};

[[nodiscard]] FetchSteps& fetch_steps();

/// While it lives, a fetch of this thread takes no more than `most` steps.
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
