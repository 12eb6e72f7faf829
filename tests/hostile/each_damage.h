// Cuts and mutations of a file, and numbers in it.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/hostile/damage.h"
#include "tests/hostile/digest.h"

namespace ptd::test {

/// Eight bytes of a file; 0 beyond its end.
inline uint64_t number_at(const std::vector<std::byte>& file, size_t at) {
  uint64_t out = 0;
  if (at + 8 <= file.size()) std::memcpy(&out, file.data() + at, 8);
  return out;
}

/// Cuts and mutations of `file`, by the plan; `use` gets each with the range of damaged bytes.
template <class Use>
void each_damage(const std::string& name, const std::vector<std::byte>& file, const DamagePlan& plan, const Use& use) {
  if (file.empty()) return;
  Random random(plan.seed);
  const auto size = static_cast<uint32_t>(file.size());
  for (uint64_t i = 0; i < plan.cuts; ++i) {
    const uint64_t at = random.below(size);
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<long>(at));
    use(name + " cut at " + std::to_string(at), cut, DamagedRange{at, ~0ULL});
  }
  for (uint64_t i = 0; i < plan.mutations; ++i) {
    const uint64_t at = random.below(size), length = 1 + random.below(8);
    use(name + " mutated at " + std::to_string(at), mutated(file, at, length, random.next()), DamagedRange{at, at + length});
  }
}

}  // namespace ptd::test
