// Density: see density.h.
#include "cli/html/density.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/flow_check.h"
#include "cli/report/thread_label.h"
#include "ptdecode/likeliest_time.h"

namespace ptd::cli {

namespace {

template <typename Add>
void add_bins(TimeBins& to, const TimeBins& from, const Add& add) {
  for (size_t i = 0; i < kTimeBins; ++i) to[i] = add(to[i], from[i]);
}

std::string thread_name(const Recording& recording, StreamDensity::Thread who) {
  if (who == StreamDensity::kOtherThreads) return "other threads";
  return thread_label(recording, who.second);
}

}  // namespace

size_t bin_of(TimeNs time, Interval span) {
  if (span.first == kTimeMin || span.last == kTimeMax || span.empty() || !span.contains(time)) return kTimeBins;
  const double share = static_cast<double>(time.value - span.first.value) / (static_cast<double>(span.last.value - span.first.value) + 1);
  return std::min(kTimeBins - 1, static_cast<size_t>(share * kTimeBins));
}

void StreamDensity::add_blocks(std::span<const Block> blocks) {
  if (blocks.empty()) return;
  const uint64_t count = instructions_of(blocks);
  all_instructions += count;
  if (bin_ < kTimeBins) instructions[bin_] += count;
  if (thread_ == nullptr) {
    const Thread who{now_.pid, now_.tid};
    thread_ = &threads[threads.size() < kMostThreads || threads.contains(who) ? who : kOtherThreads];
  }
  thread_->all += count;
  if (bin_ < kTimeBins) thread_->instructions[bin_] += count;
}

void StreamDensity::take(const Batch& batch) {
  const std::span<const Block> blocks(batch.blocks);
  size_t block = 0, event = 0, gap = 0;
  const auto put = [this](TimeBins& bins) {
    if (bin_ < kTimeBins) ++bins[bin_];
  };
  // Everything before block `end`, at the time of the last mark.
  const auto pass = [&](size_t end) {
    add_blocks(blocks.subspan(block, end - block));
    block = end;
    for (; event < batch.events.size() && batch.events[event].before_block <= end; ++event) {
      const Event& each = batch.events[event];
      if (each.kind != EventKind::async_branch || (each.flags & kEventStatus) != 0) continue;
      ++all_interrupts;
      put(interrupts);
    }
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= end; ++gap) {
      ++all_gaps;
      put(gaps);
    }
  };
  for (const Mark& mark : batch.marks) {
    pass(mark.before_block);
    if (mark.pid != now_.pid || mark.tid != now_.tid) thread_ = nullptr;
    now_ = mark;
    // The span ends with the last sync point; what follows counts in the last bin.
    bin_ = is_dated(mark) ? bin_of(std::clamp(likeliest(mark), span_.first, std::max(span_.first, span_.last)), span_) : kTimeBins;
  }
  pass(blocks.size());
}

nlohmann::json density_json(const Recording& recording, const std::vector<StreamDensity>& streams, size_t most) {
  nlohmann::json rows = nlohmann::json::array();
  std::map<StreamDensity::Thread, StreamDensity::Counts> threads;
  const auto plus = [](uint64_t a, uint64_t b) { return a + b; };
  StreamDensity rest{Interval{}};
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamDensity& each = streams[i];
    for (const auto& [who, counts] : each.threads) {
      StreamDensity::Counts& sum = threads[who];
      sum.all += counts.all;
      add_bins(sum.instructions, counts.instructions, plus);
    }
    if (i < most) {
      rows.push_back({{"name", stream_name(recording.streams()[i])},
                      {"kind", "stream"},
                      {"instructions", each.all_instructions},
                      {"gaps", each.all_gaps},
                      {"interrupts", each.all_interrupts},
                      {"bins", each.instructions},
                      {"gap_bins", each.gaps},
                      {"interrupt_bins", each.interrupts}});
      continue;
    }
    rest.all_instructions += each.all_instructions, rest.all_gaps += each.all_gaps, rest.all_interrupts += each.all_interrupts;
    add_bins(rest.instructions, each.instructions, plus), add_bins(rest.gaps, each.gaps, plus),
        add_bins(rest.interrupts, each.interrupts, plus);
  }
  if (streams.size() > most)
    rows.push_back({{"name", fmt::format("{} more", streams.size() - most)},
                    {"kind", "stream"},
                    {"instructions", rest.all_instructions},
                    {"gaps", rest.all_gaps},
                    {"interrupts", rest.all_interrupts},
                    {"bins", rest.instructions},
                    {"gap_bins", rest.gaps},
                    {"interrupt_bins", rest.interrupts}});
  std::vector<std::pair<StreamDensity::Thread, const StreamDensity::Counts*>> ranked;
  for (const auto& [who, counts] : threads) ranked.emplace_back(who, &counts);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second->all > b.second->all; });
  StreamDensity::Counts other;
  for (size_t i = 0; i < ranked.size(); ++i) {
    const auto& [who, counts] = ranked[i];
    if (i < most) {
      rows.push_back(
          {{"name", thread_name(recording, who)}, {"kind", "thread"}, {"instructions", counts->all}, {"bins", counts->instructions}});
      continue;
    }
    other.all += counts->all;
    add_bins(other.instructions, counts->instructions, plus);
  }
  if (ranked.size() > most)
    rows.push_back({{"name", fmt::format("{} more threads", ranked.size() - most)},
                    {"kind", "thread"},
                    {"instructions", other.all},
                    {"bins", other.instructions}});
  return {{"bins", kTimeBins}, {"rows", std::move(rows)}};
}

}  // namespace ptd::cli
