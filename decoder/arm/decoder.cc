// Decoder: a segment is followed once; where its code has several versions, as often as it takes to tell which ones ran.
#include "decoder/arm/decoder.h"

#include "decoder/arm/choices.h"
#include "decoder/arm/resolver.h"

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
  State(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& given)
      : options(given),
        runs(timeline, rules_of(given.config)),
        follower(runs, contexts, given.config, given.follow),
        resolver(follower, given.config) {}

  DecoderOptions options;
  RunCache runs;
  Follower follower;
  Resolver resolver;
  Choices choices;

  void start(const AuxSegment& segment) {
    runs.begin_segment();
    follower.begin(segment, choices);
    resolver.begin(segment.bytes.first(segment.bytes.size() - segment.tail_bytes));
  }
  Try walk(const AuxSegment& segment);
};

Decoder::Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, options)) {}
Decoder::~Decoder() = default;

/// Walks the segment for nothing but the place where the packets first do not fit.
Try Decoder::State::walk(const AuxSegment& segment) {
  start(segment);
  Try result;
  Batch unseen;
  for (bool more = true; more && follower.trouble_offset() == ~uint64_t{0};) {
    unseen.clear();
    more = resolver.run(unseen);
  }
  result.trouble_offset = follower.trouble_offset();
  result.forks_before = follower.trouble_forks();
  return result;
}

void Decoder::begin(const AuxSegment& segment) {
  State& state = *state_;
  if (state.runs.changes()) decide(state.choices, state.options.max_tries, [&] { return state.walk(segment); });
  state.start(segment);
}

bool Decoder::next(Batch& batch) { return state_->resolver.run(batch); }

const BlockTable& Decoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
