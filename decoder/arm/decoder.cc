// Decoder: follows the elements of a segment in windows.
#include "decoder/arm/decoder.h"

#include "decoder/arm/packet/timestamps.h"
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
  FollowOptions follow;
  TimestampCheck timestamps;
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
  AuxSegment own = segment;
  const Bytes bytes = segment.bytes.first(segment.bytes.size() - segment.tail_bytes);
  state.timestamps = {};
  if (state.follow.use_time) state.timestamps = check_timestamps(bytes, state.config, segment.timestamps, segment.tsc.use);
  // The segment's bounds are those of its own first timestamp.
  const TickRange around = segment.timestamps;
  if (state.timestamps.first_is_wrong && segment.tsc.use) {
    const uint64_t first = around.first == 0 ? 0 : state.follow.time.to_ns(Tsc{around.first}).value;
    own.time.first = first > state.follow.slack_ns ? TimeNs{first - state.follow.slack_ns} : kTimeMin;
  }
  state.all.begin(own);
  state.resolver.begin(bytes, state.timestamps.repairs);
  state.windows.begin();
}

bool Decoder::fill(Batch& batch, size_t batch_blocks) { return state_->windows.fill({batch, batch_blocks}); }

const BlockTable& Decoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
