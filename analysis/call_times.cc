// How the steps of a CallFlow get their times.
#include <algorithm>
#include <optional>
#include <utility>

#include "analysis/call_flow.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {

// A packet with a time and a cycle count. If it repeats the last one, undated steps stay undated: they ran after that one.
void CallFlow::take_packet_time(TimeNs time, uint64_t cycles) {
  if (dates_.in_ns())
    timed_ = true;
  else
    time = kTimeMin;  // for the cycles only
  const std::optional<uint64_t> last = dates_.last_count();
  const bool counts = !last || *last != cycles;  // not "last != cycles", which valgrind takes for a use of what is uninitialised
  if (dates_.timed() && time <= dates_.now() && !counts) return bound(done_by_);
  date_until(time, counts ? std::optional(cycles) : std::nullopt);
}

void CallFlow::date_until(TimeNs time, std::optional<uint64_t> cycles) {
  if (next_cut_ <= time) [[unlikely]]
    return date_across_cut(time, cycles);
  put_out(dates_.anchor(time, cycles));
}

// A packet says where the flow is at this time. What ran so far had retired by done_by_: the time since then passed in the next
// instruction, which did not retire, as in a REP MOVSB, or a loop without packets, that is interrupted again and again.
void CallFlow::take_flow_time(TimeNs time, uint64_t cycles) {
  if (passes_time(time) && !pending_) [[unlikely]] {
    if (dates_.now() < done_by_) date_until(done_by_, {});
    prove();
  }
  take_packet_time(time, cycles);
}

// The same of an event at the instruction that did not retire, whose branch has been resolved.
void CallFlow::take_flow_time(const Event& event) {
  const TimeNs time = likeliest(event);
  if ((event.flags & kEventHasFrom) != 0 && !pending_ && passes_time(time)) enter_inlined_at(event.from);
  take_flow_time(time, event.cycles);
}

// Dates what waits, and divides the flow at the packet before an end of the window and at this one.
void CallFlow::date_across_cut(TimeNs time, std::optional<uint64_t> cycles) {
  if (dates_.timed()) put_cut(dates_.anchor_position());
  put_out(dates_.anchor(time, cycles));
  put_cut(dates_.position());
  next_cut_ = time < window_.last ? window_.last : kTimeMax;
}

// Divides the flow at the last packet with a time, where it had executed so many instructions.
void CallFlow::put_cut(uint64_t position) {
  if (!proved_ || !has_thread_) return;
  FlowStep step;
  if (held_count() != 0) {
    FlowStep& next = held(0);
    const uint64_t before = dates_.first_waiting() - next.instructions;
    if (position < before) return;
    step = next;
    step.instructions = static_cast<uint32_t>(std::min<uint64_t>(position - before, next.instructions));
    next.instructions -= step.instructions;
  } else {
    fill(step);
  }
  step.kind = FlowKind::inlined;
  step.flags = 0;
  step.function = step.from;
  step.inlined = kUnknownInlining;
  step.moves = 0;
  step.landing = 0;
  step.to = step.return_to = {};
  step.time = step.floor = dates_.now();
  step.cycles = dates_.take_cycles_left();
  out_.insert(out_.begin() + static_cast<ptrdiff_t>(dated_++), step);
}

// Gives out the steps that wait: `dates` has one for each and its moves, or none if they go on to wait.
void CallFlow::put_out(std::span<const FlowDates::Date> dates) {
  if (!epoch_time_.contains(when())) begin_epoch();
  if (dates.empty()) return;
  const bool plain = dropped_cycles_ == 0 && !held_dropped_;
  const uint8_t estimated = dates_.estimated() ? kFlowEstimated : 0;
  const FlowDates::Date* date = dates.data();
  InlinedMove* move = moves_.data() + dated_moves_;
  for (FlowStep* step = out_.data() + dated_; step != out_.data() + out_.size(); ++step, ++date) {
    step->flags |= estimated;
    step->time = date->time;
    step->floor = date->floor;
    step->cycles = date->cycles;
    if (!plain) {
      dropped_cycles_ += date->cycles;
      if (step->kind != FlowKind::dropped) step->cycles = std::exchange(dropped_cycles_, 0);
    }
    for (const InlinedMove* const end = move + step->moves; move != end; ++move) {
      ++date;
      move->time = date->time;
      move->cycles = date->cycles;
    }
  }
  dated_moves_ = moves_.size();
  put_out_dated();
}

void CallFlow::put_out_dated() {
  if (!held_unproved_.empty() || held_dropped_) {
    auto unproved = held_unproved_.begin();
    size_t kept = dated_;
    for (size_t i = 0, count = held_count(); i < count; ++i) {
      const FlowStep step = held(i);
      const bool proved = unproved == held_unproved_.end() || *unproved != i;
      if (!proved) ++unproved;
      if (step.kind == FlowKind::dropped) continue;
      if (proved) {
        out_[kept++] = step;
      } else {
        unproved_.push_back(step);
      }
    }
    out_.resize(kept);
    held_unproved_.clear();
    held_dropped_ = false;
  }
  dated_ = out_.size();
}

}  // namespace ptd
