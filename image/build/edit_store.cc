// EditStore: sorting, deduplication, clustering.
#include "image/build/edit_store.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "image/timeline_data.h"

namespace ptd {
namespace {
/// Edits up to this size are never split; longer ones (new code) may span several sites.
constexpr uint64_t kShortEditBytes = 32;
}  // namespace

bool EditStore::add(const Edit& edit) {
  StoredEdit stored;
  constexpr size_t kMaxEditBytes = size_t{1} << 30;
  if (edit.old_bytes.size() > kMaxEditBytes || edit.new_bytes.size() > kMaxEditBytes || edit.time.empty()) return false;
  stored.old_size = static_cast<uint32_t>(edit.old_bytes.size());
  stored.new_size = static_cast<uint32_t>(edit.new_bytes.size());
  if (stored.size_bytes() == 0 || edits_.size() >= 0xfffffff0U) return false;
  stored.ip = edit.ip.value;
  if (stored.last() < stored.ip) return false;
  stored.time = edit.time;
  stored.space = effective_space(edit.space, edit.ip);
  stored.cpu = edit.cpu;
  stored.record_offset_bytes = edit.record_offset_bytes;
  stored.origin = edit.origin;
  stored.order = static_cast<uint32_t>(edits_.size());
  stored.old_offset = arena_.size();
  arena_.insert(arena_.end(), edit.old_bytes.begin(), edit.old_bytes.end());
  stored.new_offset = arena_.size();
  arena_.insert(arena_.end(), edit.new_bytes.begin(), edit.new_bytes.end());
  edits_.push_back(stored);
  return true;
}

bool EditStore::same(const StoredEdit& a, const StoredEdit& b) const {
  return a.space == b.space && a.ip == b.ip && a.time == b.time && a.old_size == b.old_size && a.new_size == b.new_size &&
         std::memcmp(old_bytes(a), old_bytes(b), a.old_size) == 0 && std::memcmp(new_bytes(a), new_bytes(b), a.new_size) == 0;
}

void EditStore::sort() {
  std::sort(edits_.begin(), edits_.end(), [](const StoredEdit& a, const StoredEdit& b) {
    return std::tie(a.space, a.ip, a.time.first, a.time.last, a.order) < std::tie(b.space, b.ip, b.time.first, b.time.last, b.order);
  });
  edits_.erase(std::unique(edits_.begin(), edits_.end(), [this](const auto& a, const auto& b) { return same(a, b); }), edits_.end());
}

SiteRanges EditStore::ranges() const {
  SiteRanges out;
  for (uint32_t first = 0; first < edits_.size();) {
    uint64_t last_address = edits_[first].last();
    uint32_t end = first + 1;
    for (; end < edits_.size() && edits_[end].space == edits_[first].space && edits_[end].ip <= last_address; ++end) {
      last_address = std::max(last_address, edits_[end].last());
    }
    const uint64_t size = last_address - edits_[first].ip + 1;
    if (size <= kMaxSiteBytes / 2) {
      out.ranges.push_back({edits_[first].space, edits_[first].ip, static_cast<uint32_t>(size), out.pieces.size(), end - first});
      for (uint32_t i = first; i < end; ++i) out.pieces.push_back(i);
    } else {
      cut(first, end, out);
    }
    first = end;
  }
  return out;
}

// Splits a long cluster in address order. Short edits that overlap form cores, which stay whole if possible. Within long edits a site ends
// at the edge of a core or after half of kMaxSiteBytes.
void EditStore::cut(uint32_t first, uint32_t end, SiteRanges& out) const {
  std::vector<std::pair<uint64_t, uint64_t>> cores;  // first, last address
  uint64_t cluster_last = 0;
  for (uint32_t i = first; i < end; ++i) {
    const StoredEdit& e = edits_[i];
    cluster_last = std::max(cluster_last, e.last());
    if (e.size_bytes() > kShortEditBytes) continue;
    if (!cores.empty() && e.ip <= cores.back().second) {
      cores.back().second = std::max(cores.back().second, e.last());
    } else {
      cores.emplace_back(e.ip, e.last());
    }
  }
  std::vector<uint32_t> active;
  uint32_t next = first;
  for (uint64_t at = edits_[first].ip;;) {
    uint64_t last = at + std::min<uint64_t>(kMaxSiteBytes / 2 - 1, cluster_last - at);
    // A core that straddles the end is left to the next site, or included as a whole if it fits.
    const auto core = std::partition_point(cores.begin(), cores.end(), [last](const auto& c) { return c.second <= last; });
    if (core != cores.end() && core->first <= last) {
      if (core->first > at) {
        last = core->first - 1;
      } else if (core->second - at < kMaxSiteBytes) {
        last = core->second;
      }
    }
    while (next < end && edits_[next].ip <= last) active.push_back(next++);
    std::erase_if(active, [this, at](uint32_t i) { return edits_[i].last() < at; });
    out.ranges.push_back(
        {edits_[first].space, at, static_cast<uint32_t>(last - at + 1), out.pieces.size(), static_cast<uint32_t>(active.size())});
    out.pieces.insert(out.pieces.end(), active.begin(), active.end());
    if (last >= cluster_last) return;
    at = last + 1;
  }
}

}  // namespace ptd
