// LegacyDecoder: decodes the flow of ETMv3 and PTM, with packets from OpenCSD's packet processors.
#pragma once

#include <memory>

#include "decoder/arm/follower.h"
#include "ptdecode/flow_decoder.h"

namespace ptd::arm {

/// ETMv3 traces each instruction, PTM each branch ([ETMv3] "P-headers", [PFT] "Waypoints"). Other protocols (ITM, STM) have no flow
/// and give no blocks.
class LegacyDecoder final : public FlowDecoder {
 public:
  LegacyDecoder(const Timeline& timeline, const ContextTrack& contexts, const TraceConfig& config, const FollowOptions& options);
  ~LegacyDecoder() override;

  void begin(const AuxSegment& segment) override;
  [[nodiscard]] const BlockTable& blocks() const override;

 private:
  bool fill(Batch& batch, size_t batch_blocks) override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::arm
