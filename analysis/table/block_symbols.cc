// BlockSymbols: see block_symbols.h.
#include "analysis/table/block_symbols.h"

#include <algorithm>

namespace ptd {

/// Finds the epoch of this space and time, or begins one.
void BlockSymbols::enter(SpaceId space, TimeNs when) {
  const auto fits = [&](const Epoch& epoch) { return epoch.space == space && epoch.valid.contains(when); };
  if (const auto* known = std::find_if(epochs_.begin(), epochs_.end(), fits); known != epochs_.end()) {
    current_ = static_cast<size_t>(known - epochs_.begin());
    return;
  }
  current_ = next_;
  next_ = (next_ + 1) % epochs_.size();
  if (++last_id_ == 0) {  // all ids have been used
    std::fill(entries_.begin(), entries_.end(), Entry{});
    epochs_.fill(Epoch{});
    last_id_ = 1;
  }
  epochs_[current_] = {space, Interval{}, last_id_};
}

int32_t BlockSymbols::add(PlaceNames& names, NodeId node, Ip ip, TimeNs when) {
  if (node >= entries_.size()) entries_.resize(std::max<size_t>(size_t{node} + 1, 2 * entries_.size()));
  Epoch& epoch = epochs_[current_];
  Interval valid;
  const int32_t symbol = names.symbol(epoch.space, ip, when, valid);
  epoch.valid = intersect(epoch.valid, valid);
  entries_[node] = {epoch.id, symbol};
  return symbol;
}

}  // namespace ptd
