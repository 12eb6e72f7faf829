// PokeFold: see poke_fold.h.
#include "capture/live/session/poke_fold.h"

#include <algorithm>

#include "capture/live/session/session_log.h"
#include "perfio/format/wire.h"

namespace ptd::live {

using namespace perfio;

PokeFold::Pokes::iterator PokeFold::erase(Pokes::const_iterator at) {
  bytes_ -= at->second.record.size();
  return pokes_.erase(at);
}

void PokeFold::erase_within(uint64_t address, uint64_t size_bytes, uint64_t time, bool creations) {
  for (auto at = pokes_.lower_bound({address, 0, false}); at != pokes_.end() && at->first.address - address < size_bytes;) {
    const bool is_inside = at->first.size_bytes <= size_bytes - (at->first.address - address);
    const bool goes = is_inside && at->second.time <= time && (creations || !at->first.creates);
    at = goes ? erase(at) : std::next(at);
  }
}

void PokeFold::take(Bytes record, uint16_t ring) {
  Cursor body(record.subspan(kRecordHeaderBytes));
  const uint64_t address = body.u64();
  const uint16_t old_size = body.u16(), new_size = body.u16();
  const uint64_t size = std::max(old_size, new_size), time = trailer_time(record);
  if (!body.ok() || size == 0) return;
  erase_within(address, size, time, old_size == 0 || new_size == 0);
  const auto [at, is_new] = pokes_.try_emplace({address, size, old_size == 0});
  if (!is_new) return;  // a newer one was read first
  at->second = {time, ring, {record.begin(), record.end()}};
  bytes_ += record.size();
  if (bytes_ > kMaxBytes) drop_older_half();
}

void PokeFold::forget(uint64_t address, uint64_t size_bytes, uint64_t time) { erase_within(address, size_bytes, time, true); }

void PokeFold::drop_older_half() {
  std::vector<Pokes::const_iterator> order;
  order.reserve(pokes_.size());
  for (auto at = pokes_.cbegin(); at != pokes_.cend(); ++at) order.push_back(at);
  std::ranges::stable_sort(order, {}, [](Pokes::const_iterator at) { return at->second.time; });
  for (const Pokes::const_iterator at : order) {
    if (bytes_ <= kMaxBytes / 2) return;
    losses_.add_lost(at->second.record, at->second.ring);
    erase(at);
  }
}

void PokeFold::each(const std::function<void(uint16_t ring, const std::vector<std::byte>& record)>& on_record) const {
  for (const auto& [place, poke] : pokes_) on_record(poke.ring, poke.record);
}

}  // namespace ptd::live
