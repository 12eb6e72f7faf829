// FlowDates: dates the steps of a stream's flow between the times of its packets, and divides the time into running and waiting.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analysis/base/cycle_share.h"
#include "analysis/thread_schedule.h"
#include "ptdecode/types.h"

namespace ptd {

/// What a stream's clock promises.
struct FlowClock {
  /// While tracing is on, a timing packet comes at least as often: the period of MTC packets. 0: nothing is promised.
  uint64_t tick_ns = 0;
  TimeNs first = kTimeMin;  ///< the first known time of the stream: dates code before it. kTimeMin: there is none
  bool in_ns = true;        ///< false: packets give ticks of unknown length, which are no times
  /// By the last time of a mark, its blocks had retired. Not so if packets with a time follow the code that they date, as Arm's.
  bool bounds_code = false;
  uint64_t slack_ns = 0;                     ///< by which the bounds of times were widened
  const ThreadSchedule* schedule = nullptr;  ///< with `tid`: when the stream's thread was on a cpu. May be null
  int32_t tid = -1;                          ///< of a stream of one thread
};

/// How much a flow has executed.
struct FlowPosition {
  uint64_t instructions = 0, cycles = 0;
};

/// Points (calls, stops, starts) are added in order of the flow, and wait until a packet gives a time that is not before them. A stretch
/// is the flow between two such times. Its time is divided as follows.
///
///  - If code in it had retired by a time, and would have a later date, it is two stretches, of which that time divides.
///  - Without a pause, all of it is running time, by instructions.
///  - With a pause, instructions get what they take at the rate of the stretches without one in the last kRateSegments segments, or
///    kSlowestNs each if there was none. The rest is waiting.
///  - If tracing is off at the stretch's end, all its code ran before the next MTC packet was due (none came), and before the switch record
///    with which the thread left the cpu. The pause that is still open gets all time after that.
///  - The rest is divided evenly among the pauses. No finished pause is longer than an MTC period, because no packet came in it, unless
///    switch records show it, the core slept, or the flow was lost. A single pause covers the time in which the thread was on no cpu.
///
/// Dates depend on few earlier segments, so a walk that begins in the middle of a stream gives the same ones.
/// So time in which no instruction is known to have run is waiting time. Not thread-safe.
class FlowDates {
 public:
  struct Date {
    TimeNs time, floor;   ///< floor: the time of the packet before it
    uint64_t cycles = 0;  ///< core cycles since the point before
  };
  /// The average time of an instruction where nothing was measured: an upper bound.
  static constexpr uint64_t kSlowestNs = 5;
  static constexpr size_t kRateSegments = 4;

  explicit FlowDates(const FlowClock& clock) : clock_(clock) {}

  /// Cycles are counted from 0 again: the stream's next segment.
  /// `first`: a lower bound of its times (kTimeMin: none), which serves until the first anchor. `timed`: the clock is known at its start.
  void begin_segment(TimeNs first = kTimeMin, bool timed = true);
  void ran(uint64_t instructions) { position_ += instructions; }
  /// Adds a point. `resumes`: the flow was stopped before it, and waiting ends here. `silent`: packets may be missing from the
  /// pause, because the core slept or the flow was lost.
  void add(bool resumes, bool silent = false) {
    resumes_ += resumes ? 1 : 0;
    silent_ = silent_ || silent;
    if (point_count_ == points_.size()) [[unlikely]]
      grow();
    points_[point_count_++] = {position_, resumes};
  }
  /// By `last`, what ran so far had retired, and all points so far had been reached. The flow is not stopped here. So the code that runs
  /// before the next anchor is not dated evenly if that is much later.
  void bound(TimeNs last) {
    if (bound_count_ != 0 && last <= bounds_[bound_count_ - 1].time) --bound_count_;
    if (bound_count_ != bounds_.size()) bounds_[bound_count_++] = {position_, point_count_, last};
  }
  /// Adds a mark. The next anchor tells the cycles before it.
  void mark() { marks_.push_back({position_, 0}); }
  /// Returns where the marks are, in order, of those whose cycles are known.
  [[nodiscard]] std::span<const FlowPosition> marks() const { return std::span(marks_).first(known_marks_); }
  /// Returns what was executed before the last anchor.
  [[nodiscard]] FlowPosition anchored() const { return {anchor_position_, total_cycles_}; }
  /// Flow is missing here: until the next packet with a time, dates are estimates. `loses_packets`: timing packets may be missing too, and
  /// times are only lower bounds until set_clock_known() or the next segment.
  void set_beside_loss(bool loses_packets = false) {
    beside_loss_ = true;
    clock_lost_ = clock_lost_ || loses_packets;
  }
  /// A time has an upper bound from packets.
  void set_clock_known() { clock_lost_ = false; }
  /// Whether flow is missing from the stretch that was dated last: its dates are estimates by the rate of other code.
  [[nodiscard]] bool estimated() const { return estimated_; }
  /// Sets whether the flow runs from here on; false: it is stopped.
  void set_flowing(bool on) { flowing_ = on; }
  /// A packet gives a time, and perhaps a count of cycles: dates all points. The span is valid until the next call.
  std::span<const Date> anchor(TimeNs time, std::optional<uint64_t> counted_cycles = {}) {
    if (!timed_ || !flowing_ || point_count_ != 0 || known_marks_ != marks_.size()) return date_points(time, counted_cycles);
    run_until(time, counted_cycles);
    return {};
  }
  /// Dates all points without a packet: at the time estimated from the instructions, or at the last known one if the stream `ends`. Before
  /// the first anchor, that is FlowClock::first: no time passes in code whose time is unknown.
  std::span<const Date> anchor_undated(bool ends);
  /// The segment's last count of core cycles; none before the first.
  [[nodiscard]] std::optional<uint64_t> last_count() const { return last_count_; }

  [[nodiscard]] bool in_ns() const { return clock_.in_ns; }
  [[nodiscard]] bool has_tick() const { return clock_.tick_ns != 0; }
  [[nodiscard]] uint64_t slack_ns() const { return clock_.slack_ns; }
  [[nodiscard]] bool bounds_code() const { return clock_.bounds_code; }
  [[nodiscard]] bool timed() const { return timed_; }  ///< there was an anchor with a time
  [[nodiscard]] TimeNs now() const { return now_; }    ///< the last time given by a packet
  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] size_t waiting() const { return point_count_; }
  /// The position of the first point that waits; there must be one.
  [[nodiscard]] uint64_t first_waiting() const { return points_[0].position; }
  [[nodiscard]] uint64_t anchor_position() const { return anchor_position_; }  ///< that of the last anchor
  /// Returns the cycles of the code between the last point with a date and the last anchor. The next point's do not include them then.
  uint64_t take_cycles_left() { return std::exchange(cycles_left_, 0); }

 private:
  struct Point {
    uint64_t position = 0;
    bool resumes = false;
  };
  struct Bound {
    uint64_t position = 0;
    size_t points = 0;  ///< before it
    TimeNs time;
  };
  /// A stretch, or a part of one that ends at a bound.
  struct Stretch {
    uint64_t begin = 0, end = 0;  ///< positions
    TimeNs from, to;
    std::span<const Point> points;
    uint64_t resumes = 0;  ///< points that resume
    bool open = false;     ///< the flow is stopped at its end
    [[nodiscard]] uint64_t passed() const { return to.value - from.value; }
  };
  /// How a stretch's time is shared out.
  struct Shares {
    uint64_t running = 0;  ///< all instructions
    uint64_t wait = 0;     ///< each pause that is over
  };
  [[nodiscard]] Shares share(const Stretch& stretch) const;
  void date_stretch(const Stretch& stretch);
  void date_within_bounds(Stretch stretch);
  [[nodiscard]] uint64_t usual_ns(uint64_t instructions) const;
  void grow() { points_.resize(std::max<size_t>(64, 2 * points_.size())); }
  /// Stretches without a pause.
  struct Rate {
    uint64_t instructions = 0, ns = 0;
  };
  [[nodiscard]] Rate rate() const;
  void learn(uint64_t passed, uint64_t instructions) {
    if (instructions == 0 || passed == 0) return;
    constexpr uint64_t kMost = uint64_t{1} << 60;  // of a hostile trace
    Rate& here = rates_[segment_];
    here = {std::min(here.instructions + instructions, kMost), std::min(here.ns + std::min(passed, kMost), kMost)};
  }
  std::span<const Date> date_points(TimeNs time, std::optional<uint64_t> counted_cycles);
  /// anchor() of a stretch without a pause and without points, as most are.
  void run_until(TimeNs time, std::optional<uint64_t> counted_cycles) {
    time = std::max(time, now_);
    const uint64_t passed = time.value - now_.value, instructions = position_ - anchor_position_;
    if (passed == 0 && !counted_cycles) return;
    learn(passed, instructions);
    const uint64_t cycles = cycles_.take(instructions, false, counted_cycles);
    cycles_left_ += cycles;
    total_cycles_ += cycles;
    if (counted_cycles) last_count_ = counted_cycles;
    silent_ = false;
    beside_loss_ = clock_lost_;
    now_ = time;
    anchor_position_ = position_;
    bound_count_ = 0;
  }

  FlowClock clock_;
  bool flowing_ = false, timed_ = false;
  TimeNs now_;
  uint64_t position_ = 0, anchor_position_ = 0;
  std::vector<Point> points_;  ///< the first point_count_ are in use
  size_t point_count_ = 0;
  std::vector<Date> dates_;      ///< of the last points; it never shrinks
  std::array<Bound, 8> bounds_;  ///< since the last anchor, the first bound_count_ of them: more are rare
  size_t bound_count_ = 0;
  uint64_t resumes_ = 0;                          ///< points that resume
  bool silent_ = false;                           ///< one of them from a pause without packets
  bool beside_loss_ = false, estimated_ = false;  ///< flow is missing from the stretch; from the one before
  bool clock_lost_ = false;                       ///< see set_beside_loss()
  std::array<Rate, kRateSegments> rates_;         ///< of the last segments
  size_t segment_ = 0;                            ///< the newest of them
  CycleShare cycles_;
  std::optional<uint64_t> last_count_;
  uint64_t cycles_left_ = 0;  ///< of the code executed after the last point
  uint64_t total_cycles_ = 0;
  std::vector<FlowPosition> marks_;
  size_t known_marks_ = 0;  ///< those with their cycles
};

}  // namespace ptd
