// A decode against a complete ground truth.
#include "cli/verify/truth_compare.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "cli/cache/node_cache.h"
#include "cli/report/finding_text.h"
#include "cli/report/flow_check.h"
#include "cli/verify/flow_align.h"
#include "cli/verify/marked.h"
#include "cli/verify/psb_match.h"
#include "cli/verify/truth_walk.h"
#include "decoder/uncounted_rounds.h"
#include "ptdecode/flow_cursor.h"
#include "recording/data/aux_windows.h"

namespace ptd::cli {
namespace {

constexpr size_t kGoesOn = 8;                       // this many equal instructions are no accident
constexpr size_t kMostTogether = size_t{1} << 22;   // instructions of segments that are compared as one
constexpr size_t kMostMarks = size_t{1} << 22;      // of PSBs: those of at least 8 GiB of trace
constexpr uint64_t kMostSpare = uint64_t{1} << 30;  // instructions of the truth beyond those that were decoded which are aligned
constexpr uint64_t kMostSteps = uint64_t{1} << 26;  // gaps times places where packets were lost, of a segment
constexpr size_t kUntold = 64;                      // instructions between the last packet and the first one lost: no packet tells of them

/// Returns the PSBs of a truth file, the first kMostMarks. Errors: those of TruthFileReader::open(); a damaged file gives those before the
/// damage.
Result<std::vector<PsbMark>> truth_marks(const std::string& path) {
  auto reader = emulate::TruthFileReader::open(path);
  if (!reader) return reader.error();
  std::vector<PsbMark> marks;
  for (emulate::TruthRecord record; (*reader)->next(record);) {
    if (record.tag == emulate::TruthTag::psb && marks.size() < kMostMarks) marks.push_back({record.offset_bytes, record.tsc});
  }
  return marks;
}

/// What became of an instruction that ran.
enum class Fate : uint8_t { after_end, right, right_flagged, wrong, wrong_flagged, lost };

/// Sorts the instructions of a segment by the names of their functions.
class NameCounter {
 public:
  NameCounter(const Recording& recording, std::vector<NamedCounts>& counts) : recording_(recording), counts_(counts) {}

  [[nodiscard]] bool wanted() const { return !counts_.empty(); }
  void count(const TruthSegment& ran, const std::vector<Fate>& fates, Fate of_skipped, TimeNs when) {
    known_.clear();  // addresses are used again
    for (size_t i = 0; i < fates.size(); ++i) add(pattern_of(Ip{ran.insns.ips[i]}, when), fates[i], 1);
    (void)ran.skipped.for_each([&](uint64_t ip, uint64_t times) {
      add(pattern_of(Ip{ip}, when), of_skipped, times);
      return true;
    });
  }

 private:
  void add(size_t pattern, Fate fate, uint64_t times) {
    if (pattern == counts_.size()) return;
    NamedCounts& c = counts_[pattern];
    c.truth += times;
    c.right += fate == Fate::right || fate == Fate::right_flagged ? times : 0;
    c.right_flagged += fate == Fate::right_flagged ? times : 0;
    c.wrong += fate == Fate::wrong ? times : 0;
    c.wrong_flagged += fate == Fate::wrong_flagged ? times : 0;
    c.lost += fate == Fate::lost ? times : 0;
  }
  size_t pattern_of(Ip ip, TimeNs when) {
    const auto [known, fresh] = known_.try_emplace(ip.value, counts_.size());
    if (!fresh || !is_kernel_half(ip)) return known->second;
    const std::optional<Symbol> symbol = recording_.symbolizer().find(kKernelSpace, ip, when);
    if (!symbol) return known->second;
    const std::string name(symbol->name);
    for (known->second = 0; known->second < counts_.size(); ++known->second) {
      if (fnmatch(counts_[known->second].pattern.c_str(), name.c_str(), 0) == 0) break;
    }
    return known->second;
  }
  const Recording& recording_;
  std::vector<NamedCounts>& counts_;
  std::unordered_map<uint64_t, size_t> known_;
};

/// A place where the decoder says that rounds of a loop without packets are not counted.
struct UncountedLoop {
  size_t before = 0;  ///< this instruction of the decoded flow
  uint64_t ip = 0;    ///< an instruction of the loop
};

/// What the decoder gave of one segment, or several.
struct DecodedSegment {
  InsnFlow insns;
  std::vector<size_t> gaps;  ///< before which instruction
  std::vector<UncountedLoop> loops;
  bool over = false;  ///< an event after the last instruction ended the tracing

  void append(const DecodedSegment& next) {
    const size_t base = insns.size();
    insns.append(next.insns);
    for (const size_t gap : next.gaps) gaps.push_back(base + gap);
    for (const UncountedLoop& loop : next.loops) loops.push_back({base + loop.before, loop.ip});
    over = next.over;
  }
  void clear() {
    insns.clear();
    gaps.clear();
    loops.clear();
    over = false;
  }
};

/// Compares the decode of one segment with its truth.
class SegmentCompare {
 public:
  SegmentCompare(const TruthSegment& truth, const DecodedSegment& decoded, TruthCounts& counts)
      : truth_(truth),
        decoded_(decoded.insns),
        gaps_(decoded.gaps),
        loops_(decoded.loops),
        counts_(counts),
        match_(decoded.insns.size(), kUnmatched),
        fates_(truth.insns.size()) {}

  /// Of each held instruction of the truth; after run().
  [[nodiscard]] const std::vector<Fate>& fates() const { return fates_; }
  [[nodiscard]] Fate fate_of_skipped() const { return fate_of_skipped_; }

  /// `over`: the trace says that tracing ended after the decoded flow, so that the flow should be whole.
  void run(bool last_segment, bool truth_ended, bool over) {
    align_all();
    const TruthCounts before = counts_;
    count(last_segment, truth_ended, over);
    if (counts_.silent() == before.silent()) return;
    const auto count_again = [&] {  // what is less silently wrong stays
      const TruthCounts earlier = std::exchange(counts_, before);
      std::vector<Fate> fates = std::exchange(fates_, std::vector<Fate>(truth_.insns.size()));
      const Fate of_skipped = std::exchange(fate_of_skipped_, Fate());
      count(last_segment, truth_ended, over);
      if (counts_.silent() < earlier.silent()) return;
      counts_ = earlier;
      fates_ = std::move(fates);
      fate_of_skipped_ = of_skipped;
    };
    if (unmatch_ends()) count_again();
    if (counts_.silent() == before.silent() || !align_unmarked()) return;
    count_again();
    if (unmatch_ends()) count_again();
  }

 private:
  void count(bool last_segment, bool truth_ended, bool over) {
    counts_.truth += truth_.size();
    counts_.decoded += decoded_.size();
    uint64_t skipped = truth_.skipped.count;  // not passed yet
    size_t d = 0, t = 0;
    for (size_t i = 0; i < decoded_.size(); ++i) {
      if (match_[i] == kUnmatched) continue;
      const uint64_t passed = truth_.skipped.before <= match_[i] ? std::exchange(skipped, 0) : 0;
      if (d != i || t != match_[i] || passed != 0) differ(d, i, t, match_[i], passed);
      if (decoded_.contents[i] == truth_.insns.contents[match_[i]]) {
        ++counts_.right;
        counts_.right_flagged += decoded_.flagged[i] ? 1 : 0;
        fates_[match_[i]] = decoded_.flagged[i] ? Fate::right_flagged : Fate::right;
      } else {
        differ(i, i + 1, match_[i], match_[i] + size_t{1}, 0);
      }
      d = i + 1;
      t = match_[i] + size_t{1};
    }
    const bool cut =
        last_segment && (!truth_ended || t + (truth_.skipped.count - skipped) >= truth_.told_end) && d == decoded_.size() && !gap_in(d, d);
    if (cut) {
      (truth_ended && over ? counts_.untold : counts_.after_end) += truth_.insns.size() - t + skipped;
    } else if (d != decoded_.size() || t != truth_.insns.size() || skipped != 0) {
      differ(d, decoded_.size(), t, truth_.insns.size(), skipped);
    }
  }
  // Aligns the unmarked flow alone, and then what is marked between its pieces: wrong flow that is marked resembles the flow of another
  // time, and then has the place of right, unmarked flow. False if the pieces of unmarked flow are not all in the truth, in order.
  bool align_unmarked() {
    std::vector<FlowPiece> pieces;
    for (size_t i = 0; i < decoded_.size(); ++i) {
      if (decoded_.flagged[i]) continue;
      if (pieces.empty() || pieces.back().end != i || std::ranges::binary_search(gaps_, i)) pieces.push_back({i, i});
      pieces.back().end = i + 1;
    }
    const auto places = truth_.lost.empty() ? place_pieces(decoded_.ips, pieces, truth_.insns.ips) : std::nullopt;
    if (!places) return false;
    std::ranges::fill(match_, kUnmatched);
    size_t d = 0, t = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      align_part(d, pieces[i].first, t, (*places)[i]);
      d = pieces[i].end;
      t = (*places)[i] + (d - pieces[i].first);
      for (size_t k = pieces[i].first; k < d; ++k) match_[k] = static_cast<uint32_t>((*places)[i] + (k - pieces[i].first));
    }
    align_part(d, decoded_.size(), t, truth_.insns.size());
    return true;
  }
  // A few wrong instructions before a gap resemble the flow of a later time, and all that ran in between would count as left out. It is
  // lost in the gap, and all of the flow up to the gap is wrong, if that is less. Returns whether that was so anywhere.
  bool unmatch_ends() {
    bool any = false;
    size_t first = 0, t = 0;  // t: the truth before is matched by flow before `first`
    for (const size_t gap : gaps_) {
      const size_t from = end_to_unmatch(first, gap, t);
      any = any || from != gap;
      for (size_t i = first; i < gap; ++i) {
        if (match_[i] != kUnmatched) t = match_[i] + size_t{1};
        if (i >= from) match_[i] = kUnmatched;
      }
      first = gap;
    }
    return any;
  }
  // Returns from where on nothing of [first, gap) should have a match, so that least of it and of the truth beside it is silently wrong;
  // `gap` if all matches should stay.
  [[nodiscard]] size_t end_to_unmatch(size_t first, size_t gap, size_t t) const {
    size_t d = first, best = gap;
    // Of the matches in [first, i): truth that is left out, less the unmarked instructions that would be wrong without them.
    int64_t cost = 0, least = 0;
    for (size_t i = first; i < gap; ++i) {
      if (match_[i] == kUnmatched) continue;
      const size_t found = match_[i], left_out = found - t - std::min(found - t, i - d);
      if (left_out != 0 && !gap_in(d, i) && !(d == i && !loops_.empty() && in_loop(d, t, found, false)) && !marked_around(d, i, t, found)) {
        if (cost < least || best == gap) {
          least = cost;
          best = d;
        }
        cost += static_cast<int64_t>(left_out);
      }
      cost -= decoded_.flagged[i] ? 0 : 1;
      d = i + 1;
      t = found + 1;
    }
    return cost > least ? best : gap;
  }
  // Where the recording itself lost packets, the place at which it is found again is known; between such places the two are aligned.
  void align_all() {
    const SkippedInsns& skipped = truth_.skipped;
    size_t d = 0, t = 0, range = 0;
    uint64_t steps = 0;
    for (const size_t gap : gaps_) {
      for (size_t r = range; r < truth_.lost.size() && steps < kMostSteps; ++r, ++steps) {
        const uint64_t end = truth_.lost[r].second;
        if (skipped.before < end && end < skipped.before + skipped.count) continue;
        const size_t found = end <= skipped.before ? end : end - skipped.count;
        if (gap < d || found < t || !goes_on(gap, found)) continue;
        align_part(d, gap, t, found);
        d = gap;
        t = found;
        range = r + 1;
        break;
      }
    }
    align_part(d, decoded_.size(), t, truth_.insns.size());
  }
  void align_part(size_t d, size_t d_end, size_t t, size_t t_end) {
    std::vector<uint32_t> gaps;
    for (auto gap = std::ranges::lower_bound(gaps_, d); gap != gaps_.end() && *gap <= d_end; ++gap)
      gaps.push_back(static_cast<uint32_t>(*gap - d));
    align_flows(std::span(decoded_.ips).subspan(d, d_end - d), std::span(truth_.insns.ips).subspan(t, t_end - t), gaps,
                static_cast<uint32_t>(t), std::span(match_).subspan(d, d_end - d));
  }
  [[nodiscard]] bool goes_on(size_t d, size_t t) const {
    const auto next = std::upper_bound(gaps_.begin(), gaps_.end(), d);
    const size_t end = next == gaps_.end() ? decoded_.size() : *next;
    const size_t want = std::min(kGoesOn, end - d);
    if (want == 0 || truth_.insns.size() - t < want) return false;
    for (size_t i = 0; i < want; ++i) {
      if (truth_.insns.ips[t + i] != decoded_.ips[d + i]) return false;
    }
    return true;
  }
  /// Whether the decode says that flow was lost in or beside [first, end).
  [[nodiscard]] bool gap_in(size_t first, size_t end) const {
    const auto gap = std::lower_bound(gaps_.begin(), gaps_.end(), first);
    return gap != gaps_.end() && *gap <= end;
  }
  /// Returns whether the truth that is missing before decoded instruction `d` is iterations of loops that the decoder reports as uncounted:
  /// it has no instruction that is not near such a place or in a round of its own (a segment may begin and end within such a loop: nothing
  /// is decoded).
  [[nodiscard]] bool in_loop(size_t d, size_t t, size_t t_end, bool with_skipped) const {
    constexpr size_t kNear = 4096;  // the longest loop that the decoder recognises
    const size_t d_near = d - std::min(d, kNear);
    const auto at = std::ranges::lower_bound(loops_, d_near, {}, &UncountedLoop::before);
    if (at == loops_.end() || at->before > d + kNear) return false;
    const auto first = decoded_.ips.begin() + static_cast<std::ptrdiff_t>(d_near);
    const auto last = decoded_.ips.begin() + static_cast<std::ptrdiff_t>(std::min(d + kNear, decoded_.size()));
    std::unordered_set<uint64_t> near(first, last), begun;
    const std::span ran = std::span(truth_.insns.ips).subspan(t, t_end - t);
    // Rounds can be missing from any of their instructions on, as equal rounds have no certain places: the round from the reported address
    // counts.
    for (auto loop = at; loop != loops_.end() && loop->before <= d + kNear; ++loop) {
      if (begun.insert(loop->ip).second) add_round(ran.first(std::min(2 * kNear, ran.size())), loop->ip, near);
    }
    const auto is_near = [&near](uint64_t ip, uint64_t /*times*/ = 1) { return near.contains(ip); };
    return std::ranges::all_of(ran, [&](uint64_t ip) { return is_near(ip); }) && (!with_skipped || truth_.skipped.for_each(is_near));
  }
  static void add_round(std::span<const uint64_t> ran, uint64_t begin, std::unordered_set<uint64_t>& near) {
    const auto round = std::ranges::find(ran, begin);
    if (round != ran.end()) near.insert(round, std::find(round + 1, ran.end(), begin));
  }
  /// Whether the decode is marked beside instructions [t, t_end) of the truth, which are missing before decoded instruction `d`, or may be
  /// missing elsewhere in the loop that they are rounds of.
  [[nodiscard]] bool marked_beside(size_t d, size_t t, size_t t_end) const {
    const auto [first, last] = places_of_missing(truth_.insns.ips, match_, {d, t, t_end});
    const auto at = [this](size_t i) { return decoded_.flagged.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::find(at(first - std::min<size_t>(first, 1)), at(std::min(last + 1, decoded_.size())), true) !=
           at(std::min(last + 1, decoded_.size()));
  }
  [[nodiscard]] bool marked_around(size_t d, size_t d_end, size_t t, size_t t_end) const {
    if (d == d_end && t != t_end) return marked_beside(d, t, t_end);
    return (d != 0 && decoded_.flagged[d - 1]) || (d != d_end && decoded_.flagged[d]) ||
           (d_end < decoded_.size() && decoded_.flagged[d_end]);
  }
  /// Returns how many of the instructions [first, end) of the truth the recording itself lost. Here, as in `lost`, those that are skipped
  /// count.
  [[nodiscard]] uint64_t asked_in(uint64_t first, uint64_t end) const {
    uint64_t asked = 0;
    auto at = std::ranges::upper_bound(truth_.lost, first, {}, &std::pair<uint64_t, uint64_t>::second);
    for (; at != truth_.lost.end() && at->first < std::max(end, first + kUntold); ++at) {
      const uint64_t since = at->first > first && at->first - first < kUntold ? first : at->first, last = std::min(at->second, end);
      asked += last - std::min(std::max(since, first), last);
    }
    return asked;
  }
  // The decoder gave [d, d_end) where [t, t_end) ran, and `skipped` instructions that are not held.
  void differ(size_t d, size_t d_end, size_t t, size_t t_end, uint64_t skipped) {
    const uint64_t held = t_end - t, ran = held + skipped;
    if (d == d_end && !loops_.empty() && in_loop(d, t, t_end, skipped != 0)) {
      counts_.untold += ran;
      std::fill(fates_.begin() + static_cast<std::ptrdiff_t>(t), fates_.begin() + static_cast<std::ptrdiff_t>(t_end), Fate::after_end);
      return;
    }
    for (size_t i = d; i < d_end; ++i) {
      if (i - d >= ran) {
        (decoded_.flagged[i] ? counts_.extra_flagged : counts_.extra) += 1;
      } else {
        (decoded_.flagged[i] ? counts_.wrong_flagged : counts_.wrong) += 1;
        if (i - d < held) fates_[t + (i - d)] = decoded_.flagged[i] ? Fate::wrong_flagged : Fate::wrong;
      }
    }
    const uint64_t missing = ran - std::min<uint64_t>(ran, d_end - d);
    const bool is_lost = gap_in(d, d_end), flagged = !is_lost && marked_around(d, d_end, t, t_end);
    const Fate fate = is_lost ? Fate::lost : flagged ? Fate::wrong_flagged : Fate::wrong;
    std::fill_n(std::make_reverse_iterator(fates_.begin() + static_cast<std::ptrdiff_t>(t_end)), std::min(missing, held), fate);
    if (skipped != 0) fate_of_skipped_ = fate;
    (is_lost ? counts_.lost : flagged ? counts_.wrong_flagged : counts_.wrong) += missing;
    const uint64_t first = t <= truth_.skipped.before ? t : t + truth_.skipped.count;
    if (is_lost && missing != 0) counts_.lost_as_asked += std::min(missing, asked_in(first, first + ran));
    if (counts_.has_first_wrong || (gap_in(d, d_end) && d == d_end)) return;
    counts_.has_first_wrong = true;
    counts_.first_wrong_offset_bytes = truth_.offset_bytes;
    counts_.first_want = Ip{t < truth_.insns.size() ? truth_.insns.ips[t] : 0};
    counts_.first_got = Ip{d < decoded_.size() ? decoded_.ips[d] : 0};
    if (counts_.first_want != counts_.first_got || t == t_end || d == d_end) return;
    counts_.first_bytes = {truth_.insns.contents[t].text(), decoded_.contents[d].text()};
  }

  const TruthSegment& truth_;
  const InsnFlow& decoded_;
  const std::vector<size_t>& gaps_;
  const std::vector<UncountedLoop>& loops_;
  TruthCounts& counts_;
  std::vector<uint32_t> match_;
  std::vector<Fate> fates_;
  Fate fate_of_skipped_ = Fate();
};

bool ends_tracing(const Batch& batch) {
  if (batch.events.empty() || batch.events.back().before_block < batch.blocks.size()) return false;
  const EventKind kind = batch.events.back().kind;
  return kind == EventKind::disabled || kind == EventKind::async_disabled;
}

/// Whether `batch`, the first of `segment`, says that trace before the segment is lost, or tracing paused there (between the windows of AUX
/// samples). The flow of the segment before it then ends in that gap.
bool begins_after_loss(const Batch& batch, const AuxSegment& segment) {
  if (segment.break_before == AuxBreak::snapshot) return true;
  return segment.break_before != AuxBreak::none && !batch.gaps.empty() && batch.gaps.front().reason == GapReason::aux_lost &&
         batch.gaps.front().before_block == 0;
}

void add_batch(const Batch& batch, NodeCache& nodes, DecodedSegment& decoded) {
  if (!batch.blocks.empty() || !batch.events.empty()) decoded.over = ends_tracing(batch);
  FlowCursor cursor;
  cursor.begin(batch);
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item == FlowItem::gap) decoded.gaps.push_back(decoded.insns.size());
    if (item == FlowItem::event && is_uncounted_rounds(cursor.event()))
      decoded.loops.push_back({.before = decoded.insns.size(), .ip = cursor.event().from.value});
    if (item != FlowItem::blocks) continue;
    for (const Block& block : cursor.blocks()) {
      const bool flagged = (block.flags & kMarkedFlags) != 0;
      const Bytes bytes = nodes.bytes(block.node);
      const Ip ip = nodes.info(block.node).ip;
      for (const CachedInsn& insn : nodes.insns(block.node)) {
        decoded.insns.add(ip + insn.offset_bytes, bytes.subspan(insn.offset_bytes, insn.length_bytes), flagged);
      }
    }
  }
}

/// Takes the segments of the decode one after the other and finds their truth. The PSBs that both have divide the two flows into parts,
/// which are compared. A PSB that only one of them has is inside a part.
class StreamCompare {
 public:
  StreamCompare(emulate::TruthFileReader& reader, bool is_pt, std::vector<PsbMark> marks, NameCounter& names, TruthCounts& counts)
      : walk_(reader, is_pt), matcher_(std::move(marks)), names_(names), counts_(counts) {}

  /// `decoded` is of unspecified content afterwards.
  void segment(const PsbMark& mark, TimeNs when, DecodedSegment& decoded) {
    if (const std::optional<size_t> index = matcher_.find(mark)) {
      compare_until(*index);
      std::swap(decoded_, decoded);
      found_ = true;
    } else {
      if (decoded_.insns.size() >= kMostTogether) compare_equally_long(false);
      decoded_.append(decoded);
    }
    when_ = when;
  }
  /// Compares the last segment. The truth after it is beyond the end of the recorded trace: lost.
  void finish() {
    compare_equally_long(true);
    while (walk_.more()) skip();
  }
  /// Whether a PSB of the decode is one of the truth.
  [[nodiscard]] bool found() const { return found_; }
  [[nodiscard]] bool ended() const { return walk_.ended(); }

 private:
  // Compares with the truth before its PSB number `index`. The recording may begin after the first PSBs of the truth.
  void compare_until(size_t index) {
    if (!found_) decoded_.gaps = {0, decoded_.insns.size()};
    const auto is_before = [&] { return walk_.more() && walk_.psbs() <= index; };
    TruthSegment ran;
    while (is_before() && ran.skipped.count == 0 && ran.insns.size() < std::min(held(), kMostTogether)) take(ran);
    compare(ran, false);
    while (is_before()) skip();
  }
  // Compares with as much truth as was decoded, or more by less than a segment.
  void compare_equally_long(bool last) {
    TruthSegment ran;
    if (walk_.more()) take(ran);
    while (walk_.more() && ran.skipped.count == 0 && ran.insns.size() < decoded_.insns.size()) take(ran);
    compare(ran, last && !walk_.more());
  }
  /// Returns how much of a segment of the truth is held, at its start and at its end. What was decoded can be at both.
  [[nodiscard]] size_t held() const {
    constexpr size_t kLeast = 4096;
    return spare_ < kMostSpare ? std::max(TruthWalk::kMostHeld, decoded_.insns.size()) : 2 * decoded_.insns.size() + kLeast;
  }
  void take(TruthSegment& ran) {
    TruthSegment next;
    (void)walk_.next(next, held());
    ran.append(next);
  }
  void skip() {
    decoded_.clear();
    decoded_.gaps = {0};
    TruthSegment ran;
    (void)walk_.next(ran, 0);
    compare(ran, false);
  }
  void compare(const TruthSegment& truth, bool last) {
    SegmentCompare segment(truth, decoded_, counts_);
    segment.run(last, walk_.ended(), decoded_.over);
    if (names_.wanted()) names_.count(truth, segment.fates(), segment.fate_of_skipped(), when_);
    spare_ += truth.insns.size() - std::min(truth.insns.size(), decoded_.insns.size());
    decoded_.clear();
  }
  TruthWalk walk_;
  PsbMatcher matcher_;
  NameCounter& names_;
  TimeNs when_;
  TruthCounts& counts_;
  DecodedSegment decoded_;  // from the last PSB that both have
  uint64_t spare_ = 0;      // instructions of the truth that were aligned, beyond those that were decoded
  bool found_ = false;
};

}  // namespace

Result<TruthCounts> compare_with_truth(const Recording& recording, uint32_t stream, const std::string& truth_path,
                                       const std::vector<std::string>& patterns, const std::function<void(uint64_t bytes)>& on_progress) {
  auto reader = emulate::TruthFileReader::open(truth_path);
  if (!reader) return reader.error();
  Result<std::vector<PsbMark>> marks = truth_marks(truth_path);
  if (!marks) return marks.error();
  TruthCounts counts;
  for (const std::string& pattern : patterns) counts.named.push_back({pattern, 0, 0, 0, 0, 0, 0});
  NameCounter names(recording, counts.named);
  TimeNs when;
  PsbMark mark;
  const bool is_pt = recording.streams()[stream].protocol == arm::Protocol::none;
  StreamCompare compare(**reader, is_pt, std::move(*marks), names, counts);
  DecodedSegment decoded;
  NodeCache nodes;
  uint64_t offset = 0;
  bool any = false;
  const Status status =
      recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        if (any && segment.stream_offset_bytes != offset) {
          if (begins_after_loss(batch, segment)) decoded.gaps.push_back(decoded.insns.size());
          compare.segment(mark, when, decoded);
          on_progress(segment.stream_offset_bytes - offset);
          decoded.clear();
        }
        if (!any || segment.stream_offset_bytes != offset) mark = is_pt ? psb_mark(segment) : PsbMark{segment.stream_offset_bytes, {}};
        any = true;
        offset = segment.stream_offset_bytes;
        when = segment.time.first;
        nodes.bind(decoder.blocks());
        counts.gaps += batch.gaps.size();
        add_batch(batch, nodes, decoded);
        return true;
      });
  if (!status) return status.error();
  counts.windows = !aux_windows(recording, stream).empty();
  if (counts.windows) decoded.gaps.push_back(decoded.insns.size());  // what ran after the last one
  if (any) compare.segment(mark, when, decoded);
  compare.finish();
  if (!(*reader)->error().empty()) return Error{ErrorCode::bad_format, truth_path + ": " + (*reader)->error(), 0};
  counts.has_end = compare.ended();
  if (counts.truth != 0 && counts.decoded != 0 && !compare.found()) {
    return Error{ErrorCode::wrong_recording,
                 truth_path + ": none of its PSBs is at the offset of one in the trace of " + stream_name(recording.streams()[stream]) +
                     ": it belongs to another recording or thread",
                 0};
  }
  return counts;
}

std::string truth_report(const StreamInfo& stream, const TruthCounts& c) {
  const auto percent = [&](uint64_t part) { return c.truth == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(c.truth); };
  std::string text = fmt::format(
      "{}: {} instructions: right {} ({:.6f} %), of them flagged {} ({:.4f} %); wrong but flagged {}; silently wrong {}; lost in gaps {}, "
      "of them where packets were lost {}; gaps {}",
      stream_name(stream), c.truth, c.right, percent(c.right), c.right_flagged, percent(c.right_flagged), c.wrong_flagged,
      c.wrong + c.extra, c.lost, c.lost_as_asked, c.gaps);
  if (c.extra + c.extra_flagged != 0)
    text += fmt::format("; {} given where nothing ran, of them flagged {}", c.extra + c.extra_flagged, c.extra_flagged);
  if (c.windows) text += "; what ran between the windows of AUX samples counts as lost";
  if (c.after_end != 0) text += fmt::format("; {} after the end of the trace", c.after_end);
  if (c.untold != 0) text += fmt::format("; {} not counted by the trace: iterations of loops without packets", c.untold);
  text += '\n';
  if (!c.has_end && c.extra + c.extra_flagged != 0)
    text += "  the truth file does not have the end of the thread: it may be cut, and what is given where nothing ran may be right\n";
  if (c.has_first_wrong) {
    const auto place = [](Ip ip, const std::string& bytes) { return fmt::format("{:x}{}{}", ip.value, bytes.empty() ? "" : " ", bytes); };
    text += fmt::format("  first difference: in the segment at offset {:#x}: truth {}, here {}\n", c.first_wrong_offset_bytes,
                        place(c.first_want, c.first_bytes.first), place(c.first_got, c.first_bytes.second));
  }
  for (const NamedCounts& n : c.named) {
    text += fmt::format("  {}: {} instructions: right {}, of them flagged {}; wrong but flagged {}; silently wrong {}; lost in gaps {}\n",
                        n.pattern, n.truth, n.right, n.right_flagged, n.wrong_flagged, n.wrong, n.lost);
  }
  return text;
}

int32_t tid_of_path(const std::string& path) {
  const size_t at = path.rfind("tid");
  int tid = -1;
  if (at != std::string::npos && std::sscanf(path.c_str() + at, "tid%d", &tid) == 1) return tid;
  return -1;
}

}  // namespace ptd::cli
