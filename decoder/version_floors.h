// Floors: the versions of changing code that a flow has reached.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "ptdecode/code_view.h"

namespace ptd {

/// Versions that a flow has reached: a small set that drops its oldest entry when it is full.
class Floors {
 public:
  void raise(SiteId site, uint32_t version) {
    for (uint32_t i = 0; i < count_; ++i) {
      if (floors_[i].site != site) continue;
      if (floors_[i].version < version) floors_[i].version = version;
      return;
    }
    const uint32_t slot = count_ < floors_.size() ? count_++ : next_++ % static_cast<uint32_t>(floors_.size());
    floors_[slot] = {site, version};
  }
  /// Returns the version that was reached, or 0.
  [[nodiscard]] uint32_t of(SiteId site) const {
    for (const VersionFloor& floor : span()) {
      if (floor.site == site) return floor.version;
    }
    return 0;
  }
  /// Keeps what holds for `other`, too.
  void lower_to(const Floors& other) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const VersionFloor lower = {floors_[i].site, std::min(floors_[i].version, other.of(floors_[i].site))};
      if (lower.version != 0) floors_[kept++] = lower;
    }
    count_ = kept;
    next_ = 0;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::span<const VersionFloor> span() const { return {floors_.data(), count_}; }

 private:
  std::array<VersionFloor, 16> floors_{};
  uint32_t count_ = 0;
  uint32_t next_ = 0;
};

}  // namespace ptd
