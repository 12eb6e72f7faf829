// CopySet: coverage, dating by majority, differences between copies.
#include "image/build/copy_set.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace ptd {
namespace {

/// Copying the text takes some time: a site may be dated this far from most others.
constexpr uint64_t kCopySlackNs = 200'000'000;

/// Returns the apparent size of the instruction at the start that was replaced, as jump labels, static calls and ftrace do.
size_t patched_size(Bytes a, Bytes b) {
  const auto starts = [](Bytes bytes, std::initializer_list<uint8_t> with) {
    size_t i = 0;
    for (const uint8_t byte : with) {
      if (i >= bytes.size() || bytes[i++] != std::byte{byte}) return false;
    }
    return true;
  };
  const auto five = [&](Bytes x) { return starts(x, {0xe8}) || starts(x, {0xe9}) || starts(x, {0x0f, 0x1f, 0x44, 0x00, 0x00}); };
  const auto two = [&](Bytes x) { return starts(x, {0x66, 0x90}) || starts(x, {0xeb}); };
  size_t size = 5;
  if (five(a) || five(b)) {
    size = 5;
  } else if (two(a) || two(b)) {
    size = 2;
  } else if (starts(a, {0xcc}) || starts(b, {0xcc})) {
    size = 1;
  }
  size = std::min({size, a.size(), b.size()});
  if (size == 5 && !five(a) && !five(b)) {
    while (size > 1 && a[size - 1] == b[size - 1]) --size;
  }
  return size;
}

/// Returns the first offset from `at` on at which the two differ, or their size.
size_t next_difference(Bytes a, Bytes b, size_t at) {
  constexpr size_t kStep = 4096;
  const size_t size = std::min(a.size(), b.size());
  while (at < size) {
    const size_t length = std::min(kStep, size - at);
    if (std::memcmp(a.data() + at, b.data() + at, length) != 0) {
      while (a[at] == b[at]) ++at;
      return at;
    }
    at += length;
  }
  return size;
}

}  // namespace

void CopySet::add(DatedCopy copy) {
  const uint64_t size = copy.code.bytes.size();
  if (size == 0 || copy.taken.empty() || copy.ip.value + (size - 1) < copy.ip.value) return;
  copy.space = effective_space(copy.space, copy.ip);
  limits_.push_back(copy.taken);
  copies_.push_back(std::move(copy));
}

AddressRange CopySet::range(size_t index) const {
  const DatedCopy& copy = copies_[index];
  return {copy.ip.value, copy.ip.value + (copy.code.bytes.size() - 1)};
}

std::vector<std::vector<AddressRange>> CopySet::base_ranges() const {
  std::vector<std::vector<AddressRange>> out(copies_.size());
  std::map<SpaceId, std::map<uint64_t, uint64_t>> covered;  // by earlier copies: first address -> last, disjoint
  for (size_t i = 0; i < copies_.size(); ++i) {
    std::map<uint64_t, uint64_t>& taken = covered[copies_[i].space];
    const AddressRange own = range(i);
    AddressRange joined = own;
    auto at = taken.upper_bound(own.first);
    if (at != taken.begin() && std::prev(at)->second >= own.first) --at;
    uint64_t from = own.first;
    bool ends_covered = false;
    while (at != taken.end() && at->first <= own.last) {
      if (from < at->first) out[i].push_back({from, at->first - 1});
      joined = {std::min(joined.first, at->first), std::max(joined.last, at->second)};
      ends_covered = at->second >= own.last;
      from = at->second + 1;
      at = taken.erase(at);
    }
    if (!ends_covered) out[i].push_back({from, own.last});
    taken.emplace(joined.first, joined.last);
  }
  return out;
}

void CopySet::covering(SpaceId space, uint64_t ip, uint32_t size, std::vector<SiteCopy>& out) const {
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].space != space) continue;
    const AddressRange r = range(i);
    const uint64_t first = std::max(ip, r.first), last = std::min(ip + (size - 1), r.last);
    if (first > last) continue;
    const uint32_t rank = out.empty() ? 0 : static_cast<uint32_t>(i) + 1;
    out.push_back({rank, static_cast<uint32_t>(first - ip), copies_[i].code.bytes.subspan(first - r.first, last - first + 1),
                   copies_[i].taken, intersect(widen(copies_[i].taken, kCopySlackNs), limits_[i])});
  }
}

bool CopySet::any_in(SpaceId space) const {
  return std::any_of(copies_.begin(), copies_.end(), [space](const DatedCopy& c) { return c.space == space; });
}

TimeNs CopySet::earliest(SpaceId space) const {
  TimeNs earliest = kTimeMax;
  for (const DatedCopy& copy : copies_) {
    if (copy.space == space) earliest = std::min(earliest, copy.taken.first);
  }
  return earliest;
}

bool CopySet::undated(size_t index) const { return copies_[index].taken.first == kTimeMin || copies_[index].taken.last == kTimeMax; }

size_t CopySet::taken_with(size_t index) const {
  const auto joins = [this, index](size_t other) {
    if (copies_[other].space != copies_[index].space || copies_[other].taken != copies_[index].taken) return false;
    for (size_t i = index; i < other; ++i) {
      if (range(i).first <= range(other).last && range(other).first <= range(i).last) return false;
    }
    return true;
  };
  size_t end = index + 1;
  while (end < copies_.size() && joins(end)) ++end;
  return end;
}

void CopySet::date(size_t first, size_t end, const std::vector<Interval>& times, Allowance allowance) {
  struct Turn {
    TimeNs time;
    int change;
  };
  std::vector<Turn> turns;
  const Interval given = copies_[first].taken;
  const bool is_base = given.first == kTimeMin;
  for (Interval t : times) {
    t = intersect(t, given);
    if (t.empty()) continue;
    turns.push_back({t.first, 1});
    turns.push_back({t.last, -1});
  }
  // At equal times, starts come before ends, because intervals are closed.
  std::sort(turns.begin(), turns.end(), [](Turn a, Turn b) { return a.time != b.time ? a.time < b.time : a.change > b.change; });
  int votes = 0, best = 0;
  TimeNs best_from;
  for (const Turn turn : turns) {
    votes += turn.change;
    if (votes > best) best = votes, best_from = turn.time;
  }
  if (best == 0) return;
  const bool explained = allowance.sites != 0 && allowance.since <= best_from;  // otherwise nothing was lost before it
  // Because of lost records, some sites disagree with the true time, and sites that were switched back agree with a later one. A recorder
  // takes its base copy first and a later copy last. So choose the stretch nearest to that end, among all that the losses can explain.
  const int enough = std::max(1, best - (explained ? allowance.sites : 0));
  Interval dated = given;
  bool inside = false, found = false;
  votes = 0;
  for (const Turn turn : turns) {
    const bool before = votes >= enough;
    votes += turn.change;
    const bool after = votes >= enough;
    if (!before && after && (!found || !is_base)) {
      dated = {turn.time, given.last};
      inside = found = true;
    } else if (before && !after && inside) {
      dated.last = turn.time;
      inside = false;
    }
  }
  // A stretch from the start on is wide only because of the losses; the copy itself was taken before anything changed.
  const auto first_end = std::find_if(turns.begin(), turns.end(), [](Turn turn) { return turn.change < 0; });
  if (is_base && explained && dated.first == given.first) dated.last = first_end->time;
  for (size_t i = first; i < end; ++i) {
    copies_[i].taken = dated;
    if (explained) limits_[i] = dated;
    // A site that seems to date from after a loss may have lost a record instead.
    if (is_base && allowance.sites != 0) limits_[i].last = std::min(limits_[i].last, std::max(allowance.since, dated.last));
  }
}

CopyDifferences CopySet::differences(std::span<const SiteRange> known, uint64_t most_bytes) const {
  CopyDifferences out;
  for (size_t later = 1; later < copies_.size(); ++later) {
    // Compare with the nearest earlier copy at each address.
    std::vector<AddressRange> left{range(later)};
    for (size_t i = later; i-- > 0 && !left.empty();) {
      if (copies_[i].space != copies_[later].space) continue;
      const AddressRange other = range(i);
      std::vector<AddressRange> rest;
      for (const AddressRange part : left) {
        const AddressRange both{std::max(part.first, other.first), std::min(part.last, other.last)};
        if (both.first > both.last) {
          rest.push_back(part);
          continue;
        }
        const uint64_t compared = std::min(most_bytes, both.last - both.first + 1);
        if (compared != 0) compare(i, later, {both.first, both.first + (compared - 1)}, known, out.edits);
        most_bytes -= compared;
        if (both.last - both.first >= compared) {
          out.not_compared = {copies_[later].space, Ip{both.first + compared}};
          return out;
        }
        if (part.first < both.first) rest.push_back({part.first, both.first - 1});
        if (both.last < part.last) rest.push_back({both.last + 1, part.last});
      }
      left = std::move(rest);
    }
  }
  return out;
}

void CopySet::compare(size_t earlier, size_t later, AddressRange common, std::span<const SiteRange> known, std::vector<Edit>& out) const {
  const SpaceId space = copies_[later].space;
  const uint64_t size = common.last - common.first + 1;
  const Bytes a = copies_[earlier].code.bytes.subspan(common.first - range(earlier).first, size);
  const Bytes b = copies_[later].code.bytes.subspan(common.first - range(later).first, size);
  size_t done = 0;  // bytes before this belong to a site or are done
  for (size_t at = next_difference(a, b, 0); at < size && out.size() < kMaxCopyDifferences; at = next_difference(a, b, at)) {
    // A word of which no part is done is replaced as a whole.
    const size_t into_word = word_bytes_ == 0 ? 0 : (common.first + at) % word_bytes_;
    if (into_word <= at - done) at -= into_word;
    const uint64_t ip = common.first + at;
    const auto site = std::partition_point(known.begin(), known.end(), [&](const SiteRange& s) {
      return s.space != space ? s.space < space : s.ip + (s.size_bytes - 1) < ip;
    });
    uint64_t room = size - at;
    if (site != known.end() && site->space == space) {
      if (site->ip <= ip) {
        done = at += std::min(room, site->ip + site->size_bytes - ip);
        continue;
      }
      room = std::min(room, site->ip - ip);
    }
    const size_t length = word_bytes_ != 0 ? std::min<size_t>(word_bytes_, room) : patched_size(a.subspan(at, room), b.subspan(at, room));
    Edit edit;
    edit.space = space;
    edit.ip = Ip{ip};
    edit.old_bytes.assign(a.begin() + static_cast<ptrdiff_t>(at), a.begin() + static_cast<ptrdiff_t>(at + length));
    edit.new_bytes.assign(b.begin() + static_cast<ptrdiff_t>(at), b.begin() + static_cast<ptrdiff_t>(at + length));
    edit.time = {std::min(copies_[earlier].taken.first, copies_[later].taken.last), copies_[later].taken.last};
    edit.origin = EditOrigin::dated_copy;
    out.push_back(std::move(edit));
    done = at += length;
  }
}

}  // namespace ptd
