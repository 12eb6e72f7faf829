// TimelineBuilder: collects the input, then builds space by space and site by site.
#include "ptdecode/timeline_builder.h"

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "image/build/copy_set.h"
#include "image/build/edit_store.h"
#include "image/build/site_builder.h"
#include "image/build/text_pool.h"
#include "image/mapping_snapshots.h"
#include "image/section_index.h"
#include "image/timeline_data.h"
#include "ptdecode/code_view.h"

namespace ptd {
namespace {

std::vector<Interval> merged(std::vector<Interval> windows) {
  std::sort(windows.begin(), windows.end(), [](Interval a, Interval b) { return a.first < b.first; });
  std::vector<Interval> out;
  for (const Interval window : windows) {
    if (window.empty()) continue;
    if (!out.empty() && window.first <= after(out.back().last)) {
      out.back().last = std::max(out.back().last, window.last);
    } else {
      out.push_back(window);
    }
  }
  return out;
}

/// Counts records of sites whose old bytes do not match the previous record, a sign of lost records.
class LossEvidence {
 public:
  void add(SiteInput& input) {
    std::stable_sort(input.steps.begin(), input.steps.end(), [](const auto& a, const auto& b) { return a.time.first < b.time.first; });
    const SiteStep* last = nullptr;
    for (const SiteStep& step : input.steps) {
      if (step.kind == SiteStep::Kind::unmap) last = nullptr;
      if (step.kind != SiteStep::Kind::record) continue;
      if (last != nullptr && last->offset == step.offset && !joins(*last, step)) ++broken_;
      last = &step;
    }
  }
  /// Returns how many of `sites` may disagree with a copy because of such losses, or of those in LOST records (`lost`, in order). If
  /// records are known to be lost, the time at which a recorder takes its copies is better evidence: half of the sites may disagree.
  [[nodiscard]] CopySet::Allowance allowance(size_t sites, const std::vector<Interval>& lost) const {
    if (broken_ == 0 && lost.empty()) return {};
    return {static_cast<int>(sites / 2 + 1), broken_ != 0 ? kTimeMin : lost.front().first};
  }

 private:
  static bool joins(const SiteStep& before, const SiteStep& step) {
    const size_t both = std::min(before.new_bytes.size(), step.old_bytes.size());
    if (both == 0) return before.new_bytes.empty() == step.old_bytes.empty();
    return std::equal(step.old_bytes.begin(), step.old_bytes.begin() + static_cast<ptrdiff_t>(both), before.new_bytes.begin());
  }
  size_t broken_ = 0;
};

}  // namespace

struct TimelineBuilder::State {
  struct Space {
    SpaceId id;
    SpaceId parent = kNoSpace;
    TimeNs forked;
    std::vector<SectionChange> changes;
  };

  std::shared_ptr<TimelineData> data = std::make_shared<TimelineData>();
  std::vector<Space> spaces{1};
  TextPool texts;  // of the sections
  EditStore edits;
  CopySet copies;
  std::vector<Interval> lost;
  std::vector<std::pair<SpaceId, Interval>> lost_of_spaces;
  std::vector<Finding> findings;
  bool frozen = false;

  SectionId first_copy_section = 0;
  std::deque<std::vector<std::byte>> inherited;  // parents' bytes with which sites of children start

  uint32_t add_space(SpaceId id) {
    spaces.emplace_back().id = id;
    return static_cast<uint32_t>(spaces.size() - 1);
  }
  [[nodiscard]] uint32_t index_of(SpaceId space) const { return index_of_space(space, data->kernels); }
  [[nodiscard]] bool has(SpaceId space) const { return index_of(space) < spaces.size(); }
  void add_change(SpaceId space, uint64_t ip, uint64_t size, Interval live, SectionId section);
  void base_from_copies();
  void suspect_spaces();
  void cut_forks_again(const SiteRanges& ranges);
  [[nodiscard]] std::vector<uint32_t> by_number() const;
  void build_space(uint32_t id, const SiteRanges& ranges, size_t& next_range, SiteBuilder& builder);
  void gather(const SiteRange& range, const SiteRanges& ranges, SiteInput& input);
  void gather_sections(SiteInput& input);
  void gather_inherited(SiteInput& input, uint64_t first, uint64_t last);
  std::pair<Bytes, bool> start_bytes(const SpaceData& space, CodeView& view, uint64_t ip, unsigned span,
                                     std::span<CodeCandidate> candidates) const;
  void gather_times(size_t index, const SiteRanges& ranges, SiteBuilder& builder, LossEvidence& losses, std::vector<Interval>& times);
  void date_copies(const SiteRanges& ranges, SiteBuilder& builder);
  bool add_differences(const SiteRanges& ranges, SiteBuilder& builder);
};

TimelineBuilder::TimelineBuilder() : state_(std::make_unique<State>()) {}
TimelineBuilder::~TimelineBuilder() = default;
TimelineBuilder::TimelineBuilder(TimelineBuilder&&) noexcept = default;
TimelineBuilder& TimelineBuilder::operator=(TimelineBuilder&&) noexcept = default;

SpaceId TimelineBuilder::add_space() { return add_space(0); }

SpaceId TimelineBuilder::add_space(uint32_t machine) {
  constexpr size_t kMostGuestSpaces = (1U << kGuestSpaceBits) - 1;
  std::vector<uint32_t>& kernels = state_->data->kernels;
  if (machine > kUnknownGuest) return kNoSpace;
  if (machine != 0 && kernels.size() <= machine) kernels.resize(machine + 1);
  if (machine != 0 && kernels[machine] == 0) kernels[machine] = state_->add_space(kernel_of_machine(machine));
  if (machine != 0 && state_->spaces.size() >= kMostGuestSpaces) return kernel_of_machine(machine);
  const SpaceId made = space_of_machine(machine, static_cast<uint32_t>(state_->spaces.size()));
  state_->add_space(made);
  return made;
}

SpaceId TimelineBuilder::fork_space(SpaceId parent, TimeNs when) {
  const SpaceId child = add_space(machine_of(parent));
  if (parent.value >= child.value || is_kernel_space(parent) || is_kernel_space(child)) return child;
  State::Space& space = state_->spaces[state_->index_of(child)];
  space.parent = parent;
  space.forked = when;
  return child;
}

void TimelineBuilder::State::add_change(SpaceId space, uint64_t ip, uint64_t size, Interval live, SectionId section) {
  space = effective_space(space, Ip{ip});
  if (size == 0 || !has(space) || live.empty()) return;
  const uint64_t last = ip + std::min(size - 1, ~uint64_t{0} - ip);
  spaces[index_of(space)].changes.push_back({ip, last, live, section});
}

void TimelineBuilder::add_section(Section section) {
  section.space = effective_space(section.space, section.ip);
  section.path = state_->texts.shared(section.path);
  section.build_id = state_->texts.shared(section.build_id);
  const auto id = static_cast<SectionId>(state_->data->sections.size());
  state_->add_change(section.space, section.ip.value, section.size_bytes, section.live, id);
  state_->data->sections.push_back(std::move(section));
}

void TimelineBuilder::remove(SpaceId space, Ip ip, uint64_t size_bytes, TimeNs when) {
  state_->add_change(space, ip.value, size_bytes, {when, kTimeMax}, kNoSection);
}

void TimelineBuilder::add_edit(Edit edit) {
  if (state_->has(effective_space(edit.space, edit.ip)) && state_->edits.add(edit)) return;
  add_finding({FindingKind::bad_record, edit.space, edit.ip, edit.time, std::move(edit.old_bytes), std::move(edit.new_bytes),
               "an edit without bytes, without a space or beyond the end of memory"});
}

void TimelineBuilder::add_copy(DatedCopy copy) { state_->copies.add(std::move(copy)); }

void TimelineBuilder::set_word_bytes(unsigned word_bytes) { state_->copies.set_word_bytes(word_bytes); }
void TimelineBuilder::add_lost_window(Interval window) { state_->lost.push_back(window); }
void TimelineBuilder::add_lost_window(SpaceId space, Interval window) {
  if (state_->has(space)) state_->lost_of_spaces.emplace_back(space, window);
}
void TimelineBuilder::add_finding(Finding finding) { state_->findings.push_back(std::move(finding)); }
void TimelineBuilder::freeze_at_first_version() { state_->frozen = true; }

// Adds the copies as base sections, below everything that was mapped explicitly.
void TimelineBuilder::State::base_from_copies() {
  first_copy_section = static_cast<SectionId>(data->sections.size());
  std::vector<std::vector<SectionChange>> base(spaces.size());
  const std::vector<std::vector<AddressRange>> ranges = copies.base_ranges();
  for (size_t i = 0; i < copies.size(); ++i) {
    const DatedCopy& copy = copies.copy(i);
    if (!has(copy.space)) continue;
    for (const AddressRange range : ranges[i]) {
      Section section;
      section.space = copy.space;
      section.ip = Ip{range.first};
      section.size_bytes = range.last - range.first + 1;
      section.code = {copy.code.owner, copy.code.bytes.subspan(range.first - copy.ip.value, section.size_bytes)};
      section.path = copy.path;
      section.build_id = copy.build_id;
      base[index_of(copy.space)].push_back({range.first, range.last, section.live, static_cast<SectionId>(data->sections.size())});
      data->sections.push_back(std::move(section));
    }
  }
  for (size_t i = 0; i < spaces.size(); ++i) {
    auto& changes = spaces[i].changes;
    changes.insert(changes.begin(), base[i].begin(), base[i].end());
  }
}

// A child has a larger number than its parent, so that a parent's windows are known when the child's are made.
void TimelineBuilder::State::suspect_spaces() {
  std::vector<std::vector<Interval>> windows(spaces.size());
  for (const auto& [space, window] : lost_of_spaces) windows[index_of(space)].push_back(window);
  for (const uint32_t kernel : data->kernels) {
    if (kernel == 0) continue;
    windows[kernel].insert(windows[kernel].end(), data->suspect.begin(), data->suspect.end());
    data->spaces[kernel].suspect = merged(std::move(windows[kernel]));
  }
  for (uint32_t id = 0; !lost_of_spaces.empty() && id < spaces.size(); ++id) {
    const Space& space = spaces[id];
    if (machine_of(space.id) != 0 && is_kernel_space(space.id)) continue;
    if (space.parent != kNoSpace) {
      for (const Interval window : data->spaces[index_of(space.parent)].suspect) {
        if (window.contains(space.forked)) windows[id].push_back({space.forked, kTimeMax});
      }
    }
    data->spaces[id].suspect = merged(std::move(windows[id]));
  }
}

// Once it is known what edits change.
void TimelineBuilder::State::cut_forks_again(const SiteRanges& ranges) {
  std::vector<EditedRange> edited;
  for (const SiteRange& range : ranges.ranges) edited.push_back({index_of(range.space), range.ip, range.ip + (range.size_bytes - 1)});
  std::ranges::stable_sort(edited, {}, &EditedRange::space);  // those of a space are in order
  for (uint32_t id = 0; id < spaces.size(); ++id) data->spaces[id].parent = spaces[id].parent;
  (void)cut_fork_chains(*data, edited);
}

// The order of site ranges: that of the spaces' numbers.
std::vector<uint32_t> TimelineBuilder::State::by_number() const {
  std::vector<uint32_t> order(spaces.size());
  for (uint32_t id = 0; id < order.size(); ++id) order[id] = id;
  std::ranges::sort(order, {}, [this](uint32_t id) { return spaces[id].id; });
  return order;
}

void TimelineBuilder::State::build_space(uint32_t id, const SiteRanges& ranges, size_t& next_range, SiteBuilder& builder) {
  data->spaces[id].first_site = static_cast<SiteId>(data->sites.size());
  for (; next_range < ranges.ranges.size() && ranges.ranges[next_range].space == spaces[id].id; ++next_range) {
    SiteInput input;
    gather(ranges.ranges[next_range], ranges, input);
    builder.build(input);
  }
  data->spaces[id].site_count = static_cast<uint32_t>(data->sites.size()) - data->spaces[id].first_site;
}

void TimelineBuilder::State::gather(const SiteRange& range, const SiteRanges& ranges, SiteInput& input) {
  input.space = range.space;
  input.ip = range.ip;
  input.size = range.size_bytes;
  gather_sections(input);
  const bool mapped = std::any_of(input.steps.begin(), input.steps.end(), [](const SiteStep& s) { return !s.new_bytes.empty(); });
  if (!mapped) copies.covering(range.space, range.ip, range.size_bytes, input.copies);
  if (!mapped && input.copies.empty() && is_kernel_space(range.space) && copies.any_in(range.space)) {
    input.outside_base = true;
    input.base_taken = copies.earliest(range.space);
  }
  for (uint32_t i = 0; i < range.piece_count; ++i) {
    const uint32_t index = ranges.pieces[range.first_piece + i];
    const StoredEdit& edit = edits.edits()[index];
    const uint64_t first = std::max(edit.ip, range.ip);
    const uint64_t last = std::min(edit.last(), range.ip + (range.size_bytes - 1));
    const auto part = [&](const std::byte* bytes, uint32_t size) {
      const uint64_t skip = first - edit.ip;
      return skip < size ? Bytes{bytes + skip, std::min<uint64_t>(size - skip, last - first + 1)} : Bytes{};
    };
    SiteStep step;
    step.time = edit.time;
    step.origin = edit.origin;
    step.healed = edit.origin == EditOrigin::healed || edit.origin == EditOrigin::dated_copy;
    step.offset = static_cast<uint32_t>(first - range.ip);
    step.size = static_cast<uint32_t>(last - first + 1);
    step.old_bytes = part(edits.old_bytes(edit), edit.old_size);
    step.new_bytes = part(edits.new_bytes(edit), edit.new_size);
    step.edit = index;
    input.steps.push_back(step);
  }
}

void TimelineBuilder::State::gather_sections(SiteInput& input) {
  const SpaceData& space = data->spaces[index_of(input.space)];
  const uint64_t site_last = input.ip + (input.size - 1);
  std::vector<SectionRect> rects;
  for (uint64_t at = input.ip;;) {
    const uint64_t last = std::min(space.sections.uniform_span(at).last, site_last);
    rects.clear();
    space.sections.find(at, Interval{}, rects);
    if (space.inherits() && (rects.empty() || rects.front().live.first > kTimeMin)) gather_inherited(input, at, last);
    for (size_t i = 0; i < rects.size(); ++i) {
      const SectionRect& rect = rects[i];
      SiteStep step;
      step.kind = rect.section == kNoSection ? SiteStep::Kind::unmap : SiteStep::Kind::section;
      step.time = {rect.live.first, rect.live.first};
      step.offset = static_cast<uint32_t>(at - input.ip);
      step.size = static_cast<uint32_t>(last - at + 1);
      if (rect.section != kNoSection) {
        const Section& section = data->sections[rect.section];
        const uint64_t skip = at - section.ip.value;
        step.weak = section.assumed;
        if (skip < section.code.bytes.size()) {
          step.new_bytes = section.code.bytes.subspan(skip, std::min<uint64_t>(step.size, section.code.bytes.size() - skip));
        }
      }
      const bool from_copy = rect.section != kNoSection && rect.section >= first_copy_section;
      if (!from_copy || rect.live.first > kTimeMin) input.steps.push_back(step);
      const bool followed = i + 1 < rects.size() && rects[i + 1].live.first == after(rect.live.last);
      if (rect.live.last == kTimeMax || followed || rect.section == kNoSection) continue;
      step.kind = SiteStep::Kind::unmap;
      step.time = {after(rect.live.last), after(rect.live.last)};
      step.new_bytes = {};
      input.steps.push_back(step);
    }
    if (last == site_last) return;
    at = last + 1;
  }
}

// Returns the bytes from `ip` on, at most `span`, with which a space starts, and whether they are a guess. Empty: none.
std::pair<Bytes, bool> TimelineBuilder::State::start_bytes(const SpaceData& space, CodeView& view, uint64_t ip, unsigned span,
                                                           std::span<CodeCandidate> candidates) const {
  Fork fork{space.parent, space.forked};
  if (space.parent == kNoSpace) {
    const TimelineData::Inherited found = data->inherited(space, ip);
    span = static_cast<unsigned>(std::min<uint64_t>(span - 1, found.last - ip) + 1);
    fork = found.fork;
    if (fork.parent == kNoSpace) {
      if (found.section == kNoSection) return {};
      const Section& section = data->sections[found.section];
      const uint64_t skip = ip - section.ip.value;
      if (skip >= section.code.bytes.size()) return {};
      return {section.code.bytes.subspan(skip, std::min<uint64_t>(span, section.code.bytes.size() - skip)), section.assumed};
    }
  }
  const FetchResult got = view.fetch(fork.parent, Ip{ip}, {fork.when, fork.when}, {}, candidates, span);
  if (got.status != FetchStatus::ok || got.count == 0) return {};
  // What changed at some time around the fork may have changed before it, or after it.
  const CodeCandidate& newest = candidates[got.count - 1];
  const auto is_certain = [&](size_t i) {
    return std::ranges::all_of(candidates.first(got.count),
                               [&](const CodeCandidate& c) { return i < c.bytes.size() && c.bytes[i] == newest.bytes[i]; });
  };
  const bool any_assumed =
      std::ranges::any_of(candidates.first(got.count), [](const CodeCandidate& c) { return any(c.flags, CodeFlag::assumed); });
  size_t size = 1;
  while (size < std::min<size_t>(newest.bytes.size(), span) && is_certain(size) == is_certain(0)) ++size;
  return {newest.bytes.first(size), any_assumed || !is_certain(0)};
}

void TimelineBuilder::State::gather_inherited(SiteInput& input, uint64_t first, uint64_t last) {
  const SpaceData& space = data->spaces[index_of(input.space)];
  CodeView view{Timeline{data}};
  while (first <= last) {
    std::array<CodeCandidate, 4> candidates;
    const auto span = static_cast<unsigned>(std::min<uint64_t>(64, last - first + 1));
    const auto [bytes, assumed] = start_bytes(space, view, first, span, candidates);
    const uint64_t size = std::max<uint64_t>(bytes.size(), 1);
    if (!bytes.empty()) {
      inherited.emplace_back(bytes.begin(), bytes.end());
      SiteStep step;
      step.kind = SiteStep::Kind::section;
      step.weak = assumed;
      step.time = {kTimeMin, kTimeMin};
      step.offset = static_cast<uint32_t>(first - input.ip);
      step.size = static_cast<uint32_t>(size);
      step.new_bytes = inherited.back();
      input.steps.push_back(step);
    }
    if (last - first < size) return;
    first += size;
  }
}

// Collects the times at which the sites covered by copy `index` had its bytes.
void TimelineBuilder::State::gather_times(size_t index, const SiteRanges& ranges, SiteBuilder& builder, LossEvidence& losses,
                                          std::vector<Interval>& times) {
  const DatedCopy& copy = copies.copy(index);
  const Bytes bytes = copy.code.bytes;
  const auto begin = std::partition_point(ranges.ranges.begin(), ranges.ranges.end(), [&copy](const SiteRange& r) {
    return r.space != copy.space ? r.space < copy.space : r.ip + (r.size_bytes - 1) < copy.ip.value;
  });
  for (auto at = begin; at != ranges.ranges.end() && at->space == copy.space; ++at) {
    if (at->ip - copy.ip.value >= bytes.size() && at->ip >= copy.ip.value) break;
    SiteInput input;
    gather(*at, ranges, input);
    losses.add(input);
    for (const SiteCopy& site_copy : input.copies) {
      if (bytes.data() <= site_copy.bytes.data() && site_copy.bytes.data() < bytes.data() + bytes.size()) {
        builder.matching_times(input, site_copy, times);
      }
    }
  }
}

void TimelineBuilder::State::date_copies(const SiteRanges& ranges, SiteBuilder& builder) {
  Interval edited{kTimeMax, kTimeMin};
  for (const StoredEdit& edit : edits.edits()) edited = hull(edited, edit.time);
  for (size_t first = 0, end = 0; first < copies.size(); first = end) {
    end = copies.taken_with(first);
    if (!copies.undated(first) || !copies.copy(first).taken.overlaps(edited)) continue;
    std::vector<Interval> times;
    LossEvidence losses;
    for (size_t i = first; i < end; ++i) gather_times(i, ranges, builder, losses, times);
    copies.date(first, end, times, losses.allowance(times.size(), data->lost_of(copies.copy(first).space)));
  }
}

// Adds edits for differences between two copies that no record explains. Returns whether there are any.
bool TimelineBuilder::State::add_differences(const SiteRanges& ranges, SiteBuilder& builder) {
  if (copies.size() < 2 || frozen) return false;
  bool any_added = false;
  std::vector<SectionRect> rects;
  const auto [differences, not_compared] = copies.differences(ranges.ranges);
  if (not_compared) {
    builder.report({FindingKind::section_overlap,
                    not_compared->first,
                    not_compared->second,
                    {},
                    {},
                    {},
                    "copies of the kernel have more than " + std::to_string(kMaxComparedBytes >> 20) +
                        " MiB of the same addresses: from here on, they are not compared, and the first copy is used"});
  }
  if (differences.size() >= kMaxCopyDifferences) {
    const Edit& last = differences.back();
    builder.report({FindingKind::poke_lost_by_copy, last.space, last.ip, last.time, last.new_bytes, last.old_bytes,
                    "copies of the text differ in more than " + std::to_string(kMaxCopyDifferences) +
                        " places: they are of different kernels or damaged, and further differences are not used"});
  }
  for (const Edit& edit : differences) {
    if (!has(edit.space)) continue;
    rects.clear();
    data->spaces[index_of(edit.space)].sections.find(edit.ip.value, Interval{}, rects);
    if (rects.size() != 1 || rects[0].section < first_copy_section || rects[0].section == kNoSection) continue;
    if (!edits.add(edit)) continue;
    any_added = true;
    builder.report({FindingKind::poke_lost_by_copy, edit.space, edit.ip, edit.time, edit.new_bytes, edit.old_bytes,
                    "two copies of the text differ here and no record says why"});
  }
  return any_added;
}

Timeline TimelineBuilder::sections() const {
  auto data = std::make_shared<TimelineData>();
  data->sections = state_->data->sections;
  data->kernels = state_->data->kernels;
  for (const State::Space& space : state_->spaces) {
    SpaceData& made = data->spaces.emplace_back();
    made.parent = made.forked_from = space.parent;
    made.forked = space.forked;
    made.sections = SectionIndex(space.changes);
  }
  cut_fork_chains(*data);
  return Timeline{std::move(data)};
}

Timeline TimelineBuilder::build() {
  State& s = *state_;
  s.base_from_copies();
  s.data->spaces.resize(s.spaces.size());
  s.data->suspect = merged(std::move(s.lost));
  s.data->findings = std::move(s.findings);
  for (uint32_t id = 0; id < s.spaces.size(); ++id) {
    SpaceData& space = s.data->spaces[id];
    space.parent = space.forked_from = s.spaces[id].parent;
    space.forked = s.spaces[id].forked;
    space.sections = SectionIndex(std::move(s.spaces[id].changes));
  }
  s.suspect_spaces();
  const bool has_cuts = cut_fork_chains(*s.data);
  s.edits.sort();
  SiteRanges ranges = s.edits.ranges();
  {
    SiteBuilder dater(*s.data, s.edits);
    s.date_copies(ranges, dater);
    if (s.add_differences(ranges, dater)) {
      s.edits.sort();
      ranges = s.edits.ranges();
    }
  }
  if (has_cuts && !ranges.ranges.empty()) s.cut_forks_again(ranges);
  SiteBuilder builder(*s.data, s.edits);
  if (s.frozen) builder.freeze();
  s.data->sites.reserve(ranges.ranges.size());
  size_t next_range = 0;
  for (const uint32_t id : s.by_number()) s.build_space(id, ranges, next_range, builder);
  Timeline timeline{std::move(s.data)};
  state_ = std::make_unique<State>();
  return timeline;
}

}  // namespace ptd
