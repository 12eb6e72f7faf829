// decide(): see choices.h.
#pragma once

#include <algorithm>

#include "decoder/arm/choices.h"

namespace ptd::arm {

template <typename Walk>
void decide(Choices& choices, uint32_t max_tries, Walk walk) {
  uint32_t tries = 0;
  const auto attempt = [&] {
    ++tries;
    choices.restart();
    return walk();
  };
  choices.forget_behind(0);
  Try best = attempt();
  std::vector<Choices::Fork> best_forks = choices.forks();
  const std::vector<Choices::Fork> none;
  // Depth first: the last fork before the contradiction is the first to be turned.
  while (best.trouble_offset != ~uint64_t{0} && tries < max_tries) {
    std::vector<Choices::Fork>& forks = choices.forks();
    size_t turn = std::min(best.forks_before, forks.size());
    const auto turned = [&] { return turn != 0 && forks[turn - 1].taken + 1 >= forks[turn - 1].count; };
    while (turned()) --turn;
    if (turn == 0) break;
    choices.forget_behind(turn);
    ++choices.forks()[turn - 1].taken;
    choices.forks()[turn - 1].decided = true;
    const Try result = attempt();
    if (result.trouble_offset > best.trouble_offset) {
      best = result;
      best_forks = choices.forks();
    } else {
      best.forks_before = std::min(best.forks_before, turn);
    }
  }
  // Of what is left, which other content would have done as well?
  for (size_t i = 0; i < best_forks.size(); ++i) {
    uint16_t flag = static_cast<uint16_t>(BlockFlag::chosen);
    for (uint32_t other = 0; other < best_forks[i].count; ++other) {
      if (other == best_forks[i].taken) continue;
      if (tries >= max_tries) {
        flag = static_cast<uint16_t>(BlockFlag::ambiguous);
        break;
      }
      choices.forks() = best_forks;
      choices.forget_behind(i + 1);
      choices.forks()[i].taken = other;
      choices.forks()[i].decided = true;
      if (attempt().trouble_offset >= best.trouble_offset) flag = static_cast<uint16_t>(BlockFlag::ambiguous);
    }
    best_forks[i].flags = flag;
    best_forks[i].decided = true;
  }
  choices.forks() = std::move(best_forks);
  choices.restart();
}

}  // namespace ptd::arm
