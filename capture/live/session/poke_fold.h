// PokeFold: reduces TEXT_POKE records of the kernel to the last one of each place.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "capture/live/session/loss_fold.h"
#include "ptdecode/types.h"

namespace ptd::live {

/// A poke replaces the older ones whose bytes lie in its own, except that a change of code does not replace the record that created the code.
/// Records stay as the kernel wrote them: where changes were left out, the old bytes of the next record differ from the code before it, and
/// readers mark what ran in between as uncertain.
/// Memory: kMaxBytes of records, that is, about 30,000 changed instructions. If there are more, the older half of them is dropped and counted as lost records.
class PokeFold {
 public:
  static constexpr uint64_t kMaxBytes = 2U << 20;
  explicit PokeFold(LossFold& losses) : losses_(losses) {}
  void take(Bytes record, uint16_t ring);
  /// Removes the pokes in a range up to `time`: its code went, or was replaced.
  void forget(uint64_t address, uint64_t size_bytes, uint64_t time);
  /// Gives the records in order of address.
  void each(const std::function<void(uint16_t ring, const std::vector<std::byte>& record)>& on_record) const;

 private:
  struct Place {
    uint64_t address = 0, size_bytes = 0;
    bool creates = false;
    auto operator<=>(const Place&) const = default;
  };
  struct Poke {
    uint64_t time = 0;
    uint16_t ring = 0;
    std::vector<std::byte> record;
  };
  using Pokes = std::map<Place, Poke>;
  Pokes::iterator erase(Pokes::const_iterator at);
  void erase_within(uint64_t address, uint64_t size_bytes, uint64_t time, bool creations);
  void drop_older_half();

  LossFold& losses_;
  Pokes pokes_;
  uint64_t bytes_ = 0;
};

}  // namespace ptd::live
