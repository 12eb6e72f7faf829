// Relists: when run-times listed all of their code. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "perfio/announce/announcement.h"

namespace ptd {

/// Of an announcement or one of its records.
template <typename What>
bool is_code(const What& what) {
  return what.kind <= AnnounceKind::patch;
}

/// The times at which all run-times of an instance had relisted their code.
class Relists {
 public:
  explicit Relists(const std::vector<Announcement>& announcements) {
    std::map<uint32_t, const Announcement*> begun;
    for (const Announcement& what : announcements) {
      if (is_code(what) && !what.relisted) runtimes_.try_emplace(what.runtime);
      if (what.kind != AnnounceKind::relist) continue;
      if (what.begin) {
        begun[what.runtime] = &what;
      } else if (const auto from = begun.find(what.runtime); from != begun.end()) {
        runtimes_[what.runtime].push_back({from->second->seq, what.time.last});
        begun.erase(from);
      }
    }
  }
  /// Returns when all code was relisted, by relists that began with number `seq` or later; kTimeMax if it was not.
  [[nodiscard]] TimeNs all_after(uint64_t seq) const {
    TimeNs latest = kTimeMin;
    for (const auto& [runtime, relists] : runtimes_) {
      const auto at = std::lower_bound(relists.begin(), relists.end(), seq, [](const Relist& r, uint64_t s) { return r.first_seq < s; });
      if (at == relists.end()) return kTimeMax;
      latest = std::max(latest, at->done);
    }
    return runtimes_.empty() ? kTimeMax : latest;
  }
  /// Returns whether number `seq` comes after the first relist of a run-time.
  [[nodiscard]] bool is_later(uint32_t runtime, uint64_t seq, TimeNs time) const {
    const auto relists = runtimes_.find(runtime);
    if (relists == runtimes_.end() || relists->second.empty()) return false;
    return relists->second.front().first_seq < seq && relists->second.front().done < time;
  }

 private:
  struct Relist {
    uint64_t first_seq = 0;
    TimeNs done;
  };
  std::map<uint32_t, std::vector<Relist>> runtimes_;
};

}  // namespace ptd
