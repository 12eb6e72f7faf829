// CodeView: composes the candidates for an address from the sections and sites that its bytes belong to.
#include "ptdecode/code_view.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "image/code_limits.h"
#include "image/code_scratch.h"
#include "image/fetch_log.h"
#include "image/fetch_steps.h"

namespace ptd {
namespace {

constexpr uint32_t kMaxChoices = 1U << 16;  // versions of one part that one fetch examines
constexpr size_t kMaxMapped = 1U << 10;     // distinct contents mapped to one address that a fetch of all times examines
constexpr uint64_t kMaxCrossed = 1U << 12;  // combinations of several parts that one fetch examines
constexpr uint32_t kMaxRunSteps = 64;       // equal neighbours joined into one certain interval

Bytes section_bytes_at(const Section& section, uint64_t address) {
  const uint64_t offset = address - section.ip.value;
  return offset < section.code.bytes.size() ? section.code.bytes.subspan(offset) : Bytes{};
}

// Whether the first `size_bytes` of two choices are known alike and equal.
bool same_content(const Choice& a, const Choice& b, uint64_t size_bytes) {
  if (a.bytes == nullptr || b.bytes == nullptr) return a.bytes == b.bytes;
  size_bytes = std::min({size_bytes, a.size_bytes, b.size_bytes});
  const auto is_known = [](const Choice& choice, uint64_t i) { return choice.mask == nullptr || choice.mask[i] != std::byte{0}; };
  for (uint64_t i = 0; i < size_bytes; ++i) {
    if (is_known(a, i) != is_known(b, i) || (is_known(a, i) && a.bytes[i] != b.bytes[i])) return false;
  }
  return true;
}

}  // namespace

bool CodeView::Scratch::fetch_cached(FetchResult& result) {
  const CacheSlot& slot = cache[(ip >> 12) % kCacheSlots];
  if (slot.space != space || ip < slot.first || ip > slot.last || slot.last - ip < span_bytes - 1 || !slot.live.contains(when))
    return false;
  out[0] = {};
  out[0].bytes = Bytes{slot.bytes + (ip - slot.first), slot.last - ip + 1};
  out[0].possible = out[0].certain = slot.live;
  out[0].flags = slot.flags;
  result = {FetchStatus::ok, 1, slot.section};
  return true;
}

// Sets `suspect`, and sets `flags_constant` to the piece (or pieces: see `one_piece`) of time around `when` in which the flag is constant.
void CodeView::Scratch::look_at_suspect_windows() {
  suspect = CodeFlag::none;
  flags_constant = {};
  one_piece = true;
  const SpaceId guest = machine_of(space) != 0 ? kernel_of_machine(machine_of(space)) : space;
  const auto windows_of = [this](SpaceId id) { return &data->spaces[data->index_of(id)].suspect; };
  for (const std::vector<Interval>* windows : {&data->suspect, windows_of(guest), windows_of(space)}) {
    auto at = std::lower_bound(windows->begin(), windows->end(), when.first, [](Interval w, TimeNs t) { return w.last < t; });
    if (at != windows->end() && at->first <= when.last) {
      suspect = CodeFlag::suspect;
      flags_constant = *at;
      one_piece = at->contains(when);
      for (; at != windows->end() && at->first <= when.last; ++at) flags_constant.last = at->last;
      return;
    }
    if (at != windows->end()) flags_constant.last = std::min(flags_constant.last, before(at->first));
    if (at != windows->begin()) flags_constant.first = std::max(flags_constant.first, after(std::prev(at)->last));
  }
}

// Does the same for lost records that may have changed a site that is known to change: see SiteBuilder::add_doubts.
void CodeView::Scratch::look_at_doubt(const Site& site) {
  const std::span<const Interval> doubts{data->doubts.data() + site.first_doubt, site.doubt_count};
  if (doubts.empty()) return;
  const auto at = std::lower_bound(doubts.begin(), doubts.end(), when.first, [](Interval d, TimeNs t) { return d.last < t; });
  if (at != doubts.end() && at->first <= when.last) {
    suspect = CodeFlag::suspect;
    flags_constant = intersect(flags_constant, {std::min(at->first, when.first), std::max(at->last, when.last)});
    return;
  }
  if (at != doubts.end()) flags_constant.last = std::min(flags_constant.last, before(at->first));
  if (at != doubts.begin()) flags_constant.first = std::max(flags_constant.first, after(std::prev(at)->last));
}

void CodeView::Scratch::collect_parts() {
  parts.clear();
  choices.clear();
  const uint64_t room = ~uint64_t{0} - ip;
  const uint64_t last = ip + std::min<uint64_t>(room, span_bytes - 1);
  for (uint64_t at = ip;;) {
    Part part = next_part(space, at, last, when, true);
    parts.push_back(part);
    taken += std::max(part.choice_count, 1U) - 1;
    const bool absent = std::none_of(choices.begin() + part.first_choice, choices.begin() + part.first_choice + part.choice_count,
                                     [](const Choice& c) { return c.bytes != nullptr; });
    if (part.last >= last || absent || overflow) break;
    at = part.last + 1;
  }
}

// Returns the part that begins at `address` and appends its choices.
Part CodeView::Scratch::next_part(SpaceId at, uint64_t address, uint64_t last, Interval during, bool use_floors) {
  const SpaceData& space_data = data->spaces[data->index_of(at)];
  const SiteId site_id = data->site_at_or_after(space_data, address);
  Part part;
  part.first = address;
  part.last = last;
  part.first_choice = static_cast<uint32_t>(choices.size());
  if (site_id < space_data.first_site + space_data.site_count) {
    const Site& site = data->sites[site_id];
    if (site.ip <= address) {
      part.last = std::min(last, site.ip + site.size_bytes - 1);
      look_at_doubt(site);
      add_site_choices(part, site_id, during, use_floors);
      return part;
    }
    part.last = std::min(last, site.ip - 1);
  }
  part.last = std::min(part.last, space_data.sections.uniform_span(address).last);
  add_plain_choices(part, at, during);
  return part;
}

void CodeView::Scratch::add_site_choices(Part& part, uint32_t site_id, Interval during, bool use_floors) {
  const Site& site = data->sites[site_id];
  part.site = site.version_count > 1 ? site_id : kNoSite;
  TimelineData::Range range = data->versions_in(site, during);
  uint32_t floor = 0;
  if (use_floors) {
    for (const VersionFloor& f : floors) {
      if (f.site == site_id) floor = std::max(floor, std::min(f.version, site.version_count - 1));
    }
  }
  range.first = std::max(range.first, floor);
  const bool beyond_time = range.last < range.first;
  if (beyond_time) range.last = range.first;
  const uint64_t most = std::clamp<uint64_t>(most_steps, 1, kMaxChoices);
  if (range.last - range.first >= most) {
    overflow = true;
    range.last = range.first + static_cast<uint32_t>(most) - 1;
  }
  const uint64_t offset = part.first - site.ip;
  for (uint32_t v = range.first; v <= range.last; ++v) {
    const Version& version = data->version(site, v);
    Choice choice;
    choice.possible = beyond_time ? hull(data->possible(site, v), during) : data->possible(site, v);
    choice.certain = data->certain(site, v);
    if (version.known != Known::none) choice.bytes = data->bytes(version) + offset;
    if (version.known == Known::partial) choice.mask = data->bytes(version) + site.size_bytes + offset;
    choice.size_bytes = site.size_bytes - offset;
    choice.flags = version.flags;
    choice.version = v;
    choice.opened_by = version.edit;
    if (v + 1 < site.version_count) choice.closed_by = data->version(site, v + 1).edit;
    choices.push_back(choice);
  }
  part.choice_count = static_cast<uint32_t>(choices.size()) - part.first_choice;
}

// Returns what a mapping that ends at `last` shows from `address` on, without its times.
Choice CodeView::Scratch::plain_choice(SectionId id, uint64_t address, uint64_t last) const {
  Choice choice;
  if (id == kNoSection) return choice;
  const Section& section = data->sections[id];
  const Bytes bytes = section_bytes_at(section, address);
  if (!bytes.empty()) choice.bytes = bytes.data();
  choice.size_bytes = std::min<uint64_t>(bytes.size(), last - address + 1);
  if (section.assumed) choice.flags = CodeFlag::assumed;
  return choice;
}

// Returns what a space had when it forked, and shortens the part to where that ends. Bytes that may have been changed before the fork, or
// after it, are assumed.
Choice CodeView::Scratch::from_parent(Part& part, Fork fork) {
  const Part up = next_part(fork.parent, part.first, part.last, {fork.when, fork.when}, false);
  part.last = up.last;
  Choice inherited = up.choice_count > 0 ? choices.back() : Choice{};
  for (size_t i = part.first_choice; i + 1 < choices.size(); ++i) {
    const bool same = same_content(choices[i], inherited, part.last - part.first + 1);
    inherited.flags = inherited.flags | (same ? choices[i].flags & CodeFlag::assumed : CodeFlag::assumed);
  }
  choices.resize(part.first_choice);
  return inherited;
}

// Does the same for what a space that starts with snapshots inherits.
Choice CodeView::Scratch::from_snapshot(Part& part, const SpaceData& child) {
  const TimelineData::Inherited found = data->inherited(child, part.first);
  part.last = std::min(part.last, found.last);
  return found.fork.parent != kNoSpace ? from_parent(part, found.fork) : plain_choice(found.section, part.first, found.last);
}

// Adds the section bytes. Without a section, adds the parent's content at the fork, else a choice without bytes.
void CodeView::Scratch::add_plain_choices(Part& part, SpaceId at, Interval during) {
  const SpaceData& space_data = data->spaces[data->index_of(at)];
  if (!space_data.inherits() && during != Interval{}) return add_own_choices(part, space_data, during);
  const auto history = histories.at(*data, at, part.first);
  const std::vector<MappingHistory::Piece>& pieces = history->pieces;
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [&](const auto& p) { return p.live.last < during.first; });
  Choice inherited;
  const bool covered = history->mappings == 1 && piece != pieces.end() && piece->mapped && piece->live.contains(during);
  if (space_data.inherits() && !covered)
    inherited = space_data.parent == kNoSpace ? from_snapshot(part, space_data) : from_parent(part, {space_data.parent, space_data.forked});
  if (during == Interval{} && part.first == ip && part.last - ip + 1 >= span_bytes) {  // the only part: equal contents may be joined
    part.joined = history->contents.size() < pieces.size();
    overflow |= history->contents.size() > kMaxMapped;
    if (overflow) return;
    for (const MappingHistory::Content& content : history->contents) {
      add_piece(part, content.first, inherited, content.possible, content.certain);
    }
    return;
  }
  for (; piece != pieces.end() && piece->live.first <= during.last; ++piece) add_piece(part, *piece, inherited, piece->live, piece->live);
}

void CodeView::Scratch::add_piece(Part& part, const MappingHistory::Piece& piece, const Choice& inherited, Interval possible,
                                  Interval certain) {
  Choice choice = inherited;
  if (piece.mapped) choice = plain_choice(piece.section, part.first, piece.last_address);
  choice.possible = possible;
  choice.certain = certain;
  choice.version = 0;
  choice.opened_by = choice.closed_by = kNoEdit;
  choices.push_back(choice);
  ++part.choice_count;
}

// Does the same for a part of the time in a space without a parent.
void CodeView::Scratch::add_own_choices(Part& part, const SpaceData& space_data, Interval during) {
  rects.clear();
  space_data.sections.find(part.first, during, rects);
  TimeNs from = during.first;
  bool open = true;  // time from `from` on is not covered yet
  for (const SectionRect& rect : rects) {
    if (from < rect.live.first) add_piece(part, {}, {}, {from, before(rect.live.first)}, {from, before(rect.live.first)});
    add_piece(part, {{}, rect.last_address, rect.section, true}, {}, rect.live, rect.live);
    open = rect.live.last < kTimeMax;
    from = after(rect.live.last);
  }
  if (open && from <= during.last) add_piece(part, {}, {}, {from, during.last}, {from, during.last});
}

// Returns whether emit_plain() finds nothing at `address`, because of edits or because a space inherits its code.
bool CodeView::Scratch::may_change(SpaceId at, uint64_t address) const {
  if (data->index_of(at) >= data->spaces.size()) return false;
  const SpaceData& space_data = data->spaces[data->index_of(at)];
  const SiteId site = data->site_at_or_after(space_data, address);
  return space_data.parent != kNoSpace || (site < space_data.first_site + space_data.site_count && data->sites[site].ip <= address);
}

// Handles the common case: plain bytes of one section throughout. Widens the result up to the next site or section edge and caches it.
bool CodeView::Scratch::emit_plain() {
  if (parts.size() != 1 || parts[0].site != kNoSite || parts[0].joined || parts[0].choice_count != 1) return false;
  const Choice& choice = choices[parts[0].first_choice];
  if (choice.bytes == nullptr || choice.mask != nullptr || !choice.possible.contains(when)) return false;
  const SpaceData& space_data = data->spaces[data->index_of(space)];
  if (space_data.parent != kNoSpace) return false;
  const SiteId site_id = data->site_at_or_after(space_data, ip);
  const auto span = space_data.sections.uniform_span(ip);
  TimelineData::Inherited inherited;
  if (space_data.inherits() && !space_data.sections.at(ip, when.first).covered) inherited = data->inherited(space_data, ip);
  if (inherited.fork.parent != kNoSpace) return false;
  const uint64_t size = choice.size_bytes;
  uint64_t last = std::min({span.last, inherited.last, ip + (size - 1)});
  uint64_t first = std::max(span.first, inherited.first);
  if (site_id < space_data.first_site + space_data.site_count) {
    if (data->sites[site_id].ip <= ip) return false;
    last = std::min(last, data->sites[site_id].ip - 1);
  }
  if (site_id > space_data.first_site) {
    const Site& previous = data->sites[site_id - 1];
    first = std::max(first, previous.ip + previous.size_bytes);
  }
  const SectionId section = data->section_at(space, ip, when.first).id;
  if (section != kNoSection) first = std::max(first, data->sections[section].ip.value);
  const Interval live = intersect(choice.possible, flags_constant);
  CodeCandidate& candidate = out[0];
  candidate = {};
  candidate.bytes = Bytes{choice.bytes, last - ip + 1};
  candidate.possible = choice.possible;
  candidate.certain = live;
  candidate.flags = choice.flags | suspect;
  count = 1;
  if (one_piece) cache[(ip >> 12) % kCacheSlots] = {space, first, last, live, choice.bytes - (ip - first), candidate.flags, section};
  return true;
}

// Visits every combination that is possible at some time of `when` exactly once: when the last of its choices opens.
void CodeView::Scratch::sweep() {
  if (std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.choice_count == 1; })) {  // nothing to combine
    pick.assign(parts.size(), 0);
    Interval all = when;
    for (size_t p = 0; p < parts.size(); ++p) all = intersect(all, chosen(p).possible);
    if (!all.empty() && consistent()) emit();
    return;
  }
  openings.clear();
  for (uint32_t p = 0; p < parts.size(); ++p) {
    parts[p].low = parts[p].high = 0;
    for (uint32_t c = 0; c < parts[p].choice_count; ++c) {
      openings.push_back({std::max(choices[parts[p].first_choice + c].possible.first, when.first), p, c});
    }
  }
  std::stable_sort(openings.begin(), openings.end(), [](const Opening& a, const Opening& b) { return a.time < b.time; });
  pick.assign(parts.size(), 0);
  for (const Opening& opening : openings) {
    bool all_open = true;
    for (uint32_t p = 0; p < parts.size(); ++p) {
      Part& part = parts[p];
      while (part.low < part.high && choices[part.first_choice + part.low].possible.last < opening.time) ++part.low;
      if (p != opening.part && part.low == part.high) all_open = false;
    }
    parts[opening.part].high = opening.choice + 1;
    if (all_open) combine(opening.part, opening.choice);
    if (overflow) return;
  }
}

void CodeView::Scratch::combine(uint32_t fixed_part, uint32_t fixed_choice) {
  for (uint32_t p = 0; p < parts.size(); ++p) pick[p] = parts[p].low;
  pick[fixed_part] = fixed_choice;
  for (;;) {
    if (++combinations > openings.size() + kMaxCrossed || taken > most_steps) overflow = true;
    if (overflow) return;
    if (consistent()) emit();
    size_t p = parts.size();
    while (p-- > 0) {
      if (p == fixed_part) continue;
      if (++pick[p] < parts[p].high) break;
      pick[p] = parts[p].low;
    }
    if (p == static_cast<size_t>(-1)) return;
  }
}

// Returns false if an edit that spans two sites has been applied in only one of them.
bool CodeView::Scratch::consistent() const {
  ++taken;
  for (size_t p = 0; p < parts.size(); ++p) {
    const uint32_t pending = chosen(p).closed_by;
    if (pending == kNoEdit) continue;
    for (size_t q = 0; q < parts.size(); ++q) {
      if (q != p && chosen(q).opened_by == pending) return false;
    }
  }
  return true;
}

// Returns `certain` of the choice, joined with neighbouring versions whose flags and `compared` bytes are equal.
Interval CodeView::Scratch::run_certain(const Part& part, const Choice& choice, uint64_t compared) const {
  if (part.site == kNoSite || choice.bytes == nullptr) return choice.certain;
  const Site& site = data->sites[part.site];
  const uint64_t offset = part.first - site.ip;
  const auto same = [&](uint32_t v) {
    ++taken;
    const Version& other = data->version(site, v);
    if (other.known == Known::none || other.flags != choice.flags) return false;
    for (uint64_t i = offset; other.known != Known::all && i < offset + compared; ++i) {
      if (!data->known_at(site, other, i)) return false;
    }
    return std::memcmp(data->bytes(other) + offset, choice.bytes, compared) == 0;
  };
  uint32_t first = choice.version, last = choice.version;
  for (uint32_t steps = 0; first > 0 && steps < kMaxRunSteps && same(first - 1); ++steps) --first;
  for (uint32_t steps = 0; last + 1 < site.version_count && steps < kMaxRunSteps && same(last + 1); ++steps) ++last;
  return {data->certain(site, first).first, data->certain(site, last).last};
}

// Adds other moments, at which its bytes are live with these flags, to a candidate. If only some of its versions are healed or assumed, the
// moment decides whether the bytes are: then they are certain at none, and each fetch says it for the moments that it is asked for.
void CodeView::Scratch::merge(uint32_t index, CodeFlag flags, Interval possible, Interval certain) {
  CodeCandidate& candidate = out[index];
  bool& differs = merged[index].differs;
  for (const CodeFlag flag : {CodeFlag::healed, CodeFlag::assumed}) differs = differs || any(flags, flag) != any(candidate.flags, flag);
  candidate.possible = hull(candidate.possible, possible);
  candidate.certain = differs ? Interval{kTimeMax, kTimeMin} : join_certain(candidate.certain, certain, when);
  if (!any(flags, CodeFlag::healed)) candidate.flags = candidate.flags & ~CodeFlag::healed;
  candidate.flags = candidate.flags | (flags & ~CodeFlag::healed);
}

// Merges the choice into a candidate with the same bytes. A static key switched thousands of times has two contents, so versions that share
// bytes need no further comparison.
bool CodeView::Scratch::merge_shared() {
  if (parts.size() != 1) return false;
  const Choice& choice = chosen(0);
  for (uint32_t i = 0; choice.bytes != nullptr && i < count; ++i) {
    if (merged[i].source != choice.bytes) continue;
    merge(i, choice.flags, choice.possible, intersect(choice.certain, flags_constant));
    return true;
  }
  return false;
}

void CodeView::Scratch::emit() {
  taken += count;
  if (merge_shared()) return;
  std::array<std::byte, kMaxSpanBytes> bytes;
  CodeCandidate candidate;
  candidate.flags = suspect;
  candidate.certain = flags_constant;
  uint64_t filled = 0;
  bool whole = true;
  for (size_t p = 0; p < parts.size() && whole; ++p) {
    const Part& part = parts[p];
    const Choice& choice = chosen(p);
    if (candidate.site == kNoSite && part.site != kNoSite) {
      candidate.site = part.site;
      candidate.version = choice.version;
    }
    const uint64_t wanted = part.last - part.first + 1;
    uint64_t length = choice.bytes != nullptr ? std::min(wanted, choice.size_bytes) : 0;
    if (choice.mask != nullptr) {
      const auto unknown = std::find(choice.mask, choice.mask + length, std::byte{0});
      length = static_cast<uint64_t>(unknown - choice.mask);
    }
    std::copy(choice.bytes, choice.bytes + length, bytes.begin() + static_cast<ptrdiff_t>(filled));
    filled += length;
    whole = length == wanted;
    candidate.flags = candidate.flags | choice.flags;
    candidate.possible = intersect(candidate.possible, choice.possible);
    candidate.certain = intersect(candidate.certain, whole ? run_certain(part, choice, wanted) : choice.certain);
  }
  if (filled == 0) return;
  for (uint32_t i = 0; i < count; ++i) {
    CodeCandidate& known = out[i];
    if (known.bytes.size() != filled || std::memcmp(known.bytes.data(), bytes.data(), filled) != 0) continue;
    merge(i, candidate.flags, candidate.possible, candidate.certain);
    known.version = std::min(known.version, candidate.version);
    return;
  }
  if (count >= out.size()) {
    overflow = true;
    return;
  }
  buffers[count] = bytes;
  merged[count] = {parts.size() == 1 ? chosen(0).bytes : nullptr, false};
  candidate.bytes = Bytes{buffers[count].data(), filled};
  out[count++] = candidate;
}

FetchSteps& fetch_steps() {
  thread_local FetchSteps steps;
  return steps;
}

CodeView::CodeView(const Timeline& timeline) : timeline_(timeline), scratch_(std::make_unique<Scratch>()) {
  scratch_->data = &timeline_.data();
}
CodeView::CodeView(CodeView&&) noexcept = default;
CodeView& CodeView::operator=(CodeView&&) noexcept = default;
CodeView::~CodeView() = default;

FetchResult CodeView::fetch(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors, std::span<CodeCandidate> out,
                            unsigned span_bytes) {
  if (FetchLog* log = timeline_.fetch_log()) log->add(effective_space(space, ip), ip, std::clamp(span_bytes, 1U, kMaxSpanBytes));
  const CodeLimits* limits = timeline_.code_limits();
  if (limits == nullptr) return look_up(space, ip, when, floors, out, span_bytes);
  const uint64_t at_hand = limits->at_hand(effective_space(space, ip), ip.value, ~uint64_t{0});
  if (at_hand == 0) {
    const SectionId section = when.empty() ? kNoSection : timeline_.section_at(space, ip, middle(when));
    return {section != kNoSection ? FetchStatus::no_bytes : FetchStatus::not_mapped, 0, section};
  }
  const auto span = static_cast<unsigned>(std::min<uint64_t>(at_hand, std::clamp(span_bytes, 1U, kMaxSpanBytes)));
  const FetchResult result = look_up(space, ip, when, floors, out, span);
  for (CodeCandidate& candidate : out.first(result.count)) {
    if (candidate.bytes.size() > at_hand) candidate.bytes = candidate.bytes.first(at_hand);
  }
  return result;
}

PlainCode CodeView::plain(SpaceId space, Ip ip, Interval when) {
  PlainCode plain;
  if (timeline_.fetch_log() != nullptr) return plain;  // the log needs each span
  Scratch& s = *scratch_;
  const SpaceId in = effective_space(space, ip);
  const CacheSlot& slot = s.cache[(ip.value >> 12) % kCacheSlots];
  const auto covers = [&] { return slot.space == in && slot.first <= ip.value && ip.value <= slot.last && slot.live.contains(when); };
  if (!covers()) {
    if (s.may_change(in, ip.value)) return plain;
    std::array<CodeCandidate, 2> contents;
    s.only_plain = true;
    (void)look_up(space, ip, when, {}, contents, 1);
    s.only_plain = false;
    if (!covers()) return plain;
  }
  uint64_t size = slot.last - ip.value + 1;
  if (const CodeLimits* limits = timeline_.code_limits(); limits != nullptr) {
    size = limits->at_hand(in, ip.value, size);
  } else {
    plain.before_bytes = ip.value - slot.first;
  }
  plain.bytes = Bytes{slot.bytes + (ip.value - slot.first), size};
  plain.certain = slot.live;
  plain.flags = slot.flags;
  plain.section = slot.section;
  return plain;
}

NoCode CodeView::no_code(SpaceId space, Ip ip, Interval when) {
  if (timeline_.fetch_log() != nullptr || timeline_.code_limits() != nullptr || when.empty()) return {};
  Scratch& s = *scratch_;
  space = effective_space(space, ip);
  if (s.data->index_of(space) >= s.data->spaces.size()) return {0, ~uint64_t{0}, {}, kNoSection};
  const SpaceData& data = s.data->spaces[s.data->index_of(space)];
  if (data.inherits()) return {};
  const SectionIndex::Span span = data.sections.uniform_span(ip.value);
  NoCode none{span.first, span.last, {}, kNoSection};
  const SiteId site = s.data->site_at_or_after(data, ip.value);
  if (site < data.first_site + data.site_count) {
    if (s.data->sites[site].ip <= ip.value) return {};
    none.last = std::min(none.last, s.data->sites[site].ip - 1);
  }
  if (site > data.first_site) none.first = std::max(none.first, s.data->sites[site - 1].ip + s.data->sites[site - 1].size_bytes);
  s.rects.clear();
  data.sections.find(ip.value, {}, s.rects);
  for (const SectionRect& rect : s.rects) {
    if (rect.live.last < when.first) {
      none.when.first = after(rect.live.last);
    } else if (when.last < rect.live.first) {
      none.when.last = std::min(none.when.last, before(rect.live.first));
    } else if (rect.live.contains(when)) {
      none.when = rect.live;
      none.section = rect.section;
      if (rect.section == kNoSection) break;
      const Section& section = s.data->sections[rect.section];
      const uint64_t size = section.code.bytes.size();
      if (ip.value - section.ip.value < size) return {};
      if (size != 0) none.first = std::max(none.first, section.ip.value + size);
      break;
    } else {
      return {};
    }
  }
  return none;
}

FetchResult CodeView::look_up(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors, std::span<CodeCandidate> out,
                              unsigned span_bytes) {
  Scratch& s = *scratch_;
  FetchResult result;
  s.space = effective_space(space, ip);
  if (out.empty() || when.empty() || s.data->index_of(s.space) >= s.data->spaces.size()) return result;
  s.ip = ip.value;
  s.when = when;
  s.span_bytes = std::clamp(span_bytes, 1U, kMaxSpanBytes);
  s.floors = floors;
  s.out = out;
  if (s.fetch_cached(result)) return result;
  s.count = 0;
  s.combinations = s.taken = 0;
  FetchSteps& own = fetch_steps();
  s.most_steps = own.most;
  s.overflow = false;
  if (s.buffers.size() < out.size()) {
    s.buffers.resize(out.size());
    s.merged.resize(out.size());
  }
  s.look_at_suspect_windows();
  s.collect_parts();
  if (!s.overflow && !s.emit_plain() && !s.only_plain) s.sweep();
  result.count = s.count;
  own.taken += s.taken;
  result.section = s.data->section_at(s.space, ip.value, middle(when)).id;
  if (s.overflow) {
    result.status = FetchStatus::too_many;
  } else if (s.count > 0) {
    result.status = FetchStatus::ok;
  } else {
    result.status = result.section != kNoSection ? FetchStatus::no_bytes : FetchStatus::not_mapped;
  }
  return result;
}

}  // namespace ptd
