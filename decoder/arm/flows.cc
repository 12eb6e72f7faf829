// Flows: forks, contradictions and merges.
#include "decoder/arm/flows.h"

#include <algorithm>
#include <utility>

namespace ptd::arm {
namespace {

constexpr size_t kInElement = 4;                               // times as many flows may be followed within one element
constexpr uint64_t kMostUndecided = 1U << 14;                  // elements after which the likeliest flow is taken
constexpr size_t kMostHeldBlocks = 1U << 15;                   // blocks of all flows, likewise
constexpr uint64_t kWorkPerByte = 256, kLeastWork = 1U << 20;  // of a segment, after which forks are no longer taken
constexpr uint64_t kCopiedPerStep = 64;                        // blocks, or pairs of flows, that cost as much as one element

/// Removes the addresses of events that differ in `other`, the output of another flow for the same elements.
void forget_different(std::vector<Event>& kept, const std::vector<Event>& other) {
  auto from = other.begin();
  for (Event& event : kept) {
    from = std::find_if(from, other.end(), [&](const Event& each) { return each.stream_offset_bytes >= event.stream_offset_bytes; });
    const auto same = std::find_if(from, other.end(), [&](const Event& each) {
      return each.kind == event.kind || each.stream_offset_bytes != event.stream_offset_bytes;
    });
    if (same == other.end() || same->stream_offset_bytes != event.stream_offset_bytes) continue;
    if (same->from == event.from && ((same->flags ^ event.flags) & kEventHasFrom) == 0) continue;
    event.from = {};
    event.flags &= static_cast<uint8_t>(~kEventHasFrom);
  }
}

/// Marks what differs in `other`, which ends.
void take_differences(Batch& kept, const Batch& other) {
  mark_difference(kept, other);
  forget_different(kept.events, other.events);
}

}  // namespace

Flows::Flows(RunCache& runs, const ContextTrack& contexts, const TraceConfig& config, const FollowOptions& options, size_t most)
    : most_flows_(most) {
  flows_.push_back(std::make_unique<Flow>(Follower(runs, contexts, config, options, script_)));
}

void Flows::begin(const AuxSegment& segment, std::span<const WrongContext> wrong, TimestampIndex* times) {
  flows_.resize(1);
  flows_[0]->pending.clear();
  takes_forks_ = dropped_ = limited_ = false;
  sure_ = true;
  script_.begin({});
  work_ = 0;
  most_work_ = kLeastWork + kWorkPerByte * segment.bytes.size();
  only().begin(segment, wrong, times);
}

void Flows::into(BatchTarget target) {
  out_ = &target.batch;
  most_blocks_ = target.most;
  if (sure_) only().into(target);
}

void Flows::take_forks(bool on) {
  takes_forks_ = on;
  if (!on) only().forget_runs();
  script_.begin({});
}

void Flows::end(uint64_t uncommitted) {
  each([uncommitted](Follower& follower) { follower.end(uncommitted); });
  if (!sure_) {
    prune(1);
    give_pending();
  }
}

void Flows::atoms(uint64_t atoms, uint32_t count, uint64_t offset) {
  if (!takes_forks_) return only().atoms(atoms, count, offset);
  for (; count != 0; --count, atoms >>= 1) {
    each([&](Follower& follower) {
      if (!follower.is_lost()) follower.atom(atoms, offset);
    });
  }
}

/// Executes one element in all flows.
void Flows::step(Op op, const void* what) {
  const size_t count = flows_.size();
  for (size_t i = 0; i < count; ++i) try_ways(i, op, what);
  if (sure_) return;
  end_contradicted();
  work_ += flows_.size() + flows_.size() * flows_.size() / kCopiedPerStep;
  merge();
  settle();
}

/// Executes the element in one flow, and once more for each other way of each fork.
void Flows::try_ways(size_t index, Op op, const void* what) {
  Flow& first = *flows_[index];
  const Follower before = first.follower;
  BatchPlace place = end_of(sure_ ? *out_ : first.pending);
  const uint32_t unlikely = first.unlikely;
  script_.begin({});
  first.follower.begin_element();
  op(first.follower, what);
  work_ += script_.fetches;
  if (script_.passed == 0) return;
  if (sure_) {
    sure_ = false;
    undecided_ = 0;
    before_ = before.bounds();
    split(*out_, place, first.pending);
    place = {};
    first.follower.into({first.pending, most_blocks_});
  }
  if (script_.cut) limit();
  std::vector<std::vector<ForkScript::Fork>> left;
  add_ways(0, left);
  while (!left.empty()) {
    if (is_spent() || flows_.size() >= kInElement * most_flows_) return limit();
    work_ += 1 + first.pending.blocks.size() / kCopiedPerStep;
    Flow& other = *flows_.emplace_back(std::make_unique<Flow>(before));
    other.pending = first.pending;
    truncate(other.pending, place);
    other.follower.into({other.pending, most_blocks_});
    const size_t told = left.back().size();
    script_.begin(std::move(left.back()));
    left.pop_back();
    other.follower.begin_element();
    op(other.follower, what);
    work_ += script_.fetches;
    if (script_.cut) limit();
    other.unlikely = unlikely + script_.unlikely;
    add_ways(told, left);
  }
}

/// Adds scripts for the ways that the last script did not take at its forks from number `told` on.
void Flows::add_ways(size_t told, std::vector<std::vector<ForkScript::Fork>>& left) const {
  const std::vector<ForkScript::Fork>& forks = script_.forks;
  for (size_t i = told; i < forks.size(); ++i) {
    for (uint32_t other = 0; other < forks[i].ways; ++other) {
      if (other == forks[i].taken) continue;
      left.emplace_back(forks.begin(), forks.begin() + static_cast<std::ptrdiff_t>(i + 1)).back().taken = other;
    }
  }
}

bool Flows::is_likelier(const std::unique_ptr<Flow>& one, const std::unique_ptr<Flow>& other) { return one->is_likelier(*other); }

/// Ends the flows that the element contradicted. If it contradicted all, none is right, and the likeliest goes on.
void Flows::end_contradicted() {
  const auto contradicted = [](const std::unique_ptr<Flow>& flow) { return flow->follower.contradicted(); };
  if (!std::ranges::all_of(flows_, contradicted)) {
    std::erase_if(flows_, contradicted);
    return;
  }
  const auto best = std::ranges::min_element(flows_, is_likelier);
  std::swap(flows_[0], *best);
  flows_.resize(1);
  flows_[0]->follower.bounds() = before_;
  dropped_ = true;
}

/// Merges flows that continue alike.
void Flows::merge() {
  for (size_t i = 0; i < flows_.size(); ++i) {
    for (size_t j = i + 1; j < flows_.size();) {
      if (!flows_[i]->follower.continues_like(flows_[j]->follower)) {
        ++j;
        continue;
      }
      if (flows_[j]->is_likelier(*flows_[i])) std::swap(flows_[i], flows_[j]);
      take_differences(flows_[i]->pending, flows_[j]->pending);
      flows_[i]->follower.bounds().lower_to(flows_[j]->follower.bounds());
      flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

/// Keeps the `most` likeliest flows, and marks what differs in others.
void Flows::prune(size_t most) {
  if (flows_.size() <= most) return;
  std::ranges::stable_sort(flows_, is_likelier);
  for (size_t i = 0; i < most; ++i) {
    for (size_t j = most; j < flows_.size(); ++j) take_differences(flows_[i]->pending, flows_[j]->pending);
    // The dropped flows may be the right ones, with other versions.
    flows_[i]->follower.bounds() = before_;
  }
  flows_.resize(most);
}

/// After each element: applies the limits, and outputs what is held back if one flow is left.
void Flows::settle() {
  ++undecided_;
  size_t held = 0;
  for (const auto& flow : flows_) held += flow->pending.blocks.size();
  const bool spent = undecided_ > kMostUndecided || held > kMostHeldBlocks || is_spent();
  const bool drops = flows_.size() > (spent ? 1 : most_flows_);
  prune(spent ? 1 : most_flows_);
  if (flows_.size() == 1) {
    give_pending();
    undecided_ = 0;
  }
  if (drops) limit();
  if (flows_.size() != 1) return;
  Follower& follower = flows_[0]->follower;
  if (dropped_ && follower.anchored()) {
    dropped_ = limited_ = false;
    follower.bounds() = before_;
  }
  if (dropped_) return;
  sure_ = true;
  follower.into({*out_, most_blocks_});
}

/// Outputs what the only flow left held back.
void Flows::give_pending() {
  Flow& flow = *flows_[0];
  if (dropped_) mark_ambiguous(flow.pending, 0);
  for (Gap& gap : flow.pending.gaps) {
    if (limited_ && gap.reason == GapReason::image_mismatch) gap.reason = GapReason::limit;
  }
  append_batch(*out_, flow.pending);
  flow.unlikely = 0;
}

}  // namespace ptd::arm
