// Choices: groups versions by how the flow continues.
#include "decoder/arm/choices.h"

#include <algorithm>
#include <cstring>

namespace ptd::arm {
namespace {

constexpr size_t kCandidatesPerStep = 16;  // that cost as much as one fetch

/// Versions with which the flow continues in the same way.
struct ForkWay {
  ArmInsn insn;
  size_t index = 0;  ///< of the likeliest
  bool same_bytes = true;
  bool single = true;
  Interval possible;
};

/// The instruction, as far as it decides how the flow continues.
ArmInsn insn_of(const CodeFork& fork, const CodeCandidate& candidate) {
  const ArmInsn insn = classify_arm(candidate.bytes, fork.mode);
  if (!fork.through_branches) return insn;
  ArmInsn plain;
  plain.cls = insn.cls == ArmClass::bad ? ArmClass::bad : ArmClass::other;
  plain.length_bytes = insn.length_bytes;
  return plain;
}

std::vector<ForkWay> ways_of(const CodeFork& fork, size_t likeliest) {
  std::vector<ForkWay> ways;
  for (size_t i = 0; i < fork.candidates.size(); ++i) {
    const CodeCandidate& candidate = fork.candidates[i];
    const ArmInsn insn = insn_of(fork, candidate);
    const auto alike = std::ranges::find_if(ways, [&](const ForkWay& way) { return way.insn == insn; });
    if (alike == ways.end()) {
      ways.push_back({insn, i, true, true, candidate.possible});
      continue;
    }
    const size_t compared = insn.length_bytes;
    const Bytes before = fork.candidates[alike->index].bytes;
    const bool whole = compared != 0 && before.size() >= compared && candidate.bytes.size() >= compared;
    alike->same_bytes = alike->same_bytes && whole && std::memcmp(before.data(), candidate.bytes.data(), compared) == 0;
    alike->single = false;
    alike->possible = hull(alike->possible, candidate.possible);
    if (i == likeliest) alike->index = i;
  }
  return ways;
}

}  // namespace

/// Returns the version that the flow has reached, else the oldest: the interval begins with the last timestamp, and often ends much later.
size_t Choices::likeliest(const CodeFork& fork) const {
  for (size_t i = 0; i < fork.candidates.size(); ++i) {
    const CodeCandidate& candidate = fork.candidates[i];
    const uint32_t reached = candidate.site == kNoSite ? 0 : bounds_.floors.of(candidate.site);
    if (reached != 0 && candidate.version == reached) return i;
  }
  return 0;
}

CodeChoice Choices::choose(const CodeFork& fork) {
  const size_t likely = likeliest(fork);
  const std::vector<ForkWay> ways = ways_of(fork, likely);
  size_t taken = 0;
  const ArmInsn likely_insn = insn_of(fork, fork.candidates[likely]);
  while (ways[taken].insn != likely_insn) ++taken;
  CodeChoice choice;
  script_->fetches += 1 + fork.candidates.size() / kCandidatesPerStep;
  const bool cut = ways.size() > 1 && script_->passed >= ForkScript::kMost;
  script_->cut = script_->cut || cut;
  if (ways.size() > 1 && !cut) {
    const size_t preferred = taken;
    if (script_->passed == script_->forks.size()) {
      script_->forks.push_back({static_cast<uint32_t>(preferred), static_cast<uint32_t>(ways.size())});
    }
    taken = script_->forks[script_->passed++].taken;
    if (taken != preferred) ++script_->unlikely;
    choice.block_flags = static_cast<uint16_t>(BlockFlag::chosen);
    const ForkWay& way = ways[taken];
    const CodeCandidate& candidate = fork.candidates[way.index];
    bounds_.not_before = std::max(bounds_.not_before, std::min(way.possible.first, fork.when.last));
    // A version that no record reports may have come and gone more than once.
    const bool reported = !any(candidate.flags, CodeFlag::healed);
    if (way.single && reported && candidate.site != kNoSite) bounds_.floors.raise(candidate.site, candidate.version);
  }
  const ForkWay& way = ways[taken];
  if (!way.same_bytes || cut) choice.block_flags = static_cast<uint16_t>(BlockFlag::ambiguous);
  choice.index = way.index;
  choice.size_bytes = way.insn.length_bytes != 0 ? way.insn.length_bytes : kArmFetchBytes;
  return choice;
}

}  // namespace ptd::arm
