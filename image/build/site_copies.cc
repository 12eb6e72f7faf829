// SiteBuilder: dated copies. Determines by the bytes of a copy when in a site's history it was taken.
#include <algorithm>
#include <string>

#include "image/build/site_builder.h"

namespace ptd {
namespace {

constexpr std::byte kInt3{0xcc};
/// A poke leaves INT3 and partly written bytes for a short time around its record, and copies may contain them.
constexpr uint64_t kPokeWindowNs = 50'000'000;

TimeNs earlier(TimeNs t, uint64_t ns) { return t.value < ns ? kTimeMin : TimeNs{t.value - ns}; }
TimeNs later(TimeNs t, uint64_t ns) { return t.value > kTimeMax.value - ns ? kTimeMax : TimeNs{t.value + ns}; }

/// The number of steps that certainly precede `taken`, and the number that may.
struct Places {
  size_t first = 0, last = 0;
};
Places places(const std::vector<SiteStep>& steps, Interval taken) {
  Places p;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool initial = steps[i].kind == SiteStep::Kind::section && steps[i].time.first == kTimeMin;
    if (initial || steps[i].time.last < taken.first) p.first = i + 1;
    if (steps[i].time.first <= taken.last) p.last = i + 1;
  }
  p.last = std::max(p.first, p.last);
  return p;
}

}  // namespace

Interval widen(Interval when, uint64_t ns) { return {earlier(when.first, ns), later(when.last, ns)}; }

void SiteBuilder::place_copies(SiteInput& input) {
  for (const SiteCopy& copy : input.copies) place_copy(input, copy);
}

// Sets cost[p] to the number of ways (0 to 2) in which the copy contradicts having been taken after p steps: it differs from the bytes
// after step p - 1, or from the old bytes of step p.
void SiteBuilder::trace_records(const SiteInput& input, const SiteCopy& copy, std::vector<uint8_t>& cost) {
  const auto& steps = input.steps;
  const auto copy_end = copy.offset + static_cast<uint32_t>(copy.bytes.size());
  bytes_.assign(input.size, Byte{});
  for (const SiteStep& step : steps) {  // initial content: the old bytes of the first step at each byte
    for (uint32_t i = 0; i < step.size; ++i) {
      Byte& byte = bytes_[step.offset + i];
      if (byte.set_by >= 0) continue;
      const bool initial = step.kind == SiteStep::Kind::section && step.time.first == kTimeMin && !step.weak;
      if (step.kind == SiteStep::Kind::section && step.time.first == kTimeMin && step.weak) continue;
      const Bytes told = initial ? step.new_bytes : step.kind == SiteStep::Kind::record ? step.old_bytes : Bytes{};
      byte.set_by = 0;
      if (i < told.size()) {
        byte.value = told[i];
        byte.level = Level::known;
      }
    }
  }
  cost.assign(steps.size() + 1, 0);
  for (size_t p = 0; p <= steps.size(); ++p) {
    for (uint32_t offset = copy.offset; offset < copy_end; ++offset) {
      if (bytes_[offset].level == Level::known && bytes_[offset].value != copy.bytes[offset - copy.offset]) {
        cost[p] = 1;
        break;
      }
    }
    if (p == steps.size()) break;
    const SiteStep& step = steps[p];
    bool contradicts = false;
    for (uint32_t i = 0; i < step.size; ++i) {
      const uint32_t offset = step.offset + i;
      const bool copied = offset >= copy.offset && offset < copy_end;
      if (copied && i < step.old_bytes.size() && step.old_bytes[i] != copy.bytes[offset - copy.offset]) contradicts = true;
      Byte& byte = bytes_[offset];
      if (step.kind == SiteStep::Kind::observe) continue;
      byte.level = i < step.new_bytes.size() ? Level::known : step.kind == SiteStep::Kind::section ? Level::unknown : Level::absent;
      if (i < step.new_bytes.size()) byte.value = step.new_bytes[i];
    }
    if (contradicts) ++cost[p];
  }
}

void SiteBuilder::matching_times(SiteInput& input, const SiteCopy& copy, std::vector<Interval>& out) {
  std::stable_sort(input.steps.begin(), input.steps.end(), [](const auto& a, const auto& b) { return a.time.first < b.time.first; });
  std::vector<uint8_t> cost;
  trace_records(input, copy, cost);
  const Places where = places(input.steps, copy.taken);
  const size_t begin = out.size();
  for (size_t p = where.first; p <= where.last; ++p) {
    if (cost[p] != 0) continue;
    const Interval stands{p == 0 ? kTimeMin : input.steps[p - 1].time.first, p == input.steps.size() ? kTimeMax : input.steps[p].time.last};
    if (out.size() > begin && stands.first <= out.back().last) {
      out.back().last = stands.last;
    } else {
      out.push_back(stands);
    }
  }
}

// Returns true for a copy taken in the middle of a poke: INT3 in its first byte, each other byte old or new.
bool SiteBuilder::half_written(const SiteInput& input, const SiteCopy& copy) {
  const Interval taken = widen(copy.limit, kPokeWindowNs);
  for (const SiteStep& step : input.steps) {
    if (step.kind != SiteStep::Kind::record || step.old_bytes.size() != step.new_bytes.size() || !taken.overlaps(step.time)) continue;
    if (step.offset < copy.offset || step.end() > copy.offset + copy.bytes.size()) continue;
    const Bytes held = copy.bytes.subspan(step.offset - copy.offset, step.size);
    bool possible = held[0] == kInt3 && !std::ranges::equal(held, step.old_bytes) && !std::ranges::equal(held, step.new_bytes);
    for (uint32_t i = 1; i < step.size && possible; ++i) possible = held[i] == step.old_bytes[i] || held[i] == step.new_bytes[i];
    if (possible) return true;
  }
  return false;
}

void SiteBuilder::place_copy(SiteInput& input, const SiteCopy& copy) {
  std::vector<uint8_t> cost;
  trace_records(input, copy, cost);
  const auto best_of = [&](Places where) {
    size_t best = copy.copy == 0 ? where.first : where.last;
    for (size_t i = where.first; i <= where.last; ++i) {
      const size_t p = copy.copy == 0 ? i : where.last - (i - where.first);
      if (cost[p] < cost[best]) best = p;
    }
    return best;
  };
  const Places told = places(input.steps, copy.taken);
  size_t place = best_of(told);
  if (cost[place] != 0) {
    const size_t wider = best_of(places(input.steps, copy.limit));
    if (cost[wider] == 0) place = wider;
  }
  const bool half = cost[place] != 0 && half_written(input, copy);
  // Of code that came later, as of a module that was loaded, the first copy may be the one that was taken at the end.
  const bool any_record =
      std::any_of(input.steps.begin() + static_cast<ptrdiff_t>(std::min(told.first, place)),
                  input.steps.begin() + static_cast<ptrdiff_t>(place), [](const SiteStep& s) { return s.kind == SiteStep::Kind::record; });
  if (copy.copy == 0 && (half || any_record)) {
    add_pending({FindingKind::base_copy_redated,
                 input.space,
                 Ip{input.ip + copy.offset},
                 copy.taken,
                 {},
                 {copy.bytes.begin(), copy.bytes.end()},
                 half ? "the base copy was made in the middle of a poke of this address"
                      : "the base copy is newer than a record, by its content, or a record before that one was lost"});
  }
  if (half) return;
  SiteStep step;
  step.kind = SiteStep::Kind::observe;
  step.offset = copy.offset;
  step.size = static_cast<uint32_t>(copy.bytes.size());
  step.new_bytes = copy.bytes;
  step.copy = copy.copy;
  const Interval between{place == 0 ? kTimeMin : input.steps[place - 1].time.first,
                         place == input.steps.size() ? kTimeMax : input.steps[place].time.last};
  step.time = intersect(copy.taken, between);
  if (step.time.empty()) step.time = between;
  input.steps.insert(input.steps.begin() + static_cast<ptrdiff_t>(place), step);
}

}  // namespace ptd
