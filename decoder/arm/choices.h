// Choices: finds by trial which of several versions of the code were executed.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "decoder/arm/waypoint_runs.h"
#include "ptdecode/code_view.h"

namespace ptd::arm {

/// One path through a segment's forks. A fork is a fetch whose bytes have several possible versions; its number is its order in the flow.
/// An undecided fork takes the version that was last used at this address, else the oldest.
class Choices final : public CandidateChooser {
 public:
  size_t choose(Ip ip, SpaceId space, std::span<const CodeCandidate> candidates, uint16_t& block_flags) override;
  /// Restarts the walk at the start of the segment.
  void restart();

  struct Fork {
    uint32_t taken = 0;  ///< index of the candidate
    uint32_t count = 0;  ///< candidates
    bool decided = false;
    uint16_t flags = 0;  ///< flags of the blocks that follow from this choice
  };
  /// Forks passed since restart(), in order.
  [[nodiscard]] std::vector<Fork>& forks() { return forks_; }
  [[nodiscard]] size_t passed() const override { return passed_; }
  /// Makes the forks after the first `count` undecided.
  void forget_behind(size_t count);

 private:
  std::vector<Fork> forks_;
  size_t passed_ = 0;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> last_;  // (space, ip) -> the candidate taken
};

/// How far one attempt got before the packets contradicted the code.
struct Try {
  uint64_t trouble_offset = ~uint64_t{0};  ///< offset of the first packet that did not fit the code; the maximum value if all fit
  size_t forks_before = 0;                 ///< forks passed before that packet
};

}  // namespace ptd::arm
