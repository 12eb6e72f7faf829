// Decoder: follows a segment once, and each window with several versions of code as often as needed to find the version that was executed.
#include "decoder/arm/decoder.h"

#include <array>

#include "decoder/arm/choices.h"
#include "decoder/arm/choices_decide.h"
#include "decoder/arm/resolver.h"

namespace ptd::arm {
namespace {

// Versions are chosen for one window at a time: up to the packet that follows kForksOfWindow forks, or kWindowBytes of trace. An attempt is
// checked beyond the window, for up to kForksSeen forks in total and the same number of bytes again.
constexpr size_t kForksOfWindow = 20, kForksSeen = 40;
constexpr uint64_t kWindowBytes = 1U << 12;

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
        runs(timeline, rules_of(given.config), given.follow.own_upper),
        follower(runs, contexts, given.config, given.follow),
        resolver(follower, given.config, given.follow.exact_only) {}

  /// A position in the segment that a walk can return to.
  struct Place {
    Follower follower;
    Resolver resolver;
  };
  void go_to(const Place& place);
  void begin_window();
  Try walk(const Place& from, uint64_t watch_from);
  Resolver::Stop decide_window(BatchTarget target);
  bool fill(BatchTarget target);

  DecoderOptions options;
  RunCache runs;
  Follower follower;
  Resolver resolver;
  Choices choices;
  bool decided = false;     ///< the versions for this window are chosen
  Resolver::Bounds bounds;  ///< of the window
};

Decoder::Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, options)) {}
Decoder::~Decoder() = default;

void Decoder::State::go_to(const Place& place) {
  runs.begin_walk();
  follower = place.follower;
  resolver = place.resolver;
}

void Decoder::State::begin_window() {
  runs.begin_walk();
  choices.forget_behind(0);
  choices.restart();
  decided = !runs.changes();
  bounds = {};
  if (!decided) bounds = {resolver.offset() + kWindowBytes, kForksOfWindow};
}

/// Walks through the window and some way beyond it, only to find the first packet that does not fit the code. The output is dropped.
Try Decoder::State::walk(const Place& from, uint64_t watch_from) {
  go_to(from);
  follower.watch_from(watch_from);
  const Resolver::Bounds seen = {bounds.offset + kWindowBytes, kForksSeen};
  Batch unseen;
  do {
    unseen.clear();
  } while (resolver.run({unseen, kDefaultBatchBlocks}, seen) == Resolver::Stop::full && follower.trouble_offset() == ~uint64_t{0});
  return {follower.trouble_offset(), follower.trouble_forks()};
}

/// Chooses the versions for the window and outputs it.
Resolver::Stop Decoder::State::decide_window(BatchTarget target) {
  Batch& batch = target.batch;
  const Place before = {follower, resolver};
  const std::array<size_t, 4> sizes = {batch.blocks.size(), batch.marks.size(), batch.events.size(), batch.gaps.size()};
  const Resolver::Stop stop = resolver.run(target, bounds);
  if (choices.passed() == 0) return stop;  // without a fork there is nothing to choose
  batch.blocks.resize(sizes[0]);
  batch.marks.resize(sizes[1]);
  batch.events.resize(sizes[2]);
  batch.gaps.resize(sizes[3]);
  decide(choices, options.max_tries, [&](uint64_t watch_from) { return walk(before, watch_from); });
  decided = true;
  go_to(before);
  return resolver.run(target, bounds);
}

bool Decoder::State::fill(BatchTarget target) {
  const Resolver::Stop stop = decided ? resolver.run(target, bounds) : decide_window(target);
  if (stop == Resolver::Stop::bound) begin_window();
  return stop != Resolver::Stop::end;
}

void Decoder::begin(const AuxSegment& segment) {
  State& state = *state_;
  state.follower.begin(segment, state.choices);
  state.resolver.begin(segment.bytes.first(segment.bytes.size() - segment.tail_bytes));
  state.begin_window();
}

bool Decoder::fill(Batch& batch, size_t batch_blocks) { return state_->fill({batch, batch_blocks}); }

const BlockTable& Decoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
