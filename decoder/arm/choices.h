// Choices: finds by trial which of several versions of the code ran.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "decoder/arm/runs.h"

namespace ptd::arm {

/// One way through a segment's forks. A fork is a fetch whose bytes have several possible contents; its number is its order in the flow.
/// Where nothing is decided, the content that was taken at that address before is taken again, else the oldest.
class Choices final : public CandidateChooser {
 public:
  size_t choose(Ip ip, SpaceId space, std::span<const CodeCandidate> candidates, uint16_t& block_flags) override;
  /// The segment is walked from its start again.
  void restart();

  struct Fork {
    uint32_t taken = 0;  ///< index of the candidate
    uint32_t count = 0;  ///< candidates
    bool decided = false;
    uint16_t flags = 0;  ///< of the blocks that come of it
  };
  /// Forks passed since restart(), in order.
  [[nodiscard]] std::vector<Fork>& forks() { return forks_; }
  [[nodiscard]] size_t passed() const override { return passed_; }
  /// Forks behind the first `count` are no longer decided.
  void forget_behind(size_t count);

 private:
  std::vector<Fork> forks_;
  size_t passed_ = 0;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> last_;  // (space, ip) -> what was taken
};

/// How far a try came.
struct Try {
  uint64_t trouble_offset = ~uint64_t{0};  ///< of the first packet that did not fit the code; none: the largest
  size_t forks_before = 0;                 ///< forks passed until then
};

}  // namespace ptd::arm
