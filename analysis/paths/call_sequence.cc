// CallSequences: see call_sequence.h.
#include "analysis/paths/call_sequence.h"

#include <algorithm>

#include "image/placed_name.h"

namespace ptd {

namespace {

constexpr uint64_t kLeftOut = 1;  // instead of a hash
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * kMultiplier;
  return hash ^ (hash >> 29);
}

bool flow_goes_on(CallLoss loss) {
  return loss == CallLoss::strange_return || loss == CallLoss::strange_resume || loss == CallLoss::new_program;
}

}  // namespace

std::string comparable_name(const FunctionInfo& function, const ModuleMatch& modules) {
  constexpr std::string_view kAnonymous = "[anon ";
  const std::string name = modules.renamed(function).name;
  return name.starts_with(kAnonymous) ? std::string(kAnonymous) : std::string(without_address(name));
}

uint64_t CallSequences::hash_of(FunctionId function) {
  const size_t index = function == kNoFunction ? 0 : size_t{function} + 1;
  if (index >= hashes_.size()) hashes_.resize(std::max(index + 1, 2 * hashes_.size()));
  uint64_t& hash = hashes_[index];
  if (hash != 0) return hash;
  const FunctionInfo info = function == kNoFunction ? FunctionInfo{} : functions_.info(function);
  if (!modules_.has_match(info)) {
    unmatched_.insert(info.module);
    return hash = kLeftOut;
  }
  hash = kLeftOut;
  for (const char letter : comparable_name(info, modules_)) hash = mix(hash, static_cast<unsigned char>(letter));
  return hash = std::max(hash, kLeftOut + 1);
}

// A handler that jumps to another function ends, and the other one begins in its place.
bool CallSequences::in_interrupt(State& state, const CallStep& step) {
  const std::optional<uint32_t> ended = std::exchange(state.ended, std::nullopt);
  if (step.kind == CallStepKind::enter) {
    if (state.interrupt && step.depth > *state.interrupt) return true;
    const bool goes_on = step.frame == FrameKind::tail && ended == step.depth;
    state.interrupt = step.frame == FrameKind::interrupt || goes_on ? std::optional(step.depth) : std::nullopt;
    return state.interrupt.has_value();
  }
  if (!state.interrupt || step.depth < *state.interrupt) return false;
  if (step.depth == *state.interrupt) state.ended = std::exchange(state.interrupt, std::nullopt);
  return true;
}

void CallSequences::take(const CallStep& step, std::string_view comm, int32_t tid) {
  if (step.thread >= states_.size()) states_.resize(size_t{step.thread} + 1);
  State& state = states_[step.thread];
  const bool call = step.kind == CallStepKind::enter || step.kind == CallStepKind::leave;
  if (!call && step.kind != CallStepKind::lost) return;
  if (state.thread == ~size_t{0}) {
    state.thread = threads_.size();
    threads_.emplace_back();
    threads_.back().tid = tid;
  }
  CallSequence& sequence = threads_[state.thread];
  // A child has its parent's name until it calls exec. A thread that names itself later is still the same worker.
  if (step.kind == CallStepKind::lost && step.loss == CallLoss::new_program) state.named = false;
  if ((step.kind == CallStepKind::enter && !std::exchange(state.named, true)) || sequence.comm.empty()) sequence.comm = comm;
  if (sequence.loss != CallLoss::none) return;
  if (!call) {
    if (!flow_goes_on(step.loss) || state.cut) sequence.loss = step.loss, sequence.lost = step.time;
    return;
  }
  CallMoment moment{step.kind == CallStepKind::enter,
                    (step.flags & kCallNoStart) == 0,
                    step.function,
                    CallPaths::kRoot,
                    step.start,
                    step.time,
                    step.self_instructions};
  const bool inside = in_interrupt(state, step), cut = (step.flags & kCallCut) != 0;
  state.cut = cut && (inside || state.cut);
  if (inside) {
    if (moment.enters && step.frame == FrameKind::interrupt) ++sequence.interrupts;
    return;
  }
  if (moment.enters) {
    open_.take(step);
    moment.path = open_.current(step.thread).path;
  } else {
    const std::optional<OpenCalls::Ended> ended = open_.take(step);
    if (!ended) return;
    moment.path = ended->call.path;
    moment.counted = (step.flags & (kCallNoStart | kCallMiddle | kCallCut | kCallUntraced)) == 0;
  }
  if (cut || hash_of(step.function) == kLeftOut) return;  // cut: the trace or the stack ends here, not the call
  add(state, moment);
}

void CallSequences::add(State& state, const CallMoment& moment) {
  CallSequence& sequence = threads_[state.thread];
  if (const auto range = wanted_.find(state.thread); range != wanted_.end() && sequence.moments - range->second.first < range->second.count)
    kept_[state.thread].push_back(moment);
  state.calls = mix(state.calls, moment.enters ? hash_of(moment.function) : 2);
  state.instructions = mix(state.instructions, moment.enters ? hash_of(moment.function) : moment.counted ? moment.instructions + 3 : 2);
  if (++sequence.moments % kPiece != 0) return;
  sequence.calls.push_back(state.calls);
  sequence.instructions.push_back(state.instructions);
}

void CallSequences::finish() {
  for (const State& state : states_) {
    if (state.thread == ~size_t{0} || threads_[state.thread].moments % kPiece == 0) continue;
    threads_[state.thread].calls.push_back(state.calls);
    threads_[state.thread].instructions.push_back(state.instructions);
  }
}

std::vector<ThreadPair> match_threads(const std::vector<CallSequence>& a, const std::vector<CallSequence>& b) {
  std::map<std::pair<std::string_view, size_t>, size_t> of_b;
  std::map<std::string_view, size_t> count_a, count_b;
  for (size_t i = 0; i < b.size(); ++i) of_b.emplace(std::pair(std::string_view(b[i].comm), count_b[b[i].comm]++), i);
  std::vector<ThreadPair> pairs;
  std::vector<size_t> left;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto found = of_b.find({a[i].comm, count_a[a[i].comm]++});
    if (found == of_b.end()) {
      left.push_back(i);
      continue;
    }
    pairs.push_back({i, found->second});
    of_b.erase(found);
  }
  if (left.size() == 1 && of_b.size() == 1) pairs.push_back({left.front(), of_b.begin()->second});
  if (left.size() < 2 && of_b.size() < 2) return pairs;
  const auto renamed = [](std::string_view name, const auto& mine, const auto& others, size_t lefts) {
    return !others.contains(name) && mine.at(name) == lefts;
  };
  const bool both = !left.empty() && !of_b.empty() && renamed(a[left.front()].comm, count_a, count_b, left.size()) &&
                    renamed(of_b.begin()->first.first, count_b, count_a, of_b.size());
  if (!both) return pairs;
  auto other = of_b.begin();
  for (auto mine = left.begin(); mine != left.end() && other != of_b.end(); ++mine, ++other) pairs.push_back({*mine, other->second});
  return pairs;
}

std::optional<uint64_t> first_difference(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (differs.first == a.end() && differs.second == b.end()) return std::nullopt;
  return static_cast<uint64_t>(differs.first - a.begin());
}

}  // namespace ptd
