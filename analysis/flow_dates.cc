// FlowDates: see flow_dates.h.
#include "analysis/flow_dates.h"

#include <algorithm>
#include <utility>

namespace ptd {
namespace {

unsigned __int128 product(uint64_t a, uint64_t b) { return static_cast<unsigned __int128>(a) * b; }

uint64_t part(uint64_t of, uint64_t some, uint64_t all) { return all == 0 ? 0 : static_cast<uint64_t>(product(of, some) / all); }

// part(of, some, all) for many `some`, at most `all`, of the same share: without a division, as long as a double is nearly exact.
class Parts {
 public:
  Parts(uint64_t of, uint64_t all)
      : of_(of),
        all_(all),
        rate_(all == 0 ? 0 : static_cast<double>(of) / static_cast<double>(all)),
        small_(all != 0 && (of | all) < kSmall) {}
  [[nodiscard]] uint64_t operator()(uint64_t some) const {
    const double about = rate_ * static_cast<double>(some);
    if (!small_ || some > all_) return large(some, about);
    const auto whole = static_cast<uint64_t>(about);  // too large by one, right, or too small by one
    const auto rest = static_cast<int64_t>(of_ * some - whole * all_);
    return whole + (rest >= static_cast<int64_t>(all_) ? 1 : 0) - (rest < 0 ? 1 : 0);
  }

 private:
  static constexpr double kNearlyExact = 1ULL << 48;
  static constexpr uint64_t kSmall = 1ULL << 31;  // products fit into 62 bits
  [[nodiscard]] uint64_t large(uint64_t some, double about) const {
    if (about >= kNearlyExact) return part(of_, some, all_);
    if (of_ == 0 || all_ == 0) return 0;
    auto whole = static_cast<uint64_t>(about);
    const auto product = static_cast<unsigned __int128>(of_) * some;
    if (static_cast<unsigned __int128>(whole) * all_ > product) --whole;
    if (product - static_cast<unsigned __int128>(whole) * all_ >= all_) ++whole;
    return whole;
  }

  uint64_t of_, all_;
  double rate_;
  bool small_;
};

}  // namespace

void FlowDates::begin_segment(TimeNs first, bool timed) {
  clock_lost_ = !timed;
  beside_loss_ = beside_loss_ || clock_lost_;
  if (!timed_ && first != kTimeMin) now_ = std::max(now_, first);
  cycles_.begin_segment();
  last_count_.reset();
  segment_ = (segment_ + 1) % kRateSegments;
  rates_[segment_] = {};
}

FlowDates::Rate FlowDates::rate() const {
  Rate all;
  for (const Rate& each : rates_) all = {all.instructions + each.instructions, all.ns + each.ns};
  return all;
}

uint64_t FlowDates::usual_ns(uint64_t instructions) const {
  const auto count = static_cast<unsigned __int128>(instructions);
  const Rate known = rate();
  const auto ns = known.instructions == 0 ? count * kSlowestNs : count * known.ns / known.instructions;
  return static_cast<uint64_t>(std::min<unsigned __int128>(ns, ~uint64_t{0}));
}

FlowDates::Shares FlowDates::share(const Stretch& stretch) const {
  const uint64_t passed = stretch.passed(), instructions = stretch.end - stretch.begin;
  const uint64_t pauses = stretch.resumes + (stretch.open ? 1 : 0);
  if (pauses == 0) return {passed, 0};
  const auto off = clock_.schedule == nullptr ? std::nullopt : clock_.schedule->off_span(clock_.tid, stretch.from, stretch.to);
  uint64_t limit = passed, running = usual_ns(instructions);  // limit: of all that ran, and of the pauses that are over
  if (stretch.open) {
    if (clock_.tick_ns != 0) limit = std::min(limit, clock_.tick_ns);
    if (off) limit = std::min(limit, off->first.value - stretch.from.value);
  } else if (off && stretch.resumes == 1) {
    const auto resumed = std::find_if(stretch.points.begin(), stretch.points.end(), [](const Point& point) { return point.resumes; });
    const uint64_t before = resumed->position - stretch.begin, after = instructions - before;
    if (before != 0) running = std::min(running, part(off->first.value - stretch.from.value, instructions, before));
    if (after != 0) running = std::min(running, part(stretch.to.value - off->last.value, instructions, after));
  }
  running = std::min(running, limit);
  uint64_t wait = (limit - running) / pauses;
  if (!stretch.open && !off && !silent_ && clock_.tick_ns != 0 && wait > clock_.tick_ns) {
    wait = clock_.tick_ns;
    running = passed - wait * pauses;
  }
  return {running, wait};
}

void FlowDates::date_stretch(const Stretch& stretch) {
  const Shares shares = share(stretch);
  const Parts running(shares.running, stretch.end - stretch.begin);
  uint64_t waited = 0;
  Date* date = dates_.data() + (stretch.points.data() - points_.data());
  for (const Point& point : stretch.points) {
    if (point.resumes) waited += shares.wait;
    *date++ = {TimeNs{stretch.from.value + running(point.position - stretch.begin) + waited}, now_, 0};
  }
}

void FlowDates::date_within_bounds(Stretch stretch) {
  const auto resumes = [](std::span<const Point> points) { return static_cast<uint64_t>(std::ranges::count_if(points, &Point::resumes)); };
  size_t dated = 0;
  for (const Bound& bound : std::span(bounds_).first(bound_count_)) {
    if (stretch.to <= bound.time) continue;
    Stretch before = stretch;
    before.end = bound.position;
    before.to = std::max(bound.time, before.from);
    before.points = stretch.points.first(bound.points - dated);
    before.resumes = resumes(before.points);
    before.open = false;
    const Shares shares = share(stretch);
    const uint64_t waited = before.resumes * shares.wait;
    const bool holds = waited <= before.passed() && product(shares.running, before.end - stretch.begin) <=
                                                        product(before.passed() - waited, stretch.end - stretch.begin);
    if (holds) continue;
    date_stretch(before);
    dated = bound.points;
    stretch.begin = before.end;
    stretch.from = before.to;
    stretch.points = stretch.points.subspan(before.points.size());
    stretch.resumes -= before.resumes;
  }
  date_stretch(stretch);
}

std::span<const FlowDates::Date> FlowDates::date_points(TimeNs time, std::optional<uint64_t> counted_cycles) {
  // Before the first anchor, now_ is a lower bound of it, or the time of points that have a date already.
  if (!std::exchange(timed_, true)) now_ = std::max(now_, time);
  time = std::max(time, now_);
  const uint64_t passed = time.value - now_.value, instructions = position_ - anchor_position_;
  if (point_count_ == 0 && passed == 0 && !counted_cycles) return {};
  const bool stopped = resumes_ != 0 || !flowing_;  // at some moment of the stretch
  const std::span<const Point> points(points_.data(), point_count_);
  if (dates_.size() < points.size()) dates_.resize(points_.size());
  const Stretch whole{anchor_position_, position_, now_, time, points, resumes_, !flowing_};
  bound_count_ == 0 ? date_stretch(whole) : date_within_bounds(whole);
  if (!stopped) learn(passed, instructions);
  const uint64_t cycles = cycles_.take(instructions, stopped, counted_cycles);
  if (counted_cycles) last_count_ = counted_cycles;
  uint64_t cycles_before = 0;
  const Parts cycles_until(cycles, instructions);
  if ((cycles | cycles_left_) != 0) {
    for (size_t i = 0; i < points.size(); ++i) {
      const uint64_t cycles_here = cycles_until(points[i].position - anchor_position_);
      dates_[i].cycles = cycles_here - std::exchange(cycles_before, cycles_here) + std::exchange(cycles_left_, 0);
    }
  }
  cycles_left_ += cycles - cycles_before;
  for (; known_marks_ != marks_.size(); ++known_marks_) {
    FlowPosition& mark = marks_[known_marks_];
    mark.cycles = total_cycles_ + cycles_until(mark.instructions - anchor_position_);
  }
  total_cycles_ += cycles;
  point_count_ = 0;
  resumes_ = 0;
  silent_ = false;
  estimated_ = std::exchange(beside_loss_, clock_lost_);
  now_ = time;
  anchor_position_ = position_;
  bound_count_ = 0;
  return std::span<const Date>(dates_).first(points.size());
}

std::span<const FlowDates::Date> FlowDates::anchor_undated(bool ends) {
  if (!timed_) now_ = std::max(now_, clock_.first);
  const bool timed = timed_, beside_loss = beside_loss_ && !ends;
  const bool by_rate = !ends && rate().instructions != 0;
  const auto dates = anchor(TimeNs{now_.value + (by_rate ? usual_ns(position_ - anchor_position_) : 0)});
  timed_ = timed;
  beside_loss_ = beside_loss;
  return dates;
}

}  // namespace ptd
