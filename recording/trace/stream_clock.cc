// Checks of single PSBs.
#include "recording/trace/stream_clock.h"

#include <algorithm>

namespace ptd {
namespace {

constexpr uint64_t kTscMask = (uint64_t{1} << ClockRatio::kTscBits) - 1;

void discard(PsbEntry& entry) {
  entry.is_contradicted = true;
  entry.has_tsc = false;
}

// Whether `a` is earlier than `b`, of two TSCs of 56 bits that may have wrapped between them.
bool is_before(uint64_t a, uint64_t b) { return ((a - b) & kTscMask) > kTscMask / 2; }

}  // namespace

void StreamClock::judge(std::vector<PsbEntry>& entries) const {
  if (phase) {
    for (PsbEntry& entry : entries) judge_phase(entry);
  } else if (in_order) {
    judge_order(entries);
  }
}

// A guest's TSC is another clock.
void StreamClock::judge_phase(PsbEntry& entry) const {
  if (!entry.has_tsc || !entry.has_tma || entry.in_guest) return;
  const uint64_t found = ratio.phase_of(entry);
  if (ratio.fits(found, *phase)) return;
  const auto shift = std::find_if(shifts.begin(), shifts.end(), [&](const Shift& known) { return ratio.is_near(known.phase, found); });
  if (shift == shifts.end()) return discard(entry);
  entry.is_contradicted = true;
  entry.shift = static_cast<uint8_t>(shift - shifts.begin() + 1);
  entry.tsc = (entry.tsc - shift->late_by) & kTscMask;
}

// A TSC is wrong if those around it are in order without it. Where two are not in order and either may be wrong, the later one is
// discarded.
void StreamClock::judge_order(std::vector<PsbEntry>& entries) {
  std::vector<PsbEntry*> timed;
  for (PsbEntry& entry : entries) {
    if (entry.has_tsc && !entry.in_guest) timed.push_back(&entry);
  }
  if (timed.size() < 3) return;
  std::vector<bool> wrong(timed.size());
  const size_t last = timed.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    const uint64_t tsc = timed[i]->tsc;
    const uint64_t before = timed[i == 0 ? 1 : i == last ? i - 2 : i - 1]->tsc;
    const uint64_t after = timed[i == 0 ? 2 : i == last ? i - 1 : i + 1]->tsc;
    if (is_before(after, before)) continue;
    wrong[i] = (i != last && is_before(after, tsc)) || (i != 0 && is_before(tsc, before));
  }
  for (size_t i = 1; i <= last; ++i) {
    if (!wrong[i] && !wrong[i - 1] && is_before(timed[i]->tsc, timed[i - 1]->tsc)) wrong[i] = true;
  }
  for (size_t i = 0; i <= last; ++i) {
    if (wrong[i]) discard(*timed[i]);
  }
}

TscCheck StreamClock::check_of(const PsbEntry& entry) const {
  if (!entry.is_contradicted) return {};
  if (!entry.has_tsc || entry.shift == 0 || entry.shift > shifts.size()) return {false, 0};
  return {true, shifts[entry.shift - 1U].late_by};
}

}  // namespace ptd
