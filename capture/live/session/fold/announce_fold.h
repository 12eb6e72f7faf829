// AnnounceFold: reduces the announcements of one process to the code that is live after them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "perfio/announce/announcement.h"

namespace ptd::live {

/// What comes out is again a sequence of announcements. Code is relisted by an instance of its own (kState); the sequence of each real
/// instance goes on after its last number that was taken. A change that has begun, a loss after which not all code was relisted, and the
/// latest records, which may come out of order, are kept. Memory: bounded by the records that are taken.
class AnnounceFold {
 public:
  /// The numbers of recorded instances are larger by this (shift_numbers()): what is put before them has numbers too.
  static constexpr uint64_t kShift = uint64_t{1} << 32;
  static constexpr uint64_t kState = 0;  ///< the instance that lists the code
  /// A thread may announce this much later than it dates its announcement. Of records that span less, the latest quarter is kept.
  static constexpr uint64_t kSettleNs = 50'000'000;

  /// Takes a record; the times of calls do not decrease.
  void take(TimeNs time, Bytes record);
  /// Gives records that lead to the same code.
  void each(const std::function<void(TimeNs time, Bytes record)>& on_record);
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }

 private:
  using Key = std::tuple<uint32_t, AnnounceKind, uint64_t, uint64_t>;
  struct Raw {
    TimeNs time;
    std::vector<std::byte> bytes;
  };
  struct Instance {
    std::map<uint64_t, Raw> records;  // by number, not settled yet
    std::map<Key, Announcement> begun;
    std::set<uint32_t> runtimes, relisted;  // relisted: since the loss
    uint64_t next = 0;                      // number after the last settled one
    TimeNs settled;
    bool attached = false, lost = false;
    std::vector<Raw> readers;  // after the first attach, by time; one that ended stays until the next has begun
    // A reader's last records may be later than its end.
    [[nodiscard]] bool is_unread() const { return !attached && next == 0 && records.empty(); }
    [[nodiscard]] TimeNs listened_since() const { return readers.empty() ? settled : std::min(settled, readers.front().time); }
  };
  static void settle_readers(Instance& instance, TimeNs until, AnnounceJoiner& joiner);
  void settle(Instance& instance, TimeNs until);
  void apply(Instance& instance, Announcement& what);
  void change(Announcement& what);
  void cut(uint64_t address, uint64_t size_bytes);
  void patch(const Announcement& what);

  std::map<uint64_t, Instance> instances_;
  std::map<uint64_t, Announcement> live_;  // by address; disjoint
  TimeNs earliest_ = kTimeMax, latest_, settled_;
  uint64_t size_bytes_ = 0;
};

}  // namespace ptd::live
