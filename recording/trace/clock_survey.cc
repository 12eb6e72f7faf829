// ClockSurvey: phases of the TSC against the crystal clock, and the causes of their changes.
#include "recording/trace/clock_survey.h"

#include <algorithm>
#include <tuple>

#include "decoder/pt/flow/time_ahead.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd {
namespace {

constexpr size_t kMostSamples = 1U << 16;
constexpr size_t kLeastSamples = 8;  // PSBs of a stream; with fewer, all but one must agree
constexpr size_t kFewSamples = 3;    // with fewer, another stream must agree too
constexpr size_t kMostPhases = 3;    // phases that several PSBs have; a clock with more of them drifts
constexpr size_t kUsual = 8;         // at least 7 of 8 PSBs are like the one before
constexpr size_t kOnePsb = 2;        // changes that one PSB with another phase causes
constexpr size_t kMostShifts = 16;
constexpr uint64_t kRecordNs = 1'000'000;         // by which an AUX record may be early or late
constexpr uint64_t kFarNs = 1'000'000'000;        // no order of writing explains this
constexpr uint64_t kMostPeriods = 4;              // MTC periods from the last MTC before a PSB to the PSB
constexpr uint64_t kUnknownShift = ~uint64_t{0};  // of TSCs that are wrong by an unknown amount: they are not used

// Whether the TSC goes back between a PSB of phase `a` and one of phase `b`. The TSC of a thread or cpu never does, so one phase is wrong.
bool goes_back(const std::vector<PsbEntry>& psbs, const ClockRatio& ratio, uint64_t a, uint64_t b) {
  for (size_t i = 1; i < psbs.size(); ++i) {
    const uint64_t before = ratio.phase_of(psbs[i - 1]), after = ratio.phase_of(psbs[i]);
    const bool between = (ratio.is_near(before, a) && ratio.is_near(after, b)) || (ratio.is_near(before, b) && ratio.is_near(after, a));
    if (between && ((psbs[i].tsc - psbs[i - 1].tsc) & ClockRatio::kTscMask) > ClockRatio::kTscMask / 2) return true;
  }
  return false;
}

// Whether the phase of the first or last PSB differs for another reason than a ratio that is not exact: the others drift too little for
// that.
bool is_no_drift(const std::vector<PsbEntry>& psbs, const ClockRatio& ratio, const PsbEntry& odd, uint64_t phase) {
  const auto span = [](uint64_t a, uint64_t b) { return std::min((a - b) & ClockRatio::kTscMask, (b - a) & ClockRatio::kTscMask); };
  uint64_t agreed = 0, nearest = ClockRatio::kTscMask;
  const PsbEntry* before = nullptr;
  for (const PsbEntry& psb : psbs) {
    if (psb.offset_bytes == odd.offset_bytes) continue;
    if (before != nullptr) agreed += span(psb.tsc, before->tsc);
    nearest = std::min(nearest, span(psb.tsc, odd.tsc));
    before = &psb;
  }
  if (agreed == 0) return false;
  const uint64_t found = ratio.phase_of(odd), far = found > phase ? found - phase : phase - found;
  const auto drift = static_cast<unsigned __int128>(2 * ratio.slack()) * nearest / agreed + 2 * ratio.slack();
  return std::min(far, ratio.modulus() - far) > drift;
}

// A clock that was set back moved the records' times too.
bool has_ordered_records(const AuxStream& stream) {
  const auto& written = stream.written();
  return std::is_sorted(written.begin(), written.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
}

// Whether an AUX record says that the byte at `offset` was written at another time than `time`, by more than `slack_ns`.
bool contradicts_records(const AuxStream& stream, uint64_t offset, Interval time, uint64_t slack_ns = kRecordNs) {
  const auto& written = stream.written();
  const auto next = std::upper_bound(written.begin(), written.end(), offset,
                                     [](uint64_t value, const AuxStream::Written& record) { return value < record.end_offset_bytes; });
  if (next != written.end() && next->time.value < time.first.value - std::min(time.first.value, slack_ns)) return true;
  return next != written.begin() && time.last.value < std::prev(next)->time.value - std::min(std::prev(next)->time.value, slack_ns);
}

// Same, by so much that the trace's order does not explain it: `time` is before or after all records of the stream, or far from those
// around.
bool is_far_off_records(const AuxStream& stream, uint64_t offset, Interval time, uint64_t far_ns) {
  if (!contradicts_records(stream, offset, time)) return false;
  const auto& written = stream.written();
  const uint64_t first = written.front().time.value, last = written.back().time.value;
  return time.last.value < first - std::min(first, kRecordNs) || last < time.first.value - std::min(time.first.value, kRecordNs) ||
         contradicts_records(stream, offset, time, far_ns);
}

// The TSC that the PSB `to` should have by the clock of `from`, the PSB before it: MTC packets count the crystal clock between the two.
std::optional<uint64_t> count_to(const AuxStream& stream, const pt::Config& config, const PsbEntry& from, const PsbEntry& to) {
  const ClockRatio ratio{config.tsc_ctc_ratio_n, config.tsc_ctc_ratio_d};
  std::vector<std::byte> scratch;
  const Seam* seam = stream.seam_after(from.offset_bytes);
  const Bytes bytes = stream.read(from.offset_bytes, to.offset_bytes, scratch);
  if (bytes.size() != to.offset_bytes - from.offset_bytes || (seam != nullptr && seam->offset_bytes <= to.offset_bytes)) return {};
  pt::PacketReader reader(bytes);
  reader.set_errata(config.errata);
  pt::PtClock clock(config);
  pt::Packet packet;
  bool counts = false;  // an MTC came after the last TSC
  for (;;) {
    const uint64_t at = reader.offset();
    const pt::PacketReader::Status status = reader.next(packet);
    if (status == pt::PacketReader::Status::end) break;
    if (status != pt::PacketReader::Status::ok || packet.kind == pt::PacketKind::ovf) return {};
    clock.on_packet(packet, at);
    counts = packet.kind == pt::PacketKind::mtc || (counts && packet.kind != pt::PacketKind::tsc);
  }
  if (!clock.known() || !counts) return {};
  const uint64_t modulus = ratio.modulus(), here = ratio.phase_of(clock.now().value, to), wanted = ratio.phase_of(from);
  const uint64_t later = (wanted + modulus - here) % modulus;
  const uint64_t most = (kMostPeriods << (config.mtc_period & 15U)) * ratio.n;
  if (later <= most) return clock.now().value + later / ratio.d;
  if (modulus - later <= ratio.slack()) return clock.now().value - (modulus - later) / ratio.d;
  return {};
}

std::string what_is_wrong(const SegmentIndex& index, const PsbEntry& entry, const SegmentTiming& timing) {
  if (index.clock().of_arm)
    return std::string("contradict ") + (entry.is_off_record ? "the times of AUX records" : "those around them") +
           " and are corrected or not used";
  if (entry.lacks_tsc) return "are missing: times up to the next TSC are not known exactly";
  const TscCheck check = index.clock().check_of(entry);
  if (entry.is_out_of_order) return "are not in order and are not used";
  if (entry.is_off_record) return "contradict the times of AUX records and are not used";
  if (!check.use) return "contradict the crystal clock (TMA) and are not used";
  const bool late = check.late_by <= ClockRatio::kTscMask / 2;
  const uint64_t ticks = late ? check.late_by : (0 - check.late_by) & ClockRatio::kTscMask;
  const std::string by = timing.time.valid() ? std::to_string(timing.time.duration_ns(ticks)) + " ns" : std::to_string(ticks) + " ticks";
  return "are " + by + (late ? " ahead of" : " behind") + " the crystal clock (MTC, TMA) and are corrected";
}

}  // namespace

void ClockSurvey::add(size_t i, const AuxStream& stream, const PsbEntry& psb) {
  StreamSamples& mine = streams_[i];
  mine.in_guest = mine.in_guest || psb.in_guest;
  if (psb.lacks_tsc) ++mine.untimed, ++untimed_;
  if (!psb.has_tsc) return;
  if (mine.timed++ != 0 && psb.tsc < mine.before) ++mine.backward;
  mine.before = psb.tsc;
  mine.of_thread = stream.cpu < 0;
  ++timed_;
  if (contradicts(stream, psb)) ++contradicted_;
  if (psb.has_tma && ratio().known() && mine.psbs.size() < kMostSamples) mine.psbs.push_back(psb);
}

// Whether each PSB+ of a stream has a TSC. A stream without any may be traced without them.
bool ClockSurvey::needs_tsc(const StreamSamples& stream) const {
  const bool is_timed = stream.timed != 0 || stream.untimed == 1;
  return is_timed && !stream.in_guest && untimed_ < timed_;
}

// The phase of the PSBs of all threads, if no other one has several of them and few have another one: then no thread moves to another
// crystal clock.
std::optional<uint64_t> ClockSurvey::find_thread_phase() const {
  const ClockRatio clock = ratio();
  if (is_sample_) return {};
  std::vector<uint64_t> phases;
  for (const StreamSamples& stream : streams_) {
    if (stream.in_guest || !stream.of_thread) continue;
    for (const PsbEntry& psb : stream.psbs) phases.push_back(clock.phase_of(psb));
  }
  if (phases.size() < kLeastSamples) return {};
  // The phase of most, if there is one; then each of the others must be alone.
  std::sort(phases.begin(), phases.end());
  std::optional<uint64_t> phase;
  std::vector<uint64_t> others;
  for (size_t first = 0; first < phases.size() && !phase; first += phases.size() / 16 + 1) {
    const auto is_like = [&](uint64_t other) { return clock.is_near(phases[first], other); };
    const auto count = static_cast<size_t>(std::count_if(phases.begin(), phases.end(), is_like));
    if (count + std::max<size_t>(1, phases.size() / kUsual) >= phases.size()) phase = phases[first];
  }
  if (!phase) return {};
  std::copy_if(phases.begin(), phases.end(), std::back_inserter(others), [&](uint64_t other) { return !clock.is_near(*phase, other); });
  const auto is_pair = [&](uint64_t a, uint64_t b) { return clock.is_near(a, b); };
  const bool are_alone = std::adjacent_find(others.begin(), others.end(), is_pair) == others.end() &&
                         (others.size() < 2 || !is_pair(others.front(), others.back()));
  return are_alone ? phase : std::nullopt;
}

// The phases of a stream; none if they drift.
ClockSurvey::Clusters ClockSurvey::clusters_of(size_t i) const {
  const StreamSamples& mine = streams_[i];
  const ClockRatio clock = ratio();
  if (mine.in_guest || mine.psbs.size() < 2) return {};
  std::vector<std::pair<uint64_t, const PsbEntry*>> sorted;
  size_t changes = 0;
  for (const PsbEntry& psb : mine.psbs) {
    const uint64_t phase = clock.phase_of(psb);
    if (!sorted.empty() && !clock.is_near(phase, sorted.back().first)) ++changes;
    sorted.emplace_back(phase, &psb);
  }
  if (changes > std::max(kOnePsb, sorted.size() / kUsual)) return {};
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Phases wrap: those of the first cluster may be near the last ones.
  const auto differ = [&](const auto& a, const auto& b) { return !clock.is_near(a.first, b.first); };
  const auto cut = std::adjacent_find(sorted.begin(), sorted.end(), differ);
  if (cut != sorted.end()) std::rotate(sorted.begin(), std::next(cut), sorted.end());
  Clusters clusters;
  uint64_t before = 0;
  for (const auto& [phase, psb] : sorted) {
    if (clusters.empty() || !clock.is_near(before, phase)) clusters.push_back({phase, 0, 0, 0, *psb});
    before = phase;
    Cluster& cluster = clusters.back();
    if (!clock.is_near(cluster.phase, phase)) return {};
    ++cluster.members;
    if (psb->offset_bytes < cluster.first.offset_bytes) cluster.first = *psb;
  }
  const auto several = std::count_if(clusters.begin(), clusters.end(), [](const Cluster& cluster) { return cluster.members > 1; });
  if (several > static_cast<std::ptrdiff_t>(kMostPhases)) return {};
  const auto most = std::max_element(clusters.begin(), clusters.end(), [](const auto& a, const auto& b) { return a.members < b.members; });
  if (mine.psbs.size() < kLeastSamples && most->members + 1 < mine.psbs.size()) return {};
  for (const PsbEntry* end : {&mine.psbs.front(), &mine.psbs.back()}) {
    const auto is_end = [&](const Cluster& cluster) { return cluster.members == 1 && cluster.first.offset_bytes == end->offset_bytes; };
    const bool is_odd = mine.psbs.size() >= kFewSamples && std::any_of(clusters.begin(), clusters.end(), is_end);
    if (is_odd && !is_no_drift(mine.psbs, clock, *end, most->phase)) return {};
  }
  return clusters;
}

// Whether an AUX record says that the PSB was written at another time than its TSC.
bool ClockSurvey::contradicts(const AuxStream& stream, const PsbEntry& psb) const {
  return config_->time.valid() && contradicts_records(stream, psb.offset_bytes, config_->time.to_interval(Tsc{psb.tsc}, Tsc{psb.tsc}));
}

// Against AUX records and other streams.
void ClockSurvey::compare(size_t i, const AuxStream& stream, Clusters& clusters) const {
  const ClockRatio clock = ratio();
  const auto cluster_at = [&](uint64_t phase) {
    return std::find_if(clusters.begin(), clusters.end(), [&](const Cluster& cluster) { return clock.is_near(cluster.phase, phase); });
  };
  for (const PsbEntry& psb : streams_[i].psbs) {
    const auto cluster = cluster_at(clock.phase_of(psb));
    if (cluster != clusters.end() && contradicts(stream, psb)) ++cluster->contradicted;
  }
  for (size_t other = 0; other < streams_.size(); ++other) {
    if (other == i) continue;
    for (const Cluster& theirs : clusters_of(other)) {
      const auto cluster = cluster_at(theirs.phase);
      if (cluster != clusters.end() && theirs.members > 1) ++cluster->sharers;
    }
  }
}

// How late the TSCs of the clusters that are not right are: by the MTC packets between a PSB that is not right and the one before it that
// is, or else the one after it.
void ClockSurvey::find_shifts(size_t i, const AuxStream& stream, const SegmentIndex& index, const Clusters& clusters,
                              StreamClock& clock) const {
  const auto has = [&](const PsbEntry& psb, uint64_t phase) {
    return psb.has_tsc && psb.has_tma && clock.ratio.is_near(clock.ratio.phase_of(psb), phase);
  };
  // Neighbours of which `low` is like the first one as to the phase and `high` like the last one.
  const auto bisect = [&](PsbEntry low, PsbEntry high, uint64_t phase) {
    const bool low_has = has(low, phase);
    for (;;) {
      auto middle = index.next(low.offset_bytes + (high.offset_bytes - low.offset_bytes) / 2 + 1);
      if (!middle || middle->offset_bytes >= high.offset_bytes) middle = index.previous(high.offset_bytes);
      if (!middle || middle->offset_bytes <= low.offset_bytes) return std::pair(low, high);
      (has(*middle, phase) == low_has ? low : high) = *middle;
    }
  };
  const std::vector<PsbEntry>& psbs = streams_[i].psbs;
  const auto is_right = [&](const PsbEntry& psb) { return has(psb, *clock.phase); };
  for (const Cluster& cluster : clusters) {
    if (clock.ratio.is_near(cluster.phase, *clock.phase) || clock.shifts.size() >= kMostShifts) continue;
    const auto is_first = [&](const PsbEntry& psb) { return psb.offset_bytes == cluster.first.offset_bytes; };
    const auto first = std::find_if(psbs.begin(), psbs.end(), is_first);
    const auto before = std::find_if(std::make_reverse_iterator(first), psbs.rend(), is_right);
    std::optional<uint64_t> late_by;
    if (before != psbs.rend()) {
      const auto [right, late] = bisect(*before, *first, cluster.phase);
      const auto counted = is_right(right) ? count_to(stream, *config_, right, late) : std::nullopt;
      if (counted) late_by = late.tsc - *counted;
    }
    const auto after = std::find_if(first, psbs.end(), is_right);
    if (!late_by && after != psbs.end()) {
      const auto [late, right] = bisect(*first, *after, cluster.phase);
      const auto counted = is_right(right) ? count_to(stream, *config_, late, right) : std::nullopt;
      if (counted) late_by = *counted - right.tsc;
    }
    if (late_by) clock.shifts.push_back({cluster.phase, *late_by & ClockRatio::kTscMask});
  }
}

// A correction that AUX records or the neighbours contradict is not used.
void ClockSurvey::drop_disproven(size_t i, const AuxStream& stream, StreamClock& clock) const {
  const std::vector<PsbEntry>& psbs = streams_[i].psbs;
  const auto is_right = [&](const PsbEntry& psb) { return clock.ratio.is_near(clock.ratio.phase_of(psb), *clock.phase); };
  const auto is_before = [](const PsbEntry& a, const PsbEntry& b) {
    return ((a.tsc - b.tsc) & ClockRatio::kTscMask) > ClockRatio::kTscMask / 2;
  };
  for (StreamClock::Shift& shift : clock.shifts) {
    for (size_t k = 0; k < psbs.size() && shift.late_by != kUnknownShift; ++k) {
      if (!clock.ratio.is_near(clock.ratio.phase_of(psbs[k]), shift.phase)) continue;
      PsbEntry corrected = psbs[k];
      corrected.tsc = (corrected.tsc - shift.late_by) & ClockRatio::kTscMask;
      const bool after_next = k + 1 < psbs.size() && is_right(psbs[k + 1]) && is_before(psbs[k + 1], corrected);
      const bool before_last = k != 0 && is_right(psbs[k - 1]) && is_before(corrected, psbs[k - 1]);
      if (after_next || before_last || contradicts(stream, corrected)) shift.late_by = kUnknownShift;
    }
  }
}

StreamClock ClockSurvey::clock_of(size_t i, const AuxStream& stream, const SegmentIndex& index) const {
  StreamClock clock;
  const StreamSamples& mine = streams_[i];
  clock.in_order = !mine.in_guest && mine.timed >= kFewSamples && mine.backward <= std::max<size_t>(1, mine.timed / kUsual);
  clock.of_thread = stream.cpu < 0;
  const bool is_rare = contradicted_ <= std::max<size_t>(1, timed_ / kUsual);
  if (is_rare && !mine.in_guest && has_ordered_records(stream) && config_->time.valid()) {
    const auto time_of = [time = config_->time](const PsbEntry& psb) { return time.to_interval(Tsc{psb.tsc}, Tsc{psb.tsc}); };
    const uint64_t far_ns = config_->time.duration_ns(StreamClock::kFarTicks);
    clock.is_far_off_records = [&stream, time_of, far_ns](const PsbEntry& psb) {
      return is_far_off_records(stream, psb.offset_bytes, time_of(psb), far_ns);
    };
    if (contradicted_ != 0)
      clock.contradicts_records = [&stream, time_of](const PsbEntry& psb) {
        return contradicts_records(stream, psb.offset_bytes, time_of(psb));
      };
  }
  clock.ratio = ratio();
  clock.needs_tsc = needs_tsc(mine);
  clock.tma_needs_tsc = true;
  clock.may_move = clock.of_thread;
  if (!clock.ratio.known()) return clock;
  if (!thread_phase_) thread_phase_ = find_thread_phase();
  clock.may_move = clock.of_thread && !*thread_phase_;
  if (clock.of_thread && !mine.in_guest) clock.phase = *thread_phase_;
  Clusters clusters = clusters_of(i);
  if (clusters.empty()) return clock;
  compare(i, stream, clusters);
  // Few PSBs count against records too if the TSC goes back between them and others, so that one of the two phases is wrong.
  const auto is_disputed = [&](const Cluster& cluster) {
    return cluster.members > 1 && std::any_of(clusters.begin(), clusters.end(), [&](const Cluster& other) {
             return goes_back(mine.psbs, clock.ratio, cluster.phase, other.phase);
           });
  };
  const auto rank = [&](const Cluster& cluster) {
    const bool is_clean = cluster.contradicted == 0 && (cluster.members >= kLeastSamples || is_disputed(cluster));
    return std::tuple(cluster.contradicted * 2 <= cluster.members, cluster.sharers, is_clean, cluster.members - cluster.contradicted);
  };
  const auto is_less = [&](const Cluster& a, const Cluster& b) { return rank(a) < rank(b); };
  const auto best = std::max_element(clusters.begin(), clusters.end(), is_less);
  if (mine.psbs.size() < kFewSamples && clusters.size() > 1 && best->sharers == 0) return clock;
  StreamClock found = clock;
  found.phase = best->phase;
  find_shifts(i, stream, index, clusters, found);
  drop_disproven(i, stream, found);
  const bool proven = std::all_of(clusters.begin(), clusters.end(), [&](const Cluster& cluster) {
    return &cluster == &*best || cluster.members == 1 || is_damage(i, stream, cluster, *best, found);
  });
  if (!proven) return clock;
  for (const Cluster& cluster : clusters) {
    const auto is_known = [&](const StreamClock::Shift& shift) { return clock.ratio.is_near(shift.phase, cluster.phase); };
    const bool is_wrong = cluster.contradicted != 0 || goes_back(mine.psbs, clock.ratio, cluster.phase, best->phase);
    if (&cluster == &*best || cluster.members == 1 || cluster.sharers != 0 || !is_wrong || found.shifts.size() >= kMostShifts) continue;
    if (std::none_of(found.shifts.begin(), found.shifts.end(), is_known)) found.shifts.push_back({cluster.phase, kUnknownShift});
  }
  return found;
}

// Whether TSCs that many PSBs agree on are wrong nevertheless.
bool ClockSurvey::is_damage(size_t i, const AuxStream& stream, const Cluster& cluster, const Cluster& best,
                            const StreamClock& clock) const {
  if (cluster.contradicted * 2 > cluster.members) return true;
  if (cluster.sharers != 0) return false;  // other processors' TSCs moved in the same way
  if (has_ordered_records(stream) && goes_back(streams_[i].psbs, clock.ratio, cluster.phase, best.phase)) return true;
  // A constant shift: the records that contradict some of its PSBs contradict all, unless the phase of the others is doubtful too.
  if (cluster.contradicted != 0 && best.contradicted == 0 && best.members >= kLeastSamples) return true;
  size_t contradicted = 0;
  bool corrected = false;
  for (const PsbEntry& psb : streams_[i].psbs) {
    if (!clock.ratio.is_near(clock.ratio.phase_of(psb), cluster.phase)) continue;
    std::vector<PsbEntry> one{psb};
    clock.judge(one);
    corrected = one[0].shift != 0;
    if (corrected && contradicts(stream, one[0])) ++contradicted;
  }
  if (contradicted > cluster.contradicted) return false;
  return corrected || best.sharers != 0;
}

std::vector<Finding> clock_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                    const std::function<void(uint64_t offset)>& visit) {
  std::vector<Finding> findings;
  uint64_t count = 0;
  PsbEntry first, last;
  const auto finish = [&] {
    if (count == 0) return;
    Finding& finding = findings.emplace_back();
    finding.kind = FindingKind::clock_contradicts;
    finding.time = hull(index.time_of(first, timing), index.time_of(last, timing));
    finding.what = name_of(stream) + ", trace offset " + std::to_string(first.offset_bytes);
    if (count > 1) finding.what += " to " + std::to_string(last.offset_bytes);
    const bool is_arm = index.clock().of_arm;
    finding.what += std::string(is_arm ? ": the timestamps of " : ": the TSCs of ") + std::to_string(count) +
                    (is_arm ? " A-Sync packet" : " PSB packet") + (count == 1 ? " " : "s ");
    finding.what += what_is_wrong(index, first, timing);
    count = 0;
  };
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    if (count != 0 && (!entry->is_contradicted || entry->shift != first.shift || entry->lacks_tsc != first.lacks_tsc)) finish();
    if (!entry->is_contradicted) continue;
    if (count++ == 0) first = *entry;
    last = *entry;
  }
  finish();
  return findings;
}

std::vector<Finding> count_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                    const pt::Config& config, const std::function<void(uint64_t offset)>& visit) {
  std::vector<Finding> findings;
  if (!timing.use_time || config.tsc_ctc_ratio_n == 0) return findings;
  uint64_t places = 0, first = 0;
  Interval time;
  std::optional<Interval> past_end;
  pt::TimeAhead ahead;
  std::vector<std::byte> scratch;
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    const AuxSegment segment = index.segment(*entry, timing, scratch);
    ahead.begin(segment, config, timing.slack_ns);
    Interval here = segment.time;
    TimeNs counted_to = here.first;
    while (const pt::TimePoint* point = ahead.next()) {
      if (ahead.contradicted_at() == pt::kNoOffset) here.first = point->first;
      counted_to = point->first;
      ahead.pass_one();
    }
    if (ahead.contradicted_at() == pt::kNoOffset) {
      // At the end of the trace the last AUX record has the time.
      const bool is_end = segment.tail_bytes == 0 && segment.time.last < kTimeMax && !ahead.in_guest() && config.time.valid();
      if (is_end && counted_to > segment.time.last && counted_to.value - segment.time.last.value > kFarNs) past_end = segment.time;
      continue;
    }
    time = places == 0 ? here : hull(time, here);
    if (places++ == 0) first = entry->offset_bytes + ahead.contradicted_at();
  }
  if (past_end) {
    Finding& finding = findings.emplace_back();
    finding.kind = FindingKind::clock_contradicts;
    finding.time = *past_end;
    finding.what = name_of(stream) +
                   ": MTC packets count to a later time than that of the last AUX record: the ratio of TSC and crystal clock (" +
                   std::to_string(config.tsc_ctc_ratio_n) + ":" + std::to_string(config.tsc_ctc_ratio_d) + ") may be wrong";
  }
  if (places == 0) return findings;
  Finding& finding = findings.emplace_back();
  finding.kind = FindingKind::clock_contradicts;
  finding.time = time;
  finding.what = name_of(stream) + ", trace offset " + std::to_string(first) +
                 (places == 1 ? "" : " and " + std::to_string(places - 1) + " later") +
                 ": MTC or TMA packets contradict each other, or count from there to a later time than that of the next TSC";
  return findings;
}

}  // namespace ptd
