// Decoder: decodes one segment of ETMv4 or ETE trace at a time into batches.
#pragma once

#include <memory>

#include "decoder/arm/follower.h"
#include "ptdecode/flow_decoder.h"

namespace ptd::arm {

struct DecoderOptions {
  TraceConfig config;
  FollowOptions follow;
  uint32_t max_flows = 16;  ///< followed side by side where code has several versions; if there are more, what follows is marked ambiguous
};

/// Output depends on the segment, timeline, contexts and options only.
class Decoder final : public FlowDecoder {
 public:
  Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options);
  ~Decoder() override;

  void begin(const AuxSegment& segment) override;
  [[nodiscard]] const BlockTable& blocks() const override;

 private:
  bool fill(Batch& batch, size_t batch_blocks) override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::arm
