// Decoder: runs one flow while the bytes are certain, else several in parallel until the packets leave one.
//
// Invariant: a single flow writes into the caller's batch. While several flows are alive, each holds its output back in Flow::pending, and
// they are stepped to the same number of taken branches, targets and events before they are compared.
// Invariant: output after the oldest checkpoint is held back, because a contradiction may send the flow back to that checkpoint. The fast
// path never goes back: its only checkpoint is the last gap. Blocks that a later contradiction would make doubtful are held back too, and
// no other path is taken from before them. So the output of the fast path stays valid when the exact walker restarts the segment.
#include "ptdecode/pt/decoder.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "decoder/aux_loss.h"
#include "decoder/batch_edit.h"
#include "decoder/pt/flow/heal_search.h"
#include "decoder/pt/flow/mode_check.h"
#include "decoder/pt/flow/segment_work.h"
#include "decoder/pt/flow/walker.h"
#include "decoder/pt/runner/runner.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kMaxUndecided = 1U << 14;  // branches, targets and events after which a choice is made
constexpr uint64_t kCheckpointEvery = 1024;   // branches, targets and events
constexpr uint64_t kFastStretch = 1U << 16;   // per call of the fast path, in branches, targets and events
constexpr uint64_t kDoubtfulIfLost = 4096;    // as kDoubtfulBlocks, where records are known to be lost
constexpr uint32_t kDoubtBehind = 16;         // blocks after an uncertain one, if records were lost
constexpr uint32_t kMaxVainSearches = 3;      // per ip of contradiction in one segment
constexpr uint64_t kCopiedPerStep = 64;       // blocks, or pairs of flows, that cost as much as one instruction
constexpr uint64_t kMaxUndecidedLater = 64;   // as kMaxUndecided, when the segment's work is spent
constexpr size_t kMaxFlowsLater = 4;          // as DecoderOptions::max_candidates, likewise

// Returns whether records of kernel code are known to be missing.
bool shows_loss(const Timeline& timeline) {
  const std::vector<Finding>& findings = timeline.findings();
  return timeline.has_suspect_windows() || std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
           return finding.kind == FindingKind::poke_healed || finding.kind == FindingKind::poke_lost_by_copy ||
                  finding.kind == FindingKind::poke_old_bytes_mismatch || finding.kind == FindingKind::base_copy_unexplained;
         });
}

// Returns whether the gap shows that the code read is not the code executed. (Missing code says nothing about the path there.)
bool contradicts_code(GapReason reason) { return reason == GapReason::image_mismatch || reason == GapReason::bad_insn; }

// Returns the spaces in which code changed in place. A kernel without an image is not one of them: all code but the changed bytes is
// missing.
std::set<SpaceId> changing_spaces(const Timeline& timeline) {
  std::set<SpaceId> changing, bare;
  for (SiteId id = 0; id < timeline.site_count(); ++id) {
    const SpaceId space = timeline.site(id).space;
    (is_kernel_space(space) ? bare : changing).insert(space);
  }
  for (SectionId id = 0; !bare.empty() && id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (!section.code.bytes.empty() && bare.erase(section.space) != 0) changing.insert(section.space);
  }
  return changing;
}

}  // namespace

/// A point to which a flow can go back: a copy of the flow, and the position in the segment's output.
struct Checkpoint {
  bool valid = false;
  Flow flow;
  BatchPlace output;
};

struct Decoder::State {
  State(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
      : walker(timeline, contexts, options),
        runner(walker),
        may_heal(timeline.has_versions()),
        changing(changing_spaces(timeline)),
        records_lost(shows_loss(timeline)),
        doubtful_blocks(records_lost ? kDoubtfulIfLost : kDoubtfulBlocks),
        has_doubt(timeline.has_suspect_windows()),
        healer(walker) {}

  Walker walker;
  Runner runner;
  bool modes_differ = false;    ///< in the segment's packets: its code may be of another mode
  bool thread_unknown = false;  ///< no TSC tells which of the cpu's context switches come before the segment or in it
  bool may_heal;                ///< some address has several contents over time
  std::set<SpaceId> changing;   ///< see changing_spaces
  bool records_lost;            ///< records of kernel code are known to be missing
  uint64_t doubtful_blocks;     ///< number of blocks before an unexplained contradiction that become suspect
  bool has_doubt;               ///< LOST records exist, which give the time of the loss
  uint32_t doubt = 0;           ///< number of following blocks that are suspect because of an uncertain block before them
  bool exact = false;           ///< this segment is walked without the fast path
  bool replay_due = false;      ///< set on the fast path: the exact walker must redo the segment
  HealSearch healer;
  Checkpoint older, newer;
  BatchPlace given;                          ///< output of the segment returned so far, without `held`
  BatchPlace since_gap;                      ///< position in the segment's output at which the current stretch of flow begins
  uint64_t fixed_blocks = 0;                 ///< blocks that the fast path returned before the exact walker restarted the segment
  Batch held;                                ///< output that is not returned yet
  size_t batch_blocks = 0;                   ///< requested size of a batch
  size_t enough_blocks = 0;                  ///< size at which the current batch is full, including the blocks held before
  std::map<uint64_t, uint32_t> vain;         ///< searches that found nothing, by ip of the contradiction
  uint64_t work = 0;                         ///< work of the segment without fetches, see max_segment_work()
  uint64_t fetch_work_before = 0;            ///< Walker::fetch_work() when the segment began
  bool unproven = false;                     ///< another flow was dropped, or neither contradicted nor merged with this one
  bool unproven_stacks = false;              ///< it may have had another return stack
  TimeNs proven_not_before;                  ///< of the flow before
  std::vector<std::unique_ptr<Flow>> flows;  ///< alive
  std::vector<std::unique_ptr<Flow>> spare;
  std::unique_ptr<Flow> best_dead;  ///< the flow of the current fork that got furthest before it ended
  Loss best_loss;
  uint32_t dead_ties = 0;  ///< other ended flows that got as far as best_dead
  bool best_done = false;  ///< best_dead reached the segment's end
  bool pruned = false;     ///< some flow was dropped because of a limit or missing code, so the survivor is not proven
  bool dropped = false;    ///< one of them was a flow more than options().max_candidates
  uint64_t fork_position = 0;
  TimeNs fork_not_before;
  bool segment_done = true;
  DecoderStats stats;

  std::unique_ptr<Flow> new_flow();
  void retire(std::unique_ptr<Flow> flow);
  void fork(size_t index);
  void step_all(uint64_t position, const Batch& batch);
  bool step(size_t index, uint64_t position);
  void merge_equal();
  void prune(size_t most);
  void note_dead(std::unique_ptr<Flow> flow, const Loss& loss, bool done);
  void resolve(Batch& batch);
  void settle_on(std::unique_ptr<Flow> flow, bool ambiguous, Batch& batch);
  void run_forked(Batch& batch);
  bool run_single(Batch& batch);
  void doubt_flow(TimeNs not_before, bool stacks);
  void start(const AuxSegment& segment);
  bool fill(Batch& batch);
  BatchPlace settled_end(const Batch& batch) const;
  [[nodiscard]] bool keeps_settled(uint64_t same, const Batch& batch) const;
  bool start_over(Batch& batch, BatchPlace already);
  void set_checkpoint(Batch& batch);
  void drop_checkpoints();
  [[nodiscard]] bool may_have_strayed(const Loss& loss);
  bool heal(uint64_t contradicted, const Loss& loss, Batch& batch);
  void give_up(const Gap& gap, Batch& batch);
  [[nodiscard]] uint64_t work_done() const;
  [[nodiscard]] uint64_t work_left() const;
  [[nodiscard]] bool is_spent(const Batch& batch) const;
  void spread_doubt(Batch& batch);
  Gap gap_of(const Loss& loss, const Flow& flow) const;
  void tell_lost_after(Batch& batch);
  void tell_pause(Batch& batch);
};

Decoder::Decoder(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, options)) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
const BlockTable& Decoder::blocks() const { return state_->walker.blocks(); }
const DecoderStats& Decoder::stats() const { return state_->stats; }

std::unique_ptr<Flow> Decoder::State::new_flow() {
  if (spare.empty()) return std::make_unique<Flow>();
  std::unique_ptr<Flow> flow = std::move(spare.back());
  spare.pop_back();
  return flow;
}

void Decoder::State::retire(std::unique_ptr<Flow> flow) {
  if (!flow) return;
  flow->pending.clear();
  if (spare.size() < 64) spare.push_back(std::move(flow));
}

void Decoder::begin(const AuxSegment& segment) {
  state_->exact = state_->walker.options().exact_only;
  state_->doubt = 0;
  state_->fixed_blocks = 0;
  state_->start(segment);
  state_->modes_differ = modes_contradict(segment, state_->walker.options().config, state_->walker.items().start().mode);
  state_->thread_unknown = state_->walker.thread_is_unknown();
}

void Decoder::State::start(const AuxSegment& segment) {
  for (auto& flow : flows) retire(std::move(flow));
  flows.clear();
  retire(std::move(best_dead));
  dead_ties = 0;
  best_done = pruned = dropped = false;
  segment_done = replay_due = false;
  drop_checkpoints();
  given = {};
  held.clear();
  vain.clear();
  work = 0;
  fetch_work_before = walker.fetch_work();
  unproven = false;
  auto flow = new_flow();
  flow->pending.clear();
  flow->write_to_pending();  // the state from the PSB+; moved to the caller's batch by next()
  walker.begin(segment, *flow);
  if (is_loss(segment.break_before)) {
    Gap gap;
    gap.reason = GapReason::aux_lost;
    gap.stream_offset_bytes = segment.stream_offset_bytes;
    gap.time = {segment.time.first, segment.time.first};
    walker.give_gap(*flow, gap);
  }
  flows.push_back(std::move(flow));
}

namespace {

bool same_flow(const FlowState& a, const FlowState& b, bool compare_returns) {
  return a.ip == b.ip && a.enabled == b.enabled && a.lost == b.lost && a.doubtful == b.doubtful && a.whole_ip_at == b.whole_ip_at &&
         a.countdown == b.countdown && a.mode == b.mode && a.context == b.context && a.next == b.next && a.tnt_count == b.tnt_count &&
         a.tnt == b.tnt && a.position == b.position && (!compare_returns || a.returns.equals(b.returns));
}

}  // namespace

Gap Decoder::State::gap_of(const Loss& loss, const Flow& flow) const {
  Gap gap;
  gap.reason = loss.reason;
  gap.ip = loss.ip;
  gap.space = loss.space;
  gap.section = loss.section;
  gap.stream_offset_bytes = walker.segment().stream_offset_bytes + loss.offset_bytes;
  gap.time = flow.state.moment();
  return gap;
}

// Outputs a gap if the trace after the last segment is missing, and the end of tracing if another snapshot or window follows.
void Decoder::State::tell_lost_after(Batch& batch) {
  const AuxBreak why = walker.segment().lost_after;
  if (why == AuxBreak::snapshot) return tell_pause(batch);
  if (!is_loss(why)) return;
  Loss loss;
  loss.reason = GapReason::aux_lost;
  loss.offset_bytes = walker.segment().bytes.size();
  Gap gap = gap_of(loss, *flows[0]);
  gap.before_block = static_cast<uint32_t>(batch.blocks.size());
  batch.gaps.push_back(gap);
}

void Decoder::State::tell_pause(Batch& batch) {
  const FlowState& state = flows[0]->state;
  if (!state.enabled || state.lost) return;
  Event event;
  event.kind = EventKind::disabled;
  event.before_block = static_cast<uint32_t>(batch.blocks.size());
  event.stream_offset_bytes = walker.segment().stream_offset_bytes + walker.segment().bytes.size();
  event.time = state.moment();
  const Moment& last = walker.items().at(state.next).own;  // of the last timing packet
  event.about = std::max(state.moment_first, last.about);
  event.cycles = last.cycles;
  batch.events.push_back(event);
}

uint64_t Decoder::State::work_done() const { return work + (walker.fetch_work() - fetch_work_before); }

uint64_t Decoder::State::work_left() const {
  const uint64_t most = max_segment_work(walker.segment().bytes.size() - walker.segment().tail_bytes);
  return most - std::min(most, work_done());
}

// Returns whether the work limit is reached, so that the flow after `batch` must do without choices between contents. The fast path
// returned blocks as if the limit was not reached, so a restarted walk does the same up to that point.
bool Decoder::State::is_spent(const Batch& batch) const { return work_left() == 0 && given.blocks + batch.blocks.size() >= fixed_blocks; }

// Replaces flows[index] by one flow per candidate.
void Decoder::State::fork(size_t index) {
  const std::vector<Candidate> candidates = walker.candidates();
  std::unique_ptr<Flow> parent = std::move(flows[index]);
  flows.erase(flows.begin() + static_cast<std::ptrdiff_t>(index));
  const size_t likely = likely_candidate(candidates, parent->state.now);
  for (size_t i = 0; i < candidates.size(); ++i) {
    auto flow = new_flow();
    *flow = *parent;
    walker.count_copy();
    work += parent->pending.blocks.size() / kCopiedPerStep;
    flow->write_to_pending();
    if (i != likely) ++flow->penalty;
    if (walker.choose(*flow, candidates[i], static_cast<uint16_t>(BlockFlag::chosen))) {
      flows.push_back(std::move(flow));
    } else {
      note_dead(std::move(flow), walker.loss(), false);
    }
  }
  retire(std::move(parent));
}

void Decoder::State::note_dead(std::unique_ptr<Flow> flow, const Loss& loss, bool done) {
  if (!done && !contradicts_code(loss.reason)) pruned = true;  // it cannot be followed without its code, or within the limits
  const bool longer = !best_dead || flow->state.position > best_dead->state.position;
  const bool as_long = best_dead && flow->state.position == best_dead->state.position;
  const bool better = longer || (as_long && ((done && !best_done) || (done == best_done && flow->penalty < best_dead->penalty)));
  if (as_long && done == best_done) {
    ++dead_ties;
    if (better)
      mark_difference(flow->pending, best_dead->pending);
    else
      mark_difference(best_dead->pending, flow->pending);
  } else if (better) {
    dead_ties = 0;
  }
  if (better) {
    retire(std::move(best_dead));
    best_dead = std::move(flow);
    best_loss = loss;
    best_done = done;
  } else {
    retire(std::move(flow));
  }
}

// Steps each flow until it has taken `position` branches, targets and events. A step in which the work limit is reached ends early on the
// fast path; the exact walker completes it with few flows.
void Decoder::State::step_all(uint64_t position, const Batch& batch) {
  const bool limited = given.blocks + batch.blocks.size() >= fixed_blocks;
  walker.limit_fetch_work(limited ? work_left() : Walker::kNoWorkLimit);
  for (size_t i = 0; i < flows.size();) {
    const bool spent = is_spent(batch);
    if (spent && !exact) return;
    const size_t most = spent ? kMaxFlowsLater : walker.options().max_candidates;
    if (flows.size() > (spent ? most : 4 * most)) prune(most);
    if (i < flows.size() && step(i, position)) ++i;
  }
}

// Steps one flow. Returns false if it is replaced: it ended, or its children follow the other flows.
bool Decoder::State::step(size_t index, uint64_t position) {
  const uint64_t walked_before = walker.walked();
  const WalkStop stop = walker.run(*flows[index], position);
  work += walker.walked() - walked_before;
  fetch_steps().walked += walker.walked() - walked_before;
  if (stop == WalkStop::position) return true;
  if (stop == WalkStop::fork) {
    fork(index);
    return false;
  }
  const bool done = walker.at_end(flows[index]->state);
  std::unique_ptr<Flow> flow = std::move(flows[index]);
  flows.erase(flows.begin() + static_cast<std::ptrdiff_t>(index));
  note_dead(std::move(flow), walker.loss(), done);
  return false;
}

// Merges flows at the same position with the same pending packets, which continue identically.
void Decoder::State::merge_equal() {
  for (size_t i = 0; i < flows.size(); ++i) {
    for (size_t j = i + 1; j < flows.size();) {
      if (!same_flow(flows[i]->state, flows[j]->state, walker.merges_stacks()) ||
          flows[i]->block_instructions != flows[j]->block_instructions) {
        ++j;
        continue;
      }
      if (flows[j]->penalty < flows[i]->penalty) std::swap(flows[i], flows[j]);
      mark_difference(flows[i]->pending, flows[j]->pending);
      walker.forget_chosen_times(flows[i]->state, std::min(flows[i]->state.not_before, flows[j]->state.not_before));
      retire(std::move(flows[j]));
      flows.erase(flows.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

void Decoder::State::prune(size_t most) {
  if (flows.size() <= most) return;
  std::stable_sort(flows.begin(), flows.end(), [](const auto& a, const auto& b) { return a->penalty < b->penalty; });
  while (flows.size() > most) {
    retire(std::move(flows.back()));
    flows.pop_back();
    pruned = dropped = true;
  }
}

// Steps several flows until one is left or a bound is reached.
void Decoder::State::run_forked(Batch& batch) {
  uint64_t position = fork_position;
  walker.count_fetches(true);
  bool spent = false;
  while (flows.size() > 1 || (flows.size() == 1 && best_done)) {  // a flow that reached the end waits for the others
    step_all(++position, batch);
    spent = is_spent(batch);
    if (!spent || exact) merge_equal();
    work += flows.size() * flows.size() / kCopiedPerStep;
    spent = is_spent(batch);
    size_t held_blocks = 0;
    for (const auto& flow : flows) held_blocks += flow->pending.blocks.size();
    prune(spent ? kMaxFlowsLater : walker.options().max_candidates);
    if (spent && !exact) {  // the exact walker must determine the place at which the limit is reached
      walker.count_fetches(false);
      replay_due = true;
      return;
    }
    if (spent && position - fork_position > kMaxUndecidedLater) break;
    if (held_blocks > walker.options().max_held_blocks || position - fork_position > kMaxUndecided) break;
    const Checkpoint& oldest = older.valid ? older : newer;
    uint64_t lowest = exact && oldest.valid ? oldest.flow.state.next : Flow::kNoLimit;
    for (const auto& flow : flows) lowest = std::min(lowest, flow->state.next);
    if (lowest != Flow::kNoLimit && lowest > 1) walker.items().release(lowest - 1);
  }
  // A flow that ended for its missing code may come back, with the same stack, before the next packet with an address.
  if (pruned || flows.size() > 1) doubt_flow(fork_not_before, dropped || flows.size() > 1);
  walker.count_fetches(false);
  resolve(batch);
}

void Decoder::State::resolve(Batch& batch) {
  const bool ambiguous = pruned;
  const bool several = pruned || flows.size() > 1;
  std::unique_ptr<Flow> winner;
  if (flows.size() == 1) {
    winner = std::move(flows[0]);
  } else if (flows.size() > 1) {
    std::stable_sort(flows.begin(), flows.end(), [](const auto& a, const auto& b) { return a->penalty < b->penalty; });
    for (size_t i = 1; i < flows.size(); ++i) {
      mark_difference(flows[0]->pending, flows[i]->pending);
      retire(std::move(flows[i]));
    }
    winner = std::move(flows[0]);
  }
  flows.clear();
  if (winner) {
    if (several) walker.forget_chosen_times(winner->state, fork_not_before);
    settle_on(std::move(winner), ambiguous, batch);
  } else if (best_dead) {  // none is left: output the one that got furthest, up to its end
    std::unique_ptr<Flow> dead = std::move(best_dead);
    if (!best_done && heal(dead->state.position, best_loss, batch)) {
      retire(std::move(dead));
    } else {
      Gap gap = gap_of(best_loss, *dead);
      if (dropped) gap.reason = GapReason::limit;     // one that was dropped may be right
      if (!best_done) walker.finish_block(*dead, 0);  // marked like the others
      settle_on(std::move(dead), ambiguous, batch);
      flows[0]->write_to(batch, enough_blocks);
      if (!best_done) give_up(gap, batch);
    }
  }
  retire(std::move(best_dead));
  dead_ties = 0;
  best_done = pruned = dropped = false;
}

void Decoder::State::settle_on(std::unique_ptr<Flow> flow, bool ambiguous, Batch& batch) {
  if (ambiguous) mark_ambiguous(flow->pending, 0);
  append_batch(batch, flow->pending);
  flows.clear();
  flows.push_back(std::move(flow));
}

// Sets a checkpoint at the current position.
void Decoder::State::set_checkpoint(Batch& batch) {
  std::swap(older, newer);
  newer.valid = true;
  if (exact) newer.flow = *flows[0];
  newer.flow.state.position = flows[0]->state.position;
  newer.output = given + end_of(batch);
  if (!older.valid) since_gap = newer.output;
}

void Decoder::State::drop_checkpoints() { older.valid = newer.valid = false; }

// Returns whether another content at some address passed may resolve the contradiction. If code is missing, that is possible only if the
// address has code at another time, or code of the space changed and no packet gave the address.
bool Decoder::State::may_have_strayed(const Loss& loss) {
  if (loss.reason != GapReason::no_image) return contradicts_code(loss.reason);
  return (changing.contains(loss.space) && !loss.at_given_ip) || walker.ever_has_code(loss.space, loss.ip);
}

// Returns whether an alternative path, whose first blocks up to number `same` are those of `batch`, keeps what later contradictions cannot
// affect.
bool Decoder::State::keeps_settled(uint64_t same, const Batch& batch) const {
  const uint64_t fixed = fixed_blocks - std::min(fixed_blocks, given.blocks);
  return same >= std::max(settled_end(batch).blocks, fixed);
}

// Handles a contradiction of the only flow at `contradicted`. Returns true if a checkpoint leads to another path, whose output is then in
// `batch`.
bool Decoder::State::heal(uint64_t contradicted, const Loss& loss, Batch& batch) {
  const Checkpoint& from = older.valid ? older : newer;
  if (!may_heal || !from.valid || !may_have_strayed(loss)) return false;
  if (!exact) {  // earlier items were released
    replay_due = true;
    return false;
  }
  uint32_t& vain_here = vain[loss.ip.value];
  if (vain_here >= kMaxVainSearches || work_left() == 0) return false;
  const uint64_t walked_before = walker.walked();
  walker.count_fetches(true);
  const TimeNs not_before = unproven ? std::min(proven_not_before, from.flow.state.not_before) : from.flow.state.not_before;
  std::unique_ptr<Flow> found = healer.find(from.flow, {contradicted, work_left(), unproven, not_before});
  walker.count_fetches(false);
  fetch_steps().walked += walker.walked() - walked_before;
  work += walker.walked() - walked_before;
  const BatchPlace begin = from.output - given;
  const size_t same = found ? copy_flags(found->pending, std::span(batch.blocks).subspan(begin.blocks)) : 0;
  if (found && !keeps_settled(begin.blocks + same, batch)) retire(std::move(found));
  if (!found) {
    ++vain_here;
    return false;
  }
  // Missing code contradicts nothing: another path on which all code is known fits, but need not be what ran.
  if (loss.reason == GapReason::no_image) mark_ambiguous(found->pending, same);
  ++stats.healed_by_packets;
  const bool placed = healer.mark_open(*found, same);
  if (!placed) doubt_flow(not_before, true);
  unproven = unproven && !placed;
  truncate(batch, begin);
  append_batch(batch, found->pending);
  for (auto& flow : flows) retire(std::move(flow));
  flows.clear();
  flows.push_back(std::move(found));
  return true;
}

// Outputs the gap for the only flow. If code and packets contradict each other, the path went wrong some branches before, so those blocks
// are marked suspect.
void Decoder::State::give_up(const Gap& gap, Batch& batch) {
  Flow& flow = *flows[0];
  walker.finish_block(flow, 0);
  const Checkpoint& oldest = older.valid ? older : newer;
  const bool no_contradiction = gap.reason == GapReason::no_image || gap.reason == GapReason::unknown_return;
  const bool strayed = no_contradiction && records_lost && is_kernel_half(gap.ip);
  if (oldest.valid && (contradicts_code(gap.reason) || gap.reason == GapReason::limit || strayed)) {
    for (uint64_t i = settled_end(batch).blocks; i < batch.blocks.size(); ++i) {
      batch.blocks[i].flags |= static_cast<uint16_t>(BlockFlag::suspect);
    }
  }
  walker.forget_chosen_times(flow.state, walker.segment().time.first);  // what the lost flow chose may be wrong
  walker.recover(flow, gap);
  unproven = false;
  drop_checkpoints();
}

// From here on the flow is one of several. Before they parted, its time was `not_before` or later. `stacks`: others may have other return
// stacks.
void Decoder::State::doubt_flow(TimeNs not_before, bool stacks) {
  if (!unproven) proven_not_before = not_before;
  unproven_stacks = (unproven && unproven_stacks) || stacks;
  unproven = true;
}

// Runs the only flow that is alive. Returns false if the segment is done.
bool Decoder::State::run_single(Batch& batch) {
  for (;;) {
    Flow& flow = *flows[0];
    flow.write_to(batch, enough_blocks);
    const bool spent = is_spent(batch);
    if (spent && !exact) {  // as in run_forked()
      replay_due = true;
      return true;
    }
    walker.limit_fetch_work(work_left() == 0 ? Walker::kNoWorkLimit : work_left());
    walker.only_modest_fetches(spent);
    const size_t before = batch.blocks.size();
    const bool checkpoint_due = !newer.valid || (exact && flow.state.position >= newer.flow.state.position + kCheckpointEvery);
    if (checkpoint_due) set_checkpoint(batch);
    const uint64_t next = flow.state.next;
    const WalkStop stop = unproven ? walker.run(flow, flow.state.position + 1)
                          : exact  ? walker.run(flow, newer.flow.state.position + kCheckpointEvery)
                                   : runner.run(flow, flow.state.position + kFastStretch);
    if (!exact && runner.strayed()) {
      replay_due = true;
      return true;
    }
    const bool proof = unproven && stop == WalkStop::position && walker.is_placed_since(flow.state, next, unproven_stacks);
    const uint64_t needed = exact && newer.valid ? (older.valid ? older : newer).flow.state.next : flow.state.next;
    walker.items().release(needed == 0 ? 0 : needed - 1);
    if (unproven) mark_ambiguous(batch, before);
    if (proof) {
      walker.forget_chosen_times(flow.state, proven_not_before);
      unproven = false;
    }
    switch (stop) {
      case WalkStop::position:
        break;
      case WalkStop::full:
        return true;
      case WalkStop::done:
        return false;
      case WalkStop::lost: {
        const Loss loss = walker.loss();
        if (heal(flow.state.position, loss, batch)) break;
        if (replay_due) return true;
        const bool marked = unproven;
        give_up(gap_of(loss, flow), batch);
        if (marked) mark_ambiguous(batch, before);
        break;
      }
      case WalkStop::fork: {
        const bool marked = unproven;
        const size_t first = batch.blocks.size();
        fork_position = flow.state.position;
        fork_not_before = flow.state.not_before;
        flow.pending.clear();
        flow.penalty = 0;
        fork(0);
        run_forked(batch);
        if (marked) mark_ambiguous(batch, first);
        return true;
      }
    }
  }
}

// If records were lost, an uncertain branch may have gone to a place that is not among the candidates, which would show in the blocks after
// it. Marks these blocks as suspect.
void Decoder::State::spread_doubt(Batch& batch) {
  for (Block& block : batch.blocks) {
    if ((block.flags & kUncertainFlags) != 0) {
      doubt = kDoubtBehind;
    } else if (doubt != 0) {
      --doubt;
      block.flags |= static_cast<uint16_t>(BlockFlag::suspect);
    }
  }
}

// Returns the end of the blocks that no later contradiction can make doubtful.
BatchPlace Decoder::State::settled_end(const Batch& batch) const {
  const uint64_t since = since_gap.blocks - std::min(since_gap.blocks, given.blocks);
  const uint64_t end = batch.blocks.size() - std::min<uint64_t>(batch.blocks.size(), doubtful_blocks);
  return place_of(batch, std::max(since, end));
}

// Fills the batch from the current position in the segment. Returns false if the segment is done.
bool Decoder::State::fill(Batch& batch) {
  append_batch(batch, held);
  enough_blocks = batch.blocks.size() + batch_blocks;
  Flow& flow = *flows[0];
  if (flow.out == &flow.pending) append_batch(batch, flow.pending);
  bool more = true;
  while (more && !replay_due && batch.blocks.size() < enough_blocks) {
    more = run_single(batch);
  }
  const Checkpoint& oldest = older.valid ? older : newer;
  if (more && oldest.valid) {
    const BatchPlace settled = settled_end(batch), kept = oldest.output - given;
    split(batch, exact && kept.blocks < settled.blocks ? kept : settled, held);
  }
  given = given + end_of(batch);
  return more;
}

// Restarts the segment with the exact walker, which can go back, after the fast path met a contradiction. Output that was already returned
// is skipped.
bool Decoder::State::start_over(Batch& batch, BatchPlace already) {
  exact = true;
  fixed_blocks = already.blocks;
  start(walker.segment());
  bool more = true;
  Batch rest;
  do {
    batch.clear();
    more = fill(batch);
    const BatchPlace end = end_of(batch);
    const BatchPlace skipped{std::min(already.blocks, end.blocks), std::min(already.marks, end.marks), std::min(already.events, end.events),
                             std::min(already.gaps, end.gaps)};
    split(batch, skipped, rest);
    already = already - skipped;
    batch.clear();
    append_batch(batch, rest);
  } while (more && is_empty(batch));
  return more;
}

bool Decoder::fill(Batch& batch, size_t batch_blocks) {
  State& state = *state_;
  state.batch_blocks = batch_blocks;
  batch.clear();
  if (state.segment_done) return false;
  const BatchPlace already = state.given;
  bool more = state.fill(batch);
  if (state.replay_due) more = state.start_over(batch, already);
  if (!more) state.tell_lost_after(batch);
  if (state.has_doubt) state.spread_doubt(batch);
  if (state.modes_differ || state.thread_unknown) {
    for (Block& block : batch.blocks) block.flags |= static_cast<uint16_t>(BlockFlag::suspect);
  }
  state.stats.blocks += batch.blocks.size();
  state.segment_done = !more;
  return more;
}

}  // namespace ptd::pt
