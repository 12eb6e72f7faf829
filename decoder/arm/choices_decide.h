// decide(): chooses among the dated versions of the code of one segment.
#pragma once

#include <algorithm>

#include "decoder/arm/choices.h"

namespace ptd::arm {

/// One search: up to `trouble`, the first contradiction at or after `watch_from` that no version resolves.
struct ChoicePhase {
  uint64_t watch_from = 0;
  uint64_t trouble = ~uint64_t{0};
  size_t forks_end = 0;  ///< forks decided by this search and the earlier ones
};

template <typename Walk>
class ChoiceSearch {
 public:
  ChoiceSearch(Choices& choices, uint32_t max_tries, Walk& walk) : choices_(choices), max_tries_(max_tries), walk_(walk) {}

  void run() {
    choices_.forget_behind(0);
    std::vector<ChoicePhase> phases;
    for (uint64_t watch_from = 0;; watch_from = phases.back().trouble + 1) {
      phases.push_back(search(watch_from, phases.empty() ? 0 : phases.back().forks_end));
      if (phases.back().trouble == ~uint64_t{0} || tries_ >= max_tries_) break;
      // No version fits there: keep the choices that came furthest and continue after the contradiction.
      choices_.forks() = best_forks_;
      choices_.forget_behind(phases.back().forks_end);
    }
    weigh(phases);
  }

 private:
  Try attempt(uint64_t watch_from) {
    ++tries_;
    choices_.restart();
    return walk_(watch_from);
  }

  /// Depth first: the last fork before the contradiction is changed first. Forks before `fixed` do not change.
  ChoicePhase search(uint64_t watch_from, size_t fixed) {
    Try best = attempt(watch_from);
    best_forks_ = choices_.forks();
    size_t furthest_forks = best.forks_before;
    while (best.trouble_offset != ~uint64_t{0} && tries_ < max_tries_) {
      std::vector<Choices::Fork>& forks = choices_.forks();
      size_t turn = std::min(best.forks_before, forks.size());
      while (turn > fixed && forks[turn - 1].taken + 1 >= forks[turn - 1].count) --turn;
      if (turn <= fixed) break;
      choices_.forget_behind(turn);
      ++choices_.forks()[turn - 1].taken;
      const Try result = attempt(watch_from);
      if (result.trouble_offset > best.trouble_offset) {
        best = result;
        furthest_forks = result.forks_before;
        best_forks_ = choices_.forks();
      } else {
        best.forks_before = std::min(best.forks_before, turn);
      }
    }
    const bool fits = best.trouble_offset == ~uint64_t{0};
    return {watch_from, best.trouble_offset, fits ? best_forks_.size() : std::min(furthest_forks, best_forks_.size())};
  }

  /// Determines which other versions also fit.
  void weigh(const std::vector<ChoicePhase>& phases) {
    std::vector<Choices::Fork> forks = best_forks_;
    size_t phase = 0;
    for (size_t i = 0; i < forks.size(); ++i) {
      while (phase + 1 < phases.size() && i >= phases[phase].forks_end) ++phase;
      BlockFlag flag = i < phases.back().forks_end ? BlockFlag::chosen : BlockFlag::ambiguous;
      for (uint32_t other = 0; other < forks[i].count && flag == BlockFlag::chosen; ++other) {
        if (other == forks[i].taken) continue;
        if (tries_ >= max_tries_) flag = BlockFlag::ambiguous;
        if (tries_ >= max_tries_) break;
        choices_.forks() = forks;
        choices_.forget_behind(i + 1);
        choices_.forks()[i].taken = other;
        if (attempt(phases[phase].watch_from).trouble_offset >= phases[phase].trouble) flag = BlockFlag::ambiguous;
      }
      forks[i].flags = static_cast<uint16_t>(flag);
      forks[i].decided = true;
    }
    choices_.forks() = std::move(forks);
    choices_.restart();
  }

  Choices& choices_;
  const uint32_t max_tries_;
  Walk& walk_;
  uint32_t tries_ = 0;
  std::vector<Choices::Fork> best_forks_;
};

/// Decides `choices` for one segment. `walk(watch_from)` walks the segment with the current choices and returns the first packet that
/// contradicts them, ignoring packets before `watch_from` and before the first fork. If no content fits, decide() takes the one that walks
/// furthest, and decides what follows separately. Marks a fork `chosen` if the packets contradict every other content, and `ambiguous` if
/// they do not or if `max_tries` walks were not enough.
template <typename Walk>
void decide(Choices& choices, uint32_t max_tries, Walk walk) {
  ChoiceSearch<Walk>(choices, max_tries, walk).run();
}

}  // namespace ptd::arm
