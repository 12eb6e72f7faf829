// Decoder: a segment is followed once; where its code has several versions, as often as it takes to tell which ones ran.
#include "decoder/arm/decoder.h"

#include <array>

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
        resolver(follower, given.config, given.follow.exact_only) {}

  DecoderOptions options;
  RunCache runs;
  Follower follower;
  Resolver resolver;
  Choices choices;
  bool decided = false;

  Try walk(const Follower& from, const Resolver& with, uint64_t watch_from);
  bool next(Batch& batch);
};

Decoder::Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, options)) {}
Decoder::~Decoder() = default;

/// Walks to the segment's end for nothing but the place where the packets first do not fit.
Try Decoder::State::walk(const Follower& from, const Resolver& with, uint64_t watch_from) {
  runs.begin_walk();
  follower = from;
  follower.watch_from(watch_from);
  resolver = with;
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

bool Decoder::State::next(Batch& batch) {
  if (decided) return resolver.run(batch);
  // Up to the first fork there is but one way.
  const Follower follower_before = follower;
  const Resolver resolver_before = resolver;
  const std::array<size_t, 4> before = {batch.blocks.size(), batch.marks.size(), batch.events.size(), batch.gaps.size()};
  const bool more = resolver.run(batch);
  if (choices.passed() == 0) return more;
  batch.blocks.resize(before[0]);
  batch.marks.resize(before[1]);
  batch.events.resize(before[2]);
  batch.gaps.resize(before[3]);
  decide(choices, options.max_tries, [&](uint64_t watch_from) { return walk(follower_before, resolver_before, watch_from); });
  decided = true;
  runs.begin_walk();
  follower = follower_before;
  resolver = resolver_before;
  return resolver.run(batch);
}

void Decoder::begin(const AuxSegment& segment) {
  State& state = *state_;
  state.runs.begin_walk();
  state.choices.forget_behind(0);
  state.choices.restart();
  state.decided = !state.runs.changes();
  state.follower.begin(segment, state.choices);
  state.resolver.begin(segment.bytes.first(segment.bytes.size() - segment.tail_bytes));
}

bool Decoder::next(Batch& batch) { return state_->next(batch); }

const BlockTable& Decoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
