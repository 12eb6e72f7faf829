// Patience alignment of two flows.
#include "cli/verify/flow_align.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "image/base/fnv.h"

namespace ptd::cli {
namespace {

constexpr size_t kStretch = 8;        // keys that are looked up together
constexpr uint32_t kMaxNesting = 16;  // of nested alignments
constexpr uint32_t kMaxRepeats = 64;
constexpr uint32_t kNearRun = 4;          // equal keys that suffice near a difference
constexpr uint32_t kNear = 64;            // keys after a difference that are searched
constexpr size_t kWays = 64;              // of placing runs, the best of which are kept
constexpr size_t kBeside[] = {2, 8, 32};  // runs on each side of one that was not found, with which it is placed again
constexpr uint64_t kFewPairs = 1024;      // of keys, for which the longest common subsequence is computed
constexpr size_t kMostChoices = size_t{1} << 22;
constexpr uint64_t kSteps = 64;  // of the search for runs, per key

struct Stretch {
  uint64_t hash = 0;
  uint32_t at = 0;
};

/// A stretch of both flows.
struct Anchor {
  uint32_t flow = 0, other = 0;
};

uint64_t hash_of(const uint64_t* first) {
  uint64_t hash = 0;
  for (size_t i = 0; i < kStretch; ++i) {
    hash = (hash ^ first[i]) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

/// Returns the stretches of keys[first...] that do not cross a gap, sorted by hash.
std::vector<Stretch> stretches_of(std::span<const uint64_t> keys, std::span<const uint32_t> gaps = {}, uint32_t first = 0) {
  std::vector<Stretch> stretches;
  auto gap = std::upper_bound(gaps.begin(), gaps.end(), first);
  for (size_t i = 0; i + kStretch <= keys.size(); ++i) {
    while (gap != gaps.end() && *gap <= first + i) ++gap;
    if (gap == gaps.end() || *gap >= first + i + kStretch) stretches.push_back({hash_of(&keys[i]), static_cast<uint32_t>(i)});
  }
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.hash != b.hash ? a.hash < b.hash : a.at < b.at; });
  return stretches;
}

size_t equal_ones(const std::vector<Stretch>& stretches, size_t first) {
  size_t end = first;
  while (end < stretches.size() && stretches[end].hash == stretches[first].hash) ++end;
  return end - first;
}

/// Pairs the stretches that occur at most `repeats` times in each flow: the first with the first, the second with the second. Sorted by
/// place in `flow`.
std::vector<Anchor> common_stretches(const std::vector<Stretch>& flow, const std::vector<Stretch>& other, uint32_t repeats) {
  std::vector<Anchor> anchors;
  size_t d = 0, t = 0;
  while (d < flow.size() && t < other.size()) {
    const size_t in_flow = equal_ones(flow, d), in_other = equal_ones(other, t);
    if (flow[d].hash == other[t].hash) {
      if (std::max(in_flow, in_other) <= repeats) {
        for (size_t i = 0; i < std::min(in_flow, in_other); ++i) anchors.push_back({flow[d + i].at, other[t + i].at});
      }
      d += in_flow;
      t += in_other;
    } else if (flow[d].hash < other[t].hash) {
      d += in_flow;
    } else {
      t += in_other;
    }
  }
  std::sort(anchors.begin(), anchors.end(), [](const Anchor& a, const Anchor& b) { return a.flow < b.flow; });
  return anchors;
}

/// Returns the longest chain of anchors that goes forward in both flows.
std::vector<Anchor> longest_chain(const std::vector<Anchor>& anchors) {
  std::vector<uint32_t> tails, before(anchors.size());
  for (uint32_t i = 0; i < anchors.size(); ++i) {
    const auto at = std::lower_bound(tails.begin(), tails.end(), anchors[i].other,
                                     [&](uint32_t tail, uint32_t other) { return anchors[tail].other < other; });
    before[i] = at == tails.begin() ? kUnmatched : *std::prev(at);
    if (at == tails.end()) {
      tails.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<Anchor> chain;
  for (uint32_t i = tails.empty() ? kUnmatched : tails.back(); i != kUnmatched; i = before[i]) chain.push_back(anchors[i]);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

struct Range {
  uint32_t first = 0, end = 0;
  [[nodiscard]] uint32_t size() const { return end - first; }
};

class Aligner {
 public:
  Aligner(std::span<const uint64_t> flow, std::span<const uint64_t> other, std::span<const uint32_t> gaps, uint32_t other_first,
          std::span<uint32_t> match)
      : flow_(flow),
        other_(other),
        gaps_(gaps),
        other_first_(other_first),
        match_(match),
        steps_left_(kSteps * (flow.size() + other.size())) {}

  /// Places the runs between gaps first, as many as are found in order. Then aligns the rest between them.
  void run_between_gaps(Range d, Range t) {
    const std::vector<Placed> placed = find_runs(d, t, false);
    Range left_d{d.first, d.first}, left_t{t.first, t.first};
    for (const Placed& each : placed) {
      run({left_d.first, each.run.first}, {left_t.first, each.at}, kMaxNesting);
      join_run(each);
      left_d.first = each.run.end;
      left_t.first = each.at + each.run.size();
    }
    run({left_d.first, d.end}, {left_t.first, t.end}, kMaxNesting);
  }

  /// Places each run that was not found as a whole again, together with the runs beside it: those may be in the wrong iterations of a loop.
  void place_again() {
    std::vector<Range> runs;
    for (Range run; run.first < flow_.size(); run.first = run.end) {
      run.end = gap_from(run.first + 1);
      runs.push_back(run);
    }
    std::vector<size_t> missing;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (is_gap(runs[i].first) && !is_whole(runs[i])) missing.push_back(i);
    }
    std::stable_sort(missing.begin(), missing.end(), [&](size_t a, size_t b) { return runs[a].size() > runs[b].size(); });
    for (const size_t i : missing) {
      if (is_whole(runs[i])) continue;
      for (const size_t beside : kBeside) {
        if (place_again({runs[i < beside ? 0 : i - beside].first, runs[std::min(i + beside, runs.size() - 1)].end}, runs[i])) break;
      }
    }
  }

  void run(Range d, Range t, uint32_t depth) {
    const uint32_t first_gap = gap_from(d.first), last_gap = gap_until(d.end);
    for (; d.first < std::min(d.end, first_gap) && t.first < t.end && flow_[d.first] == other_[t.first]; ++d.first, ++t.first)
      join(d.first, t.first);
    for (; std::max(d.first, last_gap) < d.end && t.first < t.end && flow_[d.end - 1] == other_[t.end - 1]; --d.end, --t.end)
      join(d.end - 1, t.end - 1);
    if (d.size() == 0) return;
    if (place_runs(d, t, true)) return;
    if (!has_gap(d) && uint64_t{d.size()} * t.size() <= kFewPairs) return match_longest(d, t);
    if (depth == 0 || d.size() < kStretch || t.size() < kStretch) return (void)place_runs(d, t, false);
    const std::vector<Stretch> in_flow = stretches_of(flow_.subspan(d.first, d.size()), gaps_, d.first);
    const std::vector<Stretch> in_other = stretches_of(other_.subspan(t.first, t.size()));
    std::vector<Anchor> chain = longest_chain(common_stretches(in_flow, in_other, 1));
    if (chain.empty()) chain = longest_chain(common_stretches(in_flow, in_other, kMaxRepeats));
    if (chain.empty()) return has_gap(d) ? (void)place_runs(d, t, false) : step_by_step(d, t);
    Range left_d{d.first, d.first}, left_t{t.first, t.first};
    for (const Anchor& anchor : chain) {
      const uint32_t at_d = d.first + anchor.flow, at_t = t.first + anchor.other;
      if (at_d < left_d.first || at_t < left_t.first || flow_[at_d] != other_[at_t]) continue;
      run({left_d.first, at_d}, {left_t.first, at_t}, depth - 1);
      uint32_t length = 0;
      const uint32_t stop = std::min(d.end, gap_from(at_d + 1));
      for (; at_d + length < stop && at_t + length < t.end && flow_[at_d + length] == other_[at_t + length]; ++length) {
        join(at_d + length, at_t + length);
      }
      left_d.first = at_d + length;
      left_t.first = at_t + length;
    }
    run({left_d.first, d.end}, {left_t.first, t.end}, depth - 1);
  }

 private:
  [[nodiscard]] bool is_gap(uint32_t at) const { return std::binary_search(gaps_.begin(), gaps_.end(), at); }
  [[nodiscard]] bool has_gap(Range d) const {
    const auto at = std::lower_bound(gaps_.begin(), gaps_.end(), d.first);
    return at != gaps_.end() && *at <= d.end;
  }
  /// A run of `flow` between two gaps, and its place in `other`.
  struct Placed {
    Range run;
    uint32_t at = 0;
  };
  /// Finds for each run between two gaps the first place that matches all of it, so that later runs have the most places left. Skips runs
  /// that continue a matched flow without a gap: these match elsewhere only if they are wrong. With `all`, returns nothing unless every run
  /// is found. Otherwise, leaves out runs if more of the others are found without them.
  [[nodiscard]] std::vector<Placed> find_runs(Range d, Range t, bool all) {
    std::vector<Choice> choices;
    std::vector<Way> ways{{t.first, 0, kUnmatched}};
    for (Range run{d.first, d.first}; run.first < d.end; run.first = run.end) {
      run.end = std::min(d.end, gap_from(run.first + 1));
      const bool is_free = is_gap(run.first) && (is_gap(run.end) || run.end == flow_.size());
      if (is_free) extend(ways, run, t.end, choices);
      if (all && (!is_free || ways.back().length != run.end - d.first)) return {};
      if (all) ways.erase(ways.begin(), ways.end() - 1);
    }
    std::vector<Placed> placed;
    for (uint32_t last = ways.back().last; last != kUnmatched; last = choices[last].before) placed.push_back(choices[last].placed);
    std::reverse(placed.begin(), placed.end());
    return placed;
  }
  /// Places of some of the runs so far: where they end in `other`, and how many keys of the flow they match.
  struct Way {
    uint32_t end = 0, length = 0, last = kUnmatched;  ///< last: the Choice of the last run
  };
  struct Choice {
    Placed placed;
    uint32_t before = kUnmatched;  ///< the Choice of the run before it
  };
  /// Extends each way by the run, at the first place after the way's end. Keeps a way that ends later than another only if it matches more.
  void extend(std::vector<Way>& ways, Range run, uint32_t end, std::vector<Choice>& choices) {
    std::vector<Way> all = ways;
    std::optional<uint32_t> at;
    for (const Way& way : ways) {
      if (!at || *at < way.end) at = find(run, {way.end, end});
      if (!at) break;
      choices.push_back({{run, *at}, way.last});
      all.push_back({*at + run.size(), way.length + run.size(), static_cast<uint32_t>(choices.size() - 1)});
    }
    std::sort(all.begin(), all.end(), [](const Way& a, const Way& b) { return a.end != b.end ? a.end < b.end : a.length > b.length; });
    ways.clear();
    for (const Way& way : all) {
      if (ways.empty() || ways.back().length < way.length) ways.push_back(way);
    }
    if (choices.size() > kMostChoices) ways.erase(ways.begin(), ways.end() - 1);
    while (ways.size() > kWays) {  // removes the one that gains least over its predecessor
      size_t least = 1;
      for (size_t i = 1; i + 1 < ways.size(); ++i) {
        if (ways[i].length - ways[i - 1].length < ways[least].length - ways[least - 1].length) least = i;
      }
      ways.erase(ways.begin() + static_cast<std::ptrdiff_t>(least));
    }
  }
  [[nodiscard]] bool is_whole(Range d) const {
    for (uint32_t i = d.first; i < d.end; ++i) {
      if (match_[i] == kUnmatched || match_[i] != match_[d.first] + (i - d.first)) return false;
    }
    return true;
  }
  [[nodiscard]] uint32_t matched_in(Range d) const {
    return d.size() - static_cast<uint32_t>(std::count(match_.begin() + d.first, match_.begin() + d.end, kUnmatched));
  }
  /// Places the runs of `d` between what is matched on both sides, `missing` among them. Returns false, and changes nothing, if no more of
  /// it is matched then.
  bool place_again(Range d, Range missing) {
    Range t{0, static_cast<uint32_t>(other_.size())};
    uint32_t before = d.first, after = d.end;
    for (; before != 0 && match_[before - 1] == kUnmatched && steps_left_ != 0; --before) --steps_left_;
    for (; after != flow_.size() && match_[after] == kUnmatched && steps_left_ != 0; ++after) --steps_left_;
    if (steps_left_ == 0) return false;
    if (before != 0) t.first = match_[before - 1] - other_first_ + 1;
    if (after != flow_.size()) t.end = match_[after] - other_first_;
    if (!find(missing, t)) return false;
    const std::vector<Placed> placed = find_runs(d, t, false);
    uint32_t length = 0;
    for (const Placed& each : placed) length += each.run.size();
    if (length <= matched_in(d)) return false;
    std::fill(match_.begin() + d.first, match_.begin() + d.end, kUnmatched);
    for (const Placed& each : placed) join_run(each);
    return true;
  }
  /// Matches the runs that find_runs() finds. Returns false if there are none, or with `all` if one is missing.
  bool place_runs(Range d, Range t, bool all) {
    if (!has_gap(d)) return false;
    const std::vector<Placed> placed = find_runs(d, t, all);
    for (const Placed& each : placed) join_run(each);
    return !placed.empty();
  }
  void join_run(const Placed& each) {
    for (uint32_t k = 0; k < each.run.size(); ++k) join(each.run.first + k, each.at + k);
  }
  [[nodiscard]] uint32_t gap_from(uint32_t first) const {  // the end if there is none
    const auto at = std::lower_bound(gaps_.begin(), gaps_.end(), first);
    return at == gaps_.end() ? static_cast<uint32_t>(flow_.size()) : *at;
  }
  [[nodiscard]] uint32_t gap_until(uint32_t last) const {  // the start if there is none
    const auto at = std::upper_bound(gaps_.begin(), gaps_.end(), last);
    return at == gaps_.begin() ? 0 : *std::prev(at);
  }
  /// Returns the first place of the whole run in `t`. Returns nothing once the limit of steps is reached.
  [[nodiscard]] std::optional<uint32_t> find(Range run, Range t) {
    if (run.size() > t.size() || steps_left_ < run.size()) return std::nullopt;
    const std::span<const uint64_t> wanted = flow_.subspan(run.first, run.size());
    const uint32_t last = t.end - run.size();
    const auto is_at = [&](uint32_t at) {
      const auto differ = std::mismatch(wanted.begin(), wanted.end(), other_.begin() + at).first - wanted.begin();
      steps_left_ -= std::min<uint64_t>(steps_left_, static_cast<uint64_t>(differ) + 1);
      return static_cast<size_t>(differ) == wanted.size();
    };
    if (run.size() < kStretch) {
      for (uint32_t at = t.first; at <= last && steps_left_ != 0; ++at) {
        if (is_at(at)) return at;
      }
      return std::nullopt;
    }
    if (stretches_.empty()) stretches_ = stretches_of(other_);
    const auto is_before = [](const Stretch& a, const Stretch& b) { return a.hash != b.hash ? a.hash < b.hash : a.at < b.at; };
    const Stretch first{hash_of(wanted.data()), t.first};
    for (auto at = std::lower_bound(stretches_.begin(), stretches_.end(), first, is_before);
         at != stretches_.end() && at->hash == first.hash && at->at <= last && steps_left_ != 0; ++at) {
      if (is_at(at->at)) return at->at;
    }
    return std::nullopt;
  }
  /// Matches a longest common subsequence.
  void match_longest(Range d, Range t) {
    std::vector<uint16_t> lengths((d.size() + 1) * (t.size() + 1));  // of what is common from each pair of places on
    const auto length = [&, first = d.first, other_first = t.first, width = t.size() + 1](uint32_t i, uint32_t j) -> uint16_t& {
      return lengths[(i - first) * width + (j - other_first)];
    };
    for (uint32_t i = d.end; i-- > d.first;) {
      for (uint32_t j = t.end; j-- > t.first;)
        length(i, j) =
            flow_[i] == other_[j] ? static_cast<uint16_t>(length(i + 1, j + 1) + 1) : std::max(length(i + 1, j), length(i, j + 1));
    }
    while (d.first < d.end && t.first < t.end) {
      if (flow_[d.first] == other_[t.first]) {
        join(d.first++, t.first++);
      } else if (length(d.first + 1, t.first) >= length(d.first, t.first + 1)) {
        ++d.first;
      } else {
        ++t.first;
      }
    }
  }
  /// Aligns key by key, for loops in which every stretch is frequent: after a difference, continues at the nearest place at which both are
  /// equal again.
  void step_by_step(Range d, Range t) {
    while (d.first < d.end && t.first < t.end) {
      if (flow_[d.first] == other_[t.first]) {
        join(d.first++, t.first++);
        continue;
      }
      const std::optional<Anchor> next = nearest(d, t);
      if (!next) return;
      d.first = next->flow;
      t.first = next->other;
    }
  }
  [[nodiscard]] std::optional<Anchor> nearest(Range d, Range t) const {
    for (uint32_t cost = 1; cost <= 2 * kNear; ++cost) {
      for (uint32_t i = 0; i <= cost; ++i) {  // first, differences of equal length in both
        const uint32_t in_flow = (i & 1) != 0 ? cost / 2 + (i + 1) / 2 : cost / 2 - i / 2;
        if (d.size() < in_flow + kNearRun || t.size() < cost - in_flow + kNearRun) continue;
        const auto at = flow_.begin() + d.first + in_flow;
        if (std::equal(at, at + kNearRun, other_.begin() + t.first + (cost - in_flow)))
          return Anchor{d.first + in_flow, t.first + cost - in_flow};
      }
    }
    return std::nullopt;
  }
  void join(uint32_t d, uint32_t t) { match_[d] = other_first_ + t; }

  std::span<const uint64_t> flow_, other_;
  std::span<const uint32_t> gaps_;
  uint32_t other_first_;
  std::span<uint32_t> match_;
  std::vector<Stretch> stretches_;  ///< of other_, once something was searched there
  uint64_t steps_left_;
};

}  // namespace

uint64_t content_key(Bytes bytes) {
  const uint64_t hash = fnv1a(bytes, bytes.size());
  return hash ^ (hash >> 29);
}

void align_flows(std::span<const uint64_t> flow, std::span<const uint64_t> other, std::span<const uint32_t> gaps, uint32_t other_first,
                 std::span<uint32_t> match) {
  const Range all{0, static_cast<uint32_t>(flow.size())}, all_other{0, static_cast<uint32_t>(other.size())};
  Aligner(flow, other, gaps, other_first, match).run(all, all_other, kMaxNesting);
  const auto missing = std::count(match.begin(), match.end(), kUnmatched);
  if (gaps.empty() || missing == 0) return;
  // If a run is wrong, parts of other runs may be matched to the wrong iterations of a loop.
  std::vector<uint32_t> by_runs(match.size(), kUnmatched);
  Aligner(flow, other, gaps, other_first, by_runs).run_between_gaps(all, all_other);
  if (std::count(by_runs.begin(), by_runs.end(), kUnmatched) < missing) std::copy(by_runs.begin(), by_runs.end(), match.begin());
  Aligner(flow, other, gaps, other_first, match).place_again();
}

std::pair<size_t, size_t> places_of_missing(std::span<const uint64_t> other, std::span<const uint32_t> match, MissingPart missing) {
  const auto [before, first, end] = missing;
  size_t left = 0, right = 0;
  while (left < std::min(before, first) && match[before - left - 1] == first - left - 1 && other[first - left - 1] == other[end - left - 1])
    ++left;
  while (right < std::min(match.size() - before, other.size() - end) && match[before + right] == end + right &&
         other[first + right] == other[end + right])
    ++right;
  return {before - left, before + right};
}

std::optional<std::vector<size_t>> place_pieces(std::span<const uint64_t> flow, std::span<const FlowPiece> pieces,
                                                std::span<const uint64_t> other) {
  // Shorter[n]: length of the longest start of the piece that ends its first n keys, but for these themselves.
  std::vector<size_t> places, shorter;
  size_t at = 0;
  for (const FlowPiece& piece : pieces) {
    const std::span<const uint64_t> keys = flow.subspan(piece.first, piece.end - piece.first);
    shorter.assign(keys.size() + 1, 0);
    for (size_t n = 1, known = 0; n < keys.size(); ++n) {
      while (known != 0 && keys[n] != keys[known]) known = shorter[known];
      if (keys[n] == keys[known]) ++known;
      shorter[n + 1] = known;
    }
    size_t found = 0;
    for (; at < other.size() && found < keys.size(); ++at) {
      while (found != 0 && other[at] != keys[found]) found = shorter[found];
      if (other[at] == keys[found]) ++found;
    }
    if (found < keys.size()) return std::nullopt;
    places.push_back(at - keys.size());
  }
  return places;
}

}  // namespace ptd::cli
