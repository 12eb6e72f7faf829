// CodeView: collects the parts of the bytes at an address, and what each may contain.
#include <algorithm>
#include <iterator>

#include "image/code_scratch.h"

namespace ptd {
namespace {

constexpr uint32_t kMaxChoices = 1U << 16;  // versions of one part that one fetch examines
constexpr size_t kMaxMapped = 1U << 10;     // distinct contents mapped to one address that a fetch of all times examines

Bytes section_bytes_at(const Section& section, uint64_t address) {
  const uint64_t offset = address - section.ip.value;
  return offset < section.code.bytes.size() ? section.code.bytes.subspan(offset) : Bytes{};
}

}  // namespace

// Sets `suspect`, and sets `flags_constant` to the piece (or pieces) of time around `when` in which the flag is constant.
void CodeView::Scratch::look_at_suspect_windows() {
  suspect = CodeFlag::none;
  flags_constant = {};
  const auto& windows = data->suspect;
  auto at = std::lower_bound(windows.begin(), windows.end(), when.first, [](Interval w, TimeNs t) { return w.last < t; });
  if (at != windows.end() && at->first <= when.last) {
    suspect = CodeFlag::suspect;
    flags_constant = *at;
    for (; at != windows.end() && at->first <= when.last; ++at) flags_constant.last = at->last;
    return;
  }
  if (at != windows.end()) flags_constant.last = before(at->first);
  if (at != windows.begin()) flags_constant.first = after(std::prev(at)->last);
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
  const SpaceData& space_data = data->spaces[at.value];
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

// Returns what the parent of a space had at the fork, and shortens the part to where that ends.
Choice CodeView::Scratch::from_parent(Part& part, const SpaceData& child) {
  const Part up = next_part(child.parent, part.first, part.last, {child.forked, child.forked}, false);
  part.last = up.last;
  const Choice inherited = up.choice_count > 0 ? choices.back() : Choice{};
  choices.resize(part.first_choice);
  return inherited;
}

// Does the same for a space that starts with a snapshot.
Choice CodeView::Scratch::from_snapshot(Part& part, MappingSnapshots::Id start) const {
  const MappingSnapshots::Place place = data->snapshots.at(start, part.first);
  part.last = std::min(part.last, place.last);
  return plain_choice(place.section, part.first, place.last);
}

// Adds the section bytes. Without a section, adds the parent's content at the fork, else a choice without bytes.
void CodeView::Scratch::add_plain_choices(Part& part, SpaceId at, Interval during) {
  const SpaceData& space_data = data->spaces[at.value];
  if (!space_data.inherits() && during != Interval{}) return add_own_choices(part, space_data, during);
  const auto history = histories.at(*data, at, part.first);
  const std::vector<MappingHistory::Piece>& pieces = history->pieces;
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [&](const auto& p) { return p.live.last < during.first; });
  Choice inherited;
  const bool covered = history->mappings == 1 && piece != pieces.end() && piece->mapped && piece->live.contains(during);
  if (space_data.inherits() && !covered)
    inherited = space_data.parent == kNoSpace ? from_snapshot(part, space_data.start) : from_parent(part, space_data);
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

}  // namespace ptd
