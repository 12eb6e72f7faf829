// SiteBuilder: scans the history of one site and heals it.
#include "image/build/site_builder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

namespace ptd {
namespace {

constexpr size_t kMaxFindings = 65536;
constexpr uint32_t kMaxSplitDepth = 8;  // at greater depth, split into single bytes

SiteStep clip(const SiteStep& step, uint32_t first, uint32_t end) {
  SiteStep clipped = step;
  const uint32_t from = std::max(step.offset, first), to = std::min(step.end(), end);
  const size_t skip = from - step.offset;
  const auto part = [&](Bytes bytes) {
    return skip < bytes.size() ? bytes.subspan(skip, std::min<size_t>(to - from, bytes.size() - skip)) : Bytes{};
  };
  clipped.offset = from - first;
  clipped.size = to - from;
  clipped.old_bytes = part(step.old_bytes);
  clipped.new_bytes = part(step.new_bytes);
  return clipped;
}

std::vector<std::byte> to_vector(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

SiteBuilder::SiteBuilder(TimelineData& data, const EditStore& edits)
    : data_(data),
      edits_(edits),
      next_edit_(static_cast<uint32_t>(edits.edits().size())),
      reported_(edits.edits().size()),
      is_pending_(edits.edits().size()),
      findings_left_(kMaxFindings) {}

void SiteBuilder::report(Finding finding) {
  if (findings_left_ == 0) return;
  if (--findings_left_ == 0) finding.what += " (further findings are omitted)";
  data_.findings.push_back(std::move(finding));
}

// Adds a finding of the current site. Those beyond the limit of report() are not stored.
void SiteBuilder::add_pending(Finding finding) {
  if (pending_.size() < findings_left_) pending_.push_back(std::move(finding));
}

// Returns whether no site reports the stored edit yet. It counts as reported from now on, unless the current site is split.
bool SiteBuilder::begin_report(uint32_t edit) {
  if (reported_[edit] || is_pending_[edit]) return false;
  is_pending_[edit] = true;
  pending_edits_.push_back(edit);
  return true;
}

void SiteBuilder::build(SiteInput& input) {
  std::stable_sort(input.steps.begin(), input.steps.end(), [](const SiteStep& a, const SiteStep& b) {
    return std::tie(a.time.first, a.time.last, a.kind) < std::tie(b.time.first, b.time.last, b.kind);
  });
  build_at(input, 0);
}

void SiteBuilder::build_at(SiteInput& input, uint32_t depth) {
  pending_.clear();
  for (const uint32_t edit : pending_edits_) is_pending_[edit] = false;
  pending_edits_.clear();
  const size_t steps = input.steps.size();
  place_copies(input);
  if (!scan(input)) {
    std::erase_if(input.steps, [](const SiteStep& s) { return s.kind == SiteStep::Kind::observe; });
    input.steps.resize(std::min(steps, input.steps.size()));
    split(input, depth);
    return;
  }
  if (!frozen_) {
    for (Finding& finding : pending_) report(std::move(finding));
    for (const uint32_t edit : pending_edits_) reported_[edit] = true;
  }
  write_versions(input);
}

// Splits the site: the lost record of some byte precedes another byte's record, so the two have separate histories, linked by edit numbers.
void SiteBuilder::split(const SiteInput& input, uint32_t depth) {
  std::vector<uint32_t> cuts{0, crossing_.first, crossing_.end, input.size};
  if (depth >= kMaxSplitDepth) {
    cuts.clear();
    for (uint32_t i = 0; i <= input.size; ++i) cuts.push_back(i);
  }
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const uint32_t first = cuts[i], end = cuts[i + 1];
    if (first == end) continue;
    SiteInput piece{input.space, input.ip + first, end - first, {}, {}, input.outside_base, input.base_taken};
    for (const SiteStep& step : input.steps) {
      if (step.offset < end && step.end() > first) piece.steps.push_back(clip(step, first, end));
    }
    for (const SiteCopy& copy : input.copies) {
      const auto copy_end = copy.offset + static_cast<uint32_t>(copy.bytes.size());
      const uint32_t from = std::max(copy.offset, first), to = std::min(copy_end, end);
      if (from >= to) continue;
      piece.copies.push_back(copy);
      piece.copies.back().offset = from - first;
      piece.copies.back().bytes = copy.bytes.subspan(from - copy.offset, to - from);
    }
    build_at(piece, depth + 1);
  }
}

bool SiteBuilder::scan(SiteInput& input) {
  scanned_.clear();
  pool_.clear();
  bytes_.assign(input.size, Byte{});
  initial_.assign(input.size, Byte{});
  for (size_t i = 0; i < input.steps.size(); ++i) {
    // Two edits whose times do not determine their order are applied in the order in which their bytes match.
    if (i + 1 < input.steps.size() && input.steps[i].kind == SiteStep::Kind::record && input.steps[i + 1].kind == SiteStep::Kind::record &&
        input.steps[i + 1].time.first <= input.steps[i].time.last && !fits(input.steps[i]) && fits(input.steps[i + 1])) {
      std::swap(input.steps[i], input.steps[i + 1]);
    }
    const SiteStep step = input.steps[i];
    switch (step.kind) {
      case SiteStep::Kind::section:
      case SiteStep::Kind::unmap:
        apply_section(step);
        break;
      case SiteStep::Kind::observe:
        if (!apply_observation(input, step)) return false;
        break;
      case SiteStep::Kind::record:
        if (!apply_record(input, step)) return false;
        break;
    }
  }
  return true;
}

bool SiteBuilder::fits(const SiteStep& step) const {
  for (uint32_t i = 0; i < step.old_bytes.size(); ++i) {
    const Byte& byte = bytes_[step.offset + i];
    if (byte.level == Level::absent || (byte.level == Level::known && byte.value != step.old_bytes[i])) return false;
  }
  return true;
}

void SiteBuilder::push_pooled(SiteStep step, Bytes content, Level level) {
  Scanned scanned{step, pool_.size(), true};
  const auto index = static_cast<int32_t>(scanned_.size());
  for (uint32_t i = 0; i < step.size; ++i) {
    Byte byte{step.time.first, index, {}, Level::unknown, step.healed};
    if (i < content.size()) {
      byte.value = content[i];
      byte.level = level;
    } else if (step.kind == SiteStep::Kind::unmap) {
      byte.level = Level::absent;
    }
    pool_.push_back(byte);
    bytes_[step.offset + i] = byte;
  }
  scanned_.push_back(scanned);
}

void SiteBuilder::apply_section(const SiteStep& step) {
  if (step.time.first > kTimeMin) {
    push_pooled(step, step.new_bytes, step.weak ? Level::weak : Level::known);
    return;
  }
  for (uint32_t i = 0; i < step.new_bytes.size(); ++i) {
    Byte& byte = initial_[step.offset + i];
    byte.value = step.new_bytes[i];
    byte.level = step.weak ? Level::weak : Level::known;
    bytes_[step.offset + i] = byte;
  }
}

// Records a proven value of a byte, which is valid since the byte was last set.
void SiteBuilder::learn(uint32_t offset, std::byte value) {
  Byte& now = bytes_[offset];
  Byte* origin = &initial_[offset];
  if (now.set_by >= 0) {
    const Scanned& by = scanned_[static_cast<size_t>(now.set_by)];
    if (by.pooled) origin = &pool_[by.content + (offset - by.step.offset)];
  }
  now.value = origin->value = value;
  now.level = origin->level = Level::known;
}

SiteBuilder::Mismatch SiteBuilder::compare(const SiteInput& input, const SiteStep& step, Bytes held) {
  Mismatch mismatch;
  const bool observed = step.kind == SiteStep::Kind::observe, is_memory = observed || step.origin == EditOrigin::announced;
  for (uint32_t i = 0; i < held.size(); ++i) {
    const uint32_t offset = step.offset + i;
    Byte& byte = bytes_[offset];
    if (byte.level == Level::absent && is_memory) continue;  // freed memory may contain anything
    if (byte.level == Level::unknown && byte.set_by < 0 && !observed && step.new_bytes.empty() && input.outside_base) {
      byte.level = initial_[offset].level = Level::absent;
      byte.since = input.base_taken;
    }
    if (byte.level == Level::unknown || byte.level == Level::weak) learn(offset, held[i]);
    if (byte.level == Level::known && byte.value == held[i]) continue;
    if (mismatch.end == 0) mismatch.first = offset;
    mismatch.end = offset + 1;
    mismatch.since = std::max(mismatch.since, byte.since);
    mismatch.set_by = std::max(mismatch.set_by, byte.set_by);
  }
  return mismatch;
}

bool SiteBuilder::apply_record(const SiteInput& input, const SiteStep& step) {
  if (!step.old_bytes.empty()) {
    const Mismatch mismatch = compare(input, step, step.old_bytes);
    if (mismatch.end != 0) {
      report_mismatch(input, step, mismatch, step.old_bytes);
      if (!heal(step, step.old_bytes, mismatch)) return false;
    }
  } else if (step.origin == EditOrigin::text_poke && step.edit < reported_.size() && edits_.edits()[step.edit].old_size == 0) {
    heal_removal(input, step);
  }
  bool changes = false;
  for (uint32_t i = 0; i < step.size; ++i) {
    const Byte& byte = bytes_[step.offset + i];
    if (i < step.new_bytes.size()) {
      changes = changes || byte.level != Level::known || byte.value != step.new_bytes[i];
    } else {
      changes = changes || byte.level != Level::absent;
    }
  }
  const int32_t index = changes ? static_cast<int32_t>(scanned_.size()) : -1;
  for (uint32_t i = 0; i < step.size; ++i) {
    Byte& byte = bytes_[step.offset + i];
    byte.since = std::max(byte.since, step.time.first);
    if (!changes) continue;
    byte.set_by = index;
    byte.level = i < step.new_bytes.size() ? Level::known : Level::absent;
    byte.value = i < step.new_bytes.size() ? step.new_bytes[i] : std::byte{0};
  }
  if (changes) scanned_.push_back({step, 0, false});
  return true;
}

bool SiteBuilder::apply_observation(const SiteInput& input, const SiteStep& step) {
  const Mismatch mismatch = compare(input, step, step.new_bytes);
  if (mismatch.end != 0) {
    report_mismatch(input, step, mismatch, step.new_bytes);
    if (!heal(step, step.new_bytes, mismatch)) return false;
  }
  for (uint32_t i = 0; i < step.size; ++i) {
    Byte& byte = bytes_[step.offset + i];
    if (byte.level == Level::known) byte.since = std::max(byte.since, step.time.first);
  }
  return true;
}

// Inserts the edit that must have set the bytes [first, end) to `held`, between their last proof and `cause`. Returns false if another
// record of the site lies between, because then one sequence of versions cannot express the history.
bool SiteBuilder::heal(const SiteStep& cause, Bytes held, const Mismatch& mismatch) {
  const bool crosses = !scanned_.empty() && scanned_.back().step.time.first > mismatch.since;
  if (crosses && mismatch.set_by + 1 < static_cast<int32_t>(scanned_.size())) {
    if (extend_heal(cause, held, mismatch)) return true;
    crossing_ = mismatch;
    if (mismatch.first > 0 || mismatch.end < bytes_.size()) return false;
  }
  SiteStep step;
  step.healed = true;
  step.origin = cause.kind == SiteStep::Kind::observe ? EditOrigin::dated_copy : EditOrigin::healed;
  step.time = {std::min(mismatch.since, cause.time.last), cause.time.last};
  step.offset = mismatch.first;
  step.size = mismatch.end - mismatch.first;
  step.edit = next_edit_++;
  push_pooled(step, held.subspan(mismatch.first - cause.offset, step.size), Level::known);
  return true;
}

// Inserts a removal if code was created where a record had put other code. The kernel records removals, so that record was lost.
void SiteBuilder::heal_removal(const SiteInput& input, const SiteStep& cause) {
  Mismatch standing;
  for (uint32_t offset = cause.offset; offset < cause.end(); ++offset) {
    const Byte& byte = bytes_[offset];
    if (byte.level != Level::known || byte.set_by < 0) continue;
    if (scanned_[static_cast<size_t>(byte.set_by)].step.kind != SiteStep::Kind::record) continue;
    if (standing.end == 0) standing.first = offset;
    standing.end = offset + 1;
    standing.since = std::max(standing.since, byte.since);
  }
  if (standing.end == 0) return;
  SiteStep step;
  step.healed = true;
  step.origin = EditOrigin::healed;
  step.time = {std::min(std::max(standing.since, scanned_.back().step.time.first), cause.time.last), cause.time.last};
  step.offset = standing.first;
  step.size = standing.end - standing.first;
  step.edit = next_edit_++;
  if (!frozen_ && !reported_[cause.edit]) {
    (void)begin_report(cause.edit);
    add_pending({FindingKind::poke_healed,
                 input.space,
                 Ip{input.ip + cause.offset},
                 step.time,
                 {},
                 {},
                 "a removal of code was inserted: other code was created at the same addresses, so the record of the removal was "
                 "lost"});
  }
  for (uint32_t offset = standing.first; offset < standing.end; ++offset) {
    bytes_[offset] = {step.time.first, static_cast<int32_t>(scanned_.size()), {}, Level::absent, false};
  }
  scanned_.push_back({step, 0, false});
}

// Extends an inserted edit to adjacent bytes that `cause` also covers: one lost record changes an instruction as a whole.
bool SiteBuilder::extend_heal(const SiteStep& cause, Bytes held, const Mismatch& mismatch) {
  for (auto i = static_cast<int32_t>(scanned_.size()) - 1; i > mismatch.set_by; --i) {
    Scanned& healed = scanned_[static_cast<size_t>(i)];
    const SiteStep& step = healed.step;
    if (!step.healed || !healed.pooled || step.offset < cause.offset || step.end() > cause.end()) continue;
    if (mismatch.first != step.end() && mismatch.end != step.offset) continue;
    const bool at_end = mismatch.first == step.end();
    std::vector<Byte> content(pool_.begin() + static_cast<ptrdiff_t>(healed.content),
                              pool_.begin() + static_cast<ptrdiff_t>(healed.content + step.size));
    std::vector<Byte> more;
    for (uint32_t offset = mismatch.first; offset < mismatch.end; ++offset) {
      if (bytes_[offset].set_by > mismatch.set_by) return false;
      more.push_back({step.time.first, i, held[offset - cause.offset], Level::known, true});
      bytes_[offset] = more.back();
    }
    content.insert(at_end ? content.end() : content.begin(), more.begin(), more.end());
    healed.content = pool_.size();
    pool_.insert(pool_.end(), content.begin(), content.end());
    healed.step.offset = std::min(step.offset, mismatch.first);
    healed.step.size = static_cast<uint32_t>(content.size());
    return true;
  }
  return false;
}

void SiteBuilder::report_mismatch(const SiteInput& input, const SiteStep& cause, const Mismatch& mismatch, Bytes held) {
  if (frozen_) return;
  const bool observed = cause.kind == SiteStep::Kind::observe;
  std::vector<std::byte> found;
  for (uint32_t i = 0; i < held.size(); ++i) {
    const Byte& byte = bytes_[cause.offset + i];
    if (byte.level != Level::absent) found.push_back(byte.value);
  }
  const Interval window{std::min(mismatch.since, cause.time.last), cause.time.last};
  Finding finding{FindingKind::poke_old_bytes_mismatch, input.space, Ip{input.ip + cause.offset}, cause.time, to_vector(held), found, {}};
  if (observed) {
    finding.kind = cause.copy == 0 ? FindingKind::base_copy_unexplained : FindingKind::poke_lost_by_copy;
    finding.time = window;
    finding.what = cause.copy == 0 ? "the base copy contains bytes that no record explains: a record was lost"
                                   : "a later copy contains bytes that no record explains: a record was lost";
    add_pending(std::move(finding));
    return;
  }
  if (cause.edit < reported_.size()) {
    if (!begin_report(cause.edit)) return;
    const StoredEdit& edit = edits_.edits()[cause.edit];
    finding.ip = Ip{edit.ip};
    finding.expected = to_vector(Bytes{edits_.old_bytes(edit), edit.old_size});
    finding.what = "record at file offset " + std::to_string(edit.record_offset_bytes) + " has other old bytes than the timeline";
  }
  add_pending(finding);
  finding.kind = FindingKind::poke_healed;
  finding.time = window;
  finding.what = found.empty() ? "a creation of code was inserted: its record was lost" : "a version was inserted: its record was lost";
  add_pending(std::move(finding));
}

void SiteBuilder::write_versions(const SiteInput& input) {
  const uint64_t first_version = data_.versions.size();
  bytes_ = initial_;
  push_version(input, nullptr, first_version);
  for (const Scanned& scanned : scanned_) {
    const SiteStep& step = scanned.step;
    for (uint32_t i = 0; i < step.size; ++i) {
      Byte& byte = bytes_[step.offset + i];
      if (scanned.pooled) {
        byte = pool_[scanned.content + i];
      } else if (i < step.new_bytes.size()) {
        byte = {step.time.first, -1, step.new_bytes[i], Level::known, step.healed};
      } else {
        byte = {step.time.first, -1, {}, Level::absent, false};
      }
    }
    push_version(input, &step, first_version);
  }
  seal(input, first_version);
}

// Appends the current content of bytes_ as a version, unless nothing has changed, also not how certain it is.
void SiteBuilder::push_version(const SiteInput& input, const SiteStep* step, uint64_t first_version) {
  const uint32_t size = input.size;
  std::array<std::byte, size_t{2} * kMaxSiteBytes> content{};
  Version version;
  uint32_t known = 0;
  for (uint32_t i = 0; i < size; ++i) {
    const Byte& byte = bytes_[i];
    if (byte.level == Level::weak) version.flags = version.flags | CodeFlag::assumed;
    if (byte.level != Level::known && byte.level != Level::weak) continue;
    if (byte.healed) version.flags = version.flags | CodeFlag::healed;
    ++known;
    content[i] = byte.value;
    content[size + i] = std::byte{1};
  }
  version.known = known == size ? Known::all : known == 0 ? Known::none : Known::partial;
  if (step != nullptr) {
    version.open = step->time;
    version.edit = step->edit;
  } else {
    version.open = {kTimeMin, kTimeMin};
  }
  const size_t length = version.known == Known::none ? 0 : version.known == Known::all ? size : size_t{2} * size;
  const uint64_t count = data_.versions.size() - first_version;
  for (uint64_t back = 1; back <= 2 && back <= count; ++back) {
    const Version& earlier = data_.versions[data_.versions.size() - back];
    if (earlier.known != version.known) continue;
    if (length != 0 && std::memcmp(data_.bytes(earlier), content.data(), length) != 0) continue;
    if (back == 1 && earlier.flags == version.flags) return;
    version.bytes_offset = earlier.bytes_offset;
    data_.versions.push_back(version);
    return;
  }
  version.bytes_offset = data_.arena.size();
  data_.arena.insert(data_.arena.end(), content.begin(), content.begin() + static_cast<ptrdiff_t>(length));
  data_.versions.push_back(version);
}

// Closes the site: makes opening times non-decreasing, and drops a site without known bytes.
void SiteBuilder::seal(const SiteInput& input, uint64_t first_version) {
  auto& versions = data_.versions;
  if (frozen_) {
    uint64_t keep = first_version;
    while (keep + 1 < versions.size() && versions[keep].known == Known::none) ++keep;
    versions[first_version] = versions[keep];
    versions[first_version].open = {kTimeMin, kTimeMin};
    versions.resize(first_version + 1);
  }
  if (versions.size() == first_version + 1 && versions.back().known == Known::none) {
    versions.resize(first_version);
    return;
  }
  for (uint64_t i = first_version + 1; i < versions.size(); ++i) {
    versions[i].open.first = std::max(versions[i].open.first, versions[i - 1].open.first);
  }
  for (uint64_t i = versions.size() - 1; i > first_version + 1; --i) {
    versions[i - 1].open.last = std::min(versions[i - 1].open.last, versions[i].open.last);
  }
  const size_t first_doubt = data_.doubts.size();
  if (is_kernel_space(input.space)) add_doubts(input);
  data_.sites.push_back({input.ip, input.size, static_cast<uint32_t>(versions.size() - first_version), first_version, input.space,
                         static_cast<uint32_t>(first_doubt), static_cast<uint32_t>(data_.doubts.size() - first_doubt)});
}

// Adds the times at which lost records leave the content in doubt. Between two times at which the content is known, records lost in one
// window may have changed it and changed it back, but only within the window. With two windows the content between them is in doubt. After
// the last known content, one window is enough.
void SiteBuilder::add_doubts(const SiteInput& input) {
  const std::vector<Interval>& windows = data_.lost_of(input.space);
  if (windows.empty()) return;
  std::vector<TimeNs> known_times;
  for (const SiteStep& step : input.steps) known_times.push_back(step.time.last);
  std::sort(known_times.begin(), known_times.end());
  TimeNs from = kTimeMin;
  for (size_t i = 0; i <= known_times.size(); ++i) {
    const bool last = i == known_times.size();
    const TimeNs to = last ? kTimeMax : known_times[i];
    const auto begin = std::upper_bound(windows.begin(), windows.end(), from, [](TimeNs t, Interval w) { return t < w.last; });
    const auto end = std::lower_bound(begin, windows.end(), to, [](Interval w, TimeNs t) { return w.first < t; });
    if (last ? begin != end : end - begin > 1) {
      data_.doubts.push_back({std::max(begin->first, from), last ? kTimeMax : std::min(std::prev(end)->last, to)});
    }
    from = to;
  }
}

}  // namespace ptd
