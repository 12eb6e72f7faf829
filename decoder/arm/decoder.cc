// Decoder: follows the elements of a segment in windows.
#include "decoder/arm/decoder.h"

#include "decoder/arm/context_check.h"
#include "decoder/arm/resolver.h"
#include "decoder/arm/windows.h"

namespace ptd::arm {
namespace {

WaypointRules rules_of(const TraceConfig& config) {
  WaypointRules rules;
  rules.wait = config.wait_is_p0();
  rules.transactions = config.is_ete();
  return rules;
}

}  // namespace

struct Decoder::State {
  State(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
      : config(options.config),
        known{contexts, timeline.suspect_windows()},
        follow(options.follow),
        runs(timeline, rules_of(options.config), options.follow.own_upper),
        all(runs, contexts, options.config, options.follow, options.max_flows),
        resolver(all, options.config, options.follow.exact_only) {}

  // A Trace for Windows.
  struct Place {
    Follower follower;
    Resolver resolver;
  };
  [[nodiscard]] bool changes() const { return runs.changes(); }
  [[nodiscard]] Flows& flows() { return all; }
  [[nodiscard]] uint64_t position() const { return resolver.offset(); }
  [[nodiscard]] uint64_t copied() const { return resolver.queued(); }
  [[nodiscard]] Place place() { return {all.only(), resolver}; }
  void go_to(const Place& place) {
    all.only() = place.follower;
    resolver = place.resolver;
  }
  TraceStop run(BatchTarget target, uint64_t end) { return resolver.run(target, end); }

  TraceConfig config;
  KnownSwitches known;
  FollowOptions follow;
  CheckedSegment checked;
  TimestampIndex times;
  RunCache runs;
  Flows all;
  Resolver resolver;
  Windows<State> windows{*this};
};

Decoder::Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, options)) {}
Decoder::~Decoder() = default;

void Decoder::begin(const AuxSegment& segment) {
  State& state = *state_;
  state.checked = check_segment(segment, state.config, state.follow, state.known);
  const Bytes bytes = segment.bytes.first(segment.bytes.size() - segment.tail_bytes);
  state.times.begin(bytes, state.config, state.checked.timestamps.repairs);
  state.all.begin(state.checked.segment, state.checked.wrong_contexts, &state.times);
  state.resolver.begin(bytes, state.checked.timestamps.repairs);
  state.windows.begin();
}

bool Decoder::fill(Batch& batch, size_t batch_blocks) { return state_->windows.fill({batch, batch_blocks}); }

const BlockTable& Decoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
