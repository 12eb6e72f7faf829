// LossFold: reduces the LOST and LOST_SAMPLES records of each ring to one of each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::live {

/// The record that stays is that of the last loss, with the count of all: a state that records from before the last loss have led to may be
/// incomplete. Memory: two records for each ring.
class LossFold {
 public:
  /// Takes a LOST or LOST_SAMPLES record.
  void take(Bytes record, uint16_t ring);
  /// Adds the loss of `record` itself, which the fold has no space for.
  void add_lost(Bytes record, uint16_t ring);
  void each(const std::function<void(uint16_t ring, const std::vector<std::byte>& record)>& on_record) const;

 private:
  std::map<std::pair<uint16_t, uint32_t>, std::vector<std::byte>> last_;  // by ring and type
};

}  // namespace ptd::live
