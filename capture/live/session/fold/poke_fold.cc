// PokeFold: see poke_fold.h.
#include "capture/live/session/fold/poke_fold.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "capture/live/session/session_log.h"
#include "perfio/format/wire.h"

namespace ptd::live {

using namespace perfio;

PokeFold::Poke::Contents PokeFold::Poke::contents() const {
  Cursor body(Bytes(record).subspan(kRecordHeaderBytes + sizeof(uint64_t)));
  const uint16_t old_size = body.u16(), new_size = body.u16();
  const Bytes before = body.take(old_size);
  return {before, body.take(new_size)};
}

void PokeFold::take(Bytes record, uint16_t ring) {
  Cursor body(record.subspan(kRecordHeaderBytes));
  const uint64_t address = body.u64();
  const uint16_t old_size = body.u16(), new_size = body.u16();
  const uint64_t size = std::max(old_size, new_size);
  body.skip(uint64_t{old_size} + new_size);
  if (!body.ok() || size == 0) return;
  add(address, {size, trailer_time(record), old_size == 0, new_size == 0, ring, {record.begin(), record.end()}});
  if (bytes_ > kMaxBytes) shrink();
}

void PokeFold::add(uint64_t address, Poke poke) {
  bytes_ += poke.bytes();
  pokes_.emplace(address, std::move(poke));
}

void PokeFold::erase_within(uint64_t address, uint64_t size_bytes, uint64_t time, bool creations) {
  for (auto at = pokes_.lower_bound(address); at != pokes_.end() && at->first - address < size_bytes;) {
    const Poke& poke = at->second;
    const bool is_inside = poke.size_bytes <= size_bytes - (at->first - address);
    if (!is_inside || poke.time > time || (poke.creates && !creations)) {
      ++at;
      continue;
    }
    bytes_ -= poke.bytes();
    at = pokes_.erase(at);
  }
}

// Adds a poke in the place of the older ones.
void PokeFold::keep_last(uint64_t address, Poke poke) {
  const Poke* before = nullptr;  // the last one of the same bytes
  const auto [begin, end] = pokes_.equal_range(address);
  for (auto at = begin; at != end; ++at) {
    const Poke& each = at->second;
    if (each.size_bytes == poke.size_bytes && !each.creates && (before == nullptr || before->time <= each.time)) before = &each;
  }
  std::optional<Poke> witness;
  if (before != nullptr && !poke.creates && !poke.removes) {
    const Bytes first = before->first.empty() ? before->contents().before : Bytes(before->first);
    poke.first.assign(first.begin(), first.end());
    if (std::ranges::equal(poke.contents().before, poke.first)) {
      witness = *before;
      witness->first = poke.first;
    }
  }
  erase_within(address, poke.size_bytes, poke.time, poke.creates || poke.removes);
  if (witness) add(address, std::move(*witness));
  add(address, std::move(poke));
}

/// Keeps the last poke of each place, and if there are still too many places, the newer ones.
void PokeFold::shrink() {
  std::vector<std::pair<uint64_t, Poke>> all(std::make_move_iterator(pokes_.begin()), std::make_move_iterator(pokes_.end()));
  std::ranges::stable_sort(all, {}, [](const auto& poke) { return poke.second.time; });
  pokes_.clear();
  bytes_ = 0;
  for (auto& [address, poke] : all) {
    if (poke.changes()) keep_last(address, std::move(poke));
  }
  if (bytes_ <= kMaxBytes / 4 * 3) return;
  std::vector<std::multimap<uint64_t, Poke>::const_iterator> order;
  for (auto at = pokes_.cbegin(); at != pokes_.cend(); ++at) order.push_back(at);
  std::ranges::stable_sort(order, {}, [](const auto& at) { return at->second.time; });
  for (size_t i = 0; i < order.size() && bytes_ > kMaxBytes / 2; ++i) {
    const Poke& poke = order[i]->second;
    losses_.add_lost(poke.record, poke.ring);
    bytes_ -= poke.bytes();
    pokes_.erase(order[i]);
  }
}

void PokeFold::each(const std::function<void(uint16_t ring, const std::vector<std::byte>& record)>& on_record) const {
  for (const auto& [address, poke] : pokes_) on_record(poke.ring, poke.record);
}

}  // namespace ptd::live
