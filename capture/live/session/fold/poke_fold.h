// PokeFold: the TEXT_POKE records of the kernel that a folded log keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "capture/live/session/fold/loss_fold.h"
#include "ptdecode/types.h"

namespace ptd::live {

/// Keeps all pokes of code that has not gone, as the kernel wrote them: the trace may be older than the other records of the log.
/// Memory: kMaxBytes of records, that is, about 16,000 changed instructions. If there are more, a poke replaces the older ones whose bytes
/// lie in its own, except that a change of code does not replace the record that created the code. The old bytes of the next record then
/// differ from the code before it, and readers mark what ran in between as uncertain. Where a place has its first content again, the poke
/// before the last one stays for that. If even these are too many, the older ones count as lost records.
class PokeFold {
 public:
  static constexpr uint64_t kMaxBytes = 1U << 20;
  explicit PokeFold(LossFold& losses) : losses_(losses) {}
  void take(Bytes record, uint16_t ring);
  /// Removes the pokes in a range up to `time`: its code went, or was replaced.
  void forget(uint64_t address, uint64_t size_bytes, uint64_t time) { erase_within(address, size_bytes, time, true); }
  /// Gives the records in order of address.
  void each(const std::function<void(uint16_t ring, const std::vector<std::byte>& record)>& on_record) const;

 private:
  struct Poke {
    uint64_t size_bytes = 0, time = 0;
    bool creates = false, removes = false;
    uint16_t ring = 0;
    std::vector<std::byte> record;
    std::vector<std::byte> first{};  ///< what the place had before the first poke that this one replaces; empty: it replaces none
    [[nodiscard]] uint64_t bytes() const { return record.size() + first.size(); }
    struct Contents {
      Bytes before, after;
    };
    [[nodiscard]] Contents contents() const;
    [[nodiscard]] bool changes() const { return creates || removes || !std::ranges::equal(contents().before, contents().after); }
  };
  void keep_last(uint64_t address, Poke poke);
  void add(uint64_t address, Poke poke);
  void erase_within(uint64_t address, uint64_t size_bytes, uint64_t time, bool creations);
  void shrink();

  LossFold& losses_;
  std::multimap<uint64_t, Poke> pokes_;  // by address
  uint64_t bytes_ = 0;
};

}  // namespace ptd::live
