// HealSearch: depth-first search over the choices passed, latest first; first with one deviating choice, then with two.
#include "decoder/pt/flow/heal_search.h"

#include <algorithm>

namespace ptd::pt {
namespace {

constexpr uint64_t kProof = 192;    // branches, targets and events that must fit beyond the contradiction
constexpr uint32_t kMaxStrays = 2;  // choices out of time in one search
constexpr size_t kMaxPins = 64;

}  // namespace

std::unique_ptr<Flow> HealSearch::find(const Flow& from, const Search& how) {
  how_ = how;
  work_limit_ = walker_->work() + how.most_work;
  walker_->survey(true);
  std::unique_ptr<Flow> found;
  for (uint32_t strays = 1; strays <= kMaxStrays && !found; ++strays) found = search(from, strays);
  walker_->survey(false);
  open_.clear();
  for (const Choice& choice : path_) {
    if (found && choice.is_open) open_.push_back(choice.output.blocks);
  }
  path_.clear();
  return found;
}

bool HealSearch::mark_open(Flow& found, size_t first) const {
  bool placed = true;
  const auto mark = [&](size_t from) {
    const auto end = std::ranges::upper_bound(placed_, from);
    placed = end != placed_.end();
    mark_ambiguous(found.pending, from, placed ? *end : found.pending.blocks.size());
  };
  if (how_.doubtful) mark(first);
  const size_t begun = first - std::min<size_t>(first, 1);  // a choice may be within a block that is not output yet
  for (auto at = std::ranges::lower_bound(open_, begun); at != open_.end(); ++at) mark(*at);
  return placed;
}

// Runs until the flow fits far enough beyond the contradiction, taking the likely option at each fork. Returns false if the flow ends
// before; take_next() can then try another option.
bool HealSearch::advance(Flow& flow, uint32_t strays) {
  for (;;) {
    const uint64_t next = flow.state.next;
    const WalkStop stop = walker_->run(flow, flow.state.position + 1);
    if (stop == WalkStop::position) {
      if (walker_->is_placed_since(flow.state, next, true)) {
        placed_.push_back(flow.pending.blocks.size());
        if (how_.doubtful || std::ranges::any_of(path_, &Choice::is_open)) walker_->forget_chosen_times(flow.state, how_.not_before);
      }
      if (flow.state.position >= how_.contradicted + kProof) return true;
      continue;
    }
    if (stop == WalkStop::done)
      return flow.state.position > how_.contradicted || (flow.state.position == how_.contradicted && walker_->at_end(flow.state));
    if (stop != WalkStop::fork || walker_->work() > work_limit_) return false;
    Choice choice;
    choice.options = walker_->candidates();
    choice.output = end_of(flow.pending);
    Batch output;
    std::swap(output, flow.pending);
    choice.before = std::make_unique<Flow>(flow);
    walker_->count_copy();
    std::swap(output, flow.pending);
    choice.is_open = std::ranges::count_if(choice.options, &Candidate::in_time) > 1;
    choice.next = 1;
    choice.strays = strays;
    const Candidate likely = choice.options[0];
    path_.push_back(std::move(choice));
    if (!walker_->choose(flow, likely, 0)) return false;
  }
}

bool HealSearch::take(Flow& flow, const Candidate& candidate, Interval default_certain) {
  if (!candidate.in_time) {
    const FlowState& state = flow.state;
    Pin pin;
    pin.ip = state.ip;
    pin.space = space_at(state.context.space, state.ip);
    pin.during = {state.now.first, default_certain.contains(state.now) ? default_certain.last : state.now.last};
    pin.candidate = candidate;
    pin.candidate.in_time = true;
    std::erase_if(flow.pins, [&](const Pin& other) { return other.ip == pin.ip && other.space == pin.space; });
    if (flow.pins.size() < kMaxPins) flow.pins.push_back(pin);
  }
  return walker_->choose(flow, candidate, static_cast<uint16_t>(BlockFlag::chosen));
}

// Returns to the last choice with an untried option and takes it. Returns false if there is none.
bool HealSearch::take_next(Flow& flow, uint32_t& strays, uint32_t max_strays) {
  while (!path_.empty()) {
    Choice& last = path_.back();
    while (last.next < last.options.size()) {
      const Candidate option = last.options[last.next++];
      strays = last.strays + (option.in_time ? 0 : 1);
      if (strays > max_strays) continue;
      Batch output;
      std::swap(output, flow.pending);
      truncate(output, last.output);
      while (!placed_.empty() && placed_.back() > last.output.blocks) placed_.pop_back();
      flow = *last.before;
      walker_->count_copy();
      std::swap(output, flow.pending);
      flow.write_to_pending();
      if (take(flow, option, last.options[0].certain)) return true;
    }
    path_.pop_back();
  }
  return false;
}

std::unique_ptr<Flow> HealSearch::search(const Flow& from, uint32_t max_strays) {
  path_.clear();
  placed_.clear();
  auto flow = std::make_unique<Flow>(from);
  flow->pending.clear();
  flow->write_to_pending();
  uint32_t strays = 0;
  for (;;) {
    if (advance(*flow, strays)) return flow;
    if (walker_->work() > work_limit_) return nullptr;
    if (!take_next(*flow, strays, max_strays)) return nullptr;
  }
}

}  // namespace ptd::pt
