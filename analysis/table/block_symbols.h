// BlockSymbols: the symbols of the blocks of one stream by their node, so that a row does not search for its address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/table/branch_flow.h"
#include "analysis/table/place_names.h"

namespace ptd {

/// Remembers the symbol of one address of each block. A remembered symbol belongs to an epoch: a space, and a time in which all symbols of
/// the epoch are valid. Not thread-safe.
class BlockSymbols {
 public:
  /// Writes the symbol of each row to `out`, -1: none. node(row) is a block; ip(row) is its remembered address, or any address if the node is
  /// kNoNode; has(row) is false for a row without an address, whose node is kNoNode.
  template <typename Row, typename Access>
  void find(PlaceNames& names, SpaceId space, TimeNs when, std::span<const Row> rows, const Access& access, int32_t* out) {
    if (epochs_[current_].space != space || !epochs_[current_].valid.contains(when)) enter(space, when);
    const uint32_t epoch = epochs_[current_].id;
    std::span<const Entry> entries = entries_;
    for (const Row& row : rows) {
      const NodeId node = access.node(row);
      if (node < entries.size() && entries[node].epoch == epoch) {
        *out++ = entries[node].symbol;
      } else if (node != kNoNode) {
        *out++ = add(names, node, access.ip(row), when);
        entries = entries_;
      } else {
        *out++ = access.has(row) ? names.symbol(space, access.ip(row), when) : -1;
      }
    }
  }

 private:
  struct Epoch {
    SpaceId space = kNoSpace;
    Interval valid{kTimeMax, kTimeMin};
    uint32_t id = 0;
  };
  struct Entry {
    uint32_t epoch = 0;
    int32_t symbol = -1;
  };
  void enter(SpaceId space, TimeNs when);
  int32_t add(PlaceNames& names, NodeId node, Ip ip, TimeNs when);

  std::vector<Entry> entries_;   // by node
  std::array<Epoch, 8> epochs_;  // the last ones
  size_t current_ = 0, next_ = 0;
  uint32_t last_id_ = 0;
};

}  // namespace ptd
