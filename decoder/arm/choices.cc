// Choices: forks are identified by their order.
#include "decoder/arm/choices.h"

#include <algorithm>

namespace ptd::arm {

size_t Choices::choose(Ip ip, SpaceId space, std::span<const CodeCandidate> candidates, uint16_t& block_flags) {
  const auto count = static_cast<uint32_t>(candidates.size());
  if (passed_ == forks_.size()) forks_.emplace_back();
  Fork& fork = forks_[passed_++];
  uint32_t& last = last_[{space.value, ip.value}];
  if (!fork.decided) {
    fork.taken = last;
    fork.flags = static_cast<uint16_t>(BlockFlag::ambiguous);
  }
  fork.count = count;
  fork.taken = std::min(fork.taken, count - 1);
  last = fork.taken;
  block_flags |= fork.flags;
  return fork.taken;
}

void Choices::restart() {
  passed_ = 0;
  last_.clear();
}

void Choices::forget_behind(size_t count) {
  forks_.resize(std::min(forks_.size(), count));
  for (Fork& fork : forks_) fork.decided = true;
}

}  // namespace ptd::arm
