// StreamClock: checks single PSBs.
#include "recording/trace/stream_clock.h"

#include <algorithm>

#include "decoder/arm/packet/timestamps.h"

namespace ptd {
namespace {

uint64_t distance(uint64_t a, uint64_t b) { return std::min((a - b) & ClockRatio::kTscMask, (b - a) & ClockRatio::kTscMask); }
// Whether `a` is earlier than `b`, of two TSCs of 56 bits that may have wrapped between them.
bool is_before(uint64_t a, uint64_t b) { return ((a - b) & ClockRatio::kTscMask) > ClockRatio::kTscMask / 2; }

}  // namespace

void StreamClock::judge(std::vector<PsbEntry>& entries) const {
  judge_missing(entries);
  if (phase) judge_phase(entries);
  judge_records(entries);
  if (in_order) of_arm ? judge_timestamps(entries) : judge_order(entries);
}

// A TMA comes only after a TSC ([SDM] "TMA Packet").
void StreamClock::judge_missing(std::vector<PsbEntry>& entries) const {
  for (PsbEntry& entry : entries)
    entry.is_contradicted |= entry.lacks_tsc && !entry.in_guest && (needs_tsc || (tma_needs_tsc && entry.has_tma));
}

// Whether the crystal clock agrees with the TSC.
bool StreamClock::is_right(const PsbEntry& entry) const {
  return phase && entry.has_tsc && entry.has_tma && !entry.is_contradicted && ratio.fits(ratio.phase_of(entry), *phase);
}

// Whether one wrong byte of the TMA packet, or of the lower half of the TSC packet, explains the phase. (A wrong byte above is far off.)
bool StreamClock::is_one_byte_off(const PsbEntry& entry) const {
  constexpr unsigned kLowBits = 32;
  for (unsigned bit = 0; bit < kLowBits; bit += 8) {
    for (uint64_t wrong = 1; wrong < 256; ++wrong) {
      PsbEntry tsc = entry, ctc = entry, fast = entry;
      tsc.tsc ^= wrong << bit;
      ctc.ctc ^= static_cast<uint16_t>(wrong << bit);
      fast.fast ^= static_cast<uint16_t>(wrong << bit);
      for (const PsbEntry* other : {&tsc, &ctc, &fast}) {
        if (ratio.is_near(ratio.phase_of(*other), *phase)) return true;
      }
    }
  }
  return false;
}

void StreamClock::judge_phase(std::vector<PsbEntry>& entries) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    PsbEntry& entry = entries[i];
    if (!entry.has_tsc || !entry.has_tma || entry.in_guest || is_right(entry)) continue;  // a guest's TSC is another clock
    const uint64_t found = ratio.phase_of(entry);
    const auto shift = std::find_if(shifts.begin(), shifts.end(), [&](const Shift& known) { return ratio.is_near(known.phase, found); });
    if (shift != shifts.end()) {
      entry.is_contradicted = true;
      if (shift->late_by > ClockRatio::kTscMask) {  // wrong by an unknown amount
        entry.has_tsc = false;
        continue;
      }
      entry.shift = static_cast<uint8_t>(shift - shifts.begin() + 1);
      entry.tsc = (entry.tsc - shift->late_by) & ClockRatio::kTscMask;
      continue;
    }
    const bool joins_before = i == 0 || (entry.in_user && is_right(entries[i - 1]));
    const bool joins_after = i + 1 == entries.size() || (entries[i + 1].in_user && is_right(entries[i + 1]));
    const bool is_apart = !joins_before || !joins_after || entries.size() == 1;
    if (of_thread && is_apart && (may_move || !is_one_byte_off(entry))) continue;
    entry.is_contradicted = true;
    entry.has_tsc = false;
  }
}

// Where the crystal clock confirms the TSC, the trace is not in order, or the TSC is far off.
void StreamClock::judge_records(std::vector<PsbEntry>& entries) const {
  for (PsbEntry& entry : entries) {
    if (!entry.has_tsc || entry.in_guest || entry.is_contradicted) continue;
    const auto& is_wrong = is_right(entry) || !contradicts_records ? is_far_off_records : contradicts_records;
    if (!is_wrong || !is_wrong(entry)) continue;
    entry.is_contradicted = entry.is_off_record = true;
    entry.has_tsc = false;
  }
}

// A TSC is wrong if those around it are in order without it. Where two are not in order and either may be wrong, it is the later one. Two
// such PSBs side by side, and those that the crystal clock agrees with, are not in order themselves: the decoder finds that. A TSC that is
// far from both neighbours is wrong nevertheless.
void StreamClock::judge_order(std::vector<PsbEntry>& entries) const {
  std::vector<PsbEntry*> timed;
  for (PsbEntry& entry : entries) {
    if (entry.has_tsc && !entry.in_guest) timed.push_back(&entry);
  }
  if (timed.size() < 3) return;
  std::vector<bool> wrong(timed.size()), far(timed.size());
  const size_t last = timed.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    const uint64_t tsc = timed[i]->tsc;
    const uint64_t before = timed[i == 0 ? 1 : i == last ? i - 2 : i - 1]->tsc;
    const uint64_t after = timed[i == 0 ? 2 : i == last ? i - 1 : i + 1]->tsc;
    if (is_before(after, before)) continue;
    far[i] = std::min(distance(tsc, before), distance(tsc, after)) >= kFarTicks;
    wrong[i] = (i != last && is_before(after, tsc)) || (i != 0 && is_before(tsc, before));
  }
  for (size_t i = 1; i <= last; ++i) {
    if (!wrong[i] && !wrong[i - 1] && is_before(timed[i]->tsc, timed[i - 1]->tsc)) wrong[i] = true;
  }
  for (size_t i = 0; i <= last; ++i) {
    const bool is_pair = (i != 0 && wrong[i - 1]) || (i != last && wrong[i + 1]);
    const bool must_be_far = phase && (!of_thread || is_right(*timed[i]));
    if (!wrong[i] || is_pair || (must_be_far && !far[i])) continue;
    timed[i]->is_contradicted = timed[i]->is_out_of_order = true;
    timed[i]->has_tsc = false;
  }
}

// A timestamp is wrong if those around it are in order without it, and another value of one byte is between them. Of two that are not in
// order and may be wrong, neither is used.
void StreamClock::judge_timestamps(std::vector<PsbEntry>& entries) {
  std::vector<PsbEntry*> timed;
  for (PsbEntry& entry : entries) {
    if (entry.has_tsc && entry.tsc != 0) timed.push_back(&entry);
  }
  if (timed.size() < 3) return;
  const size_t last = timed.size() - 1;
  const auto at = [&](size_t i) { return timed[i]->tsc; };
  const auto is_wrong = [&](size_t i) {
    uint64_t least = at(i == 0 ? 0 : i - 1), most = at(i == last ? last : i + 1);
    if (i == 0 || i == last) {  // about as far from the others as these are from each other
      const uint64_t next = i == 0 ? at(1) : at(last - 1), span = i == 0 ? at(last) - at(2) : at(last - 2) - at(0);
      const uint64_t step = i == 0 ? at(2) - next : next - at(last - 2);
      const bool is_odd = i == 0 ? at(0) > next : at(last) < next;
      if (!is_odd || span > ~uint64_t{0} / 2 || step > span) return false;
      least = i == 0 ? next - std::min(next, span) : next;
      most = i == 0 ? next : next + std::min(span, ~next);
    }
    return least <= most && (at(i) < least || at(i) > most) && arm::is_one_byte_off(at(i), least, most);
  };
  std::vector<size_t> wrong;
  for (size_t i = 0; i <= last; ++i) {
    if (is_wrong(i)) wrong.push_back(i);
  }
  for (const size_t i : wrong) {
    timed[i]->is_contradicted = timed[i]->is_out_of_order = true;
    timed[i]->has_tsc = false;
  }
}

TscCheck StreamClock::check_of(const PsbEntry& entry) const {
  if (!entry.is_contradicted) return {};
  if (!entry.has_tsc || entry.shift == 0 || entry.shift > shifts.size()) return {false, 0};
  return {true, shifts[entry.shift - 1U].late_by};
}

}  // namespace ptd
