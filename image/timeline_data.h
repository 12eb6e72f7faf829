// TimelineData: the data that copies of a Timeline share. Private to the module.
#pragma once

#include <cstdint>
#include <vector>

#include "image/section_index.h"
#include "ptdecode/timeline.h"

namespace ptd {

inline constexpr uint32_t kNoEdit = 0xffffffffU;
/// No site is larger: what one edit costs in memory is bounded by this.
inline constexpr uint32_t kMaxSiteBytes = 512;

/// How much of a version's bytes is known. A partial version has a mask (one byte each, 0 or 1) behind its bytes in the arena.
enum class Known : uint8_t { none, partial, all };

/// One content of a site. It opens at some moment of `open` and closes at some moment of the next version's `open`.
struct Version {
  Interval open;
  uint64_t bytes_offset = 0;  ///< in TimelineData::arena; equal contents of one site may share it
  uint32_t edit = kNoEdit;    ///< which edit opened it; pieces of one edit in several sites share the number
  Known known = Known::none;
  CodeFlag flags = CodeFlag::none;
};

/// A range of bytes that edits touch. Versions are a run of TimelineData::versions.
struct Site {
  uint64_t ip = 0;
  uint32_t size_bytes = 0;
  uint32_t version_count = 0;
  uint64_t first_version = 0;
  SpaceId space = kKernelSpace;
  uint32_t first_doubt = 0, doubt_count = 0;  ///< of `doubts`
};

/// One address space: its sections by (address, time) and its run of sites in address order.
struct SpaceData {
  SectionIndex sections;
  SpaceId parent = kNoSpace;  ///< where this space says nothing, the parent's content at `forked` stands
  TimeNs forked;
  SiteId first_site = 0;
  uint32_t site_count = 0;
};

class TimelineData {
 public:
  std::vector<Section> sections;
  std::vector<SpaceData> spaces;
  std::vector<Site> sites;  ///< by (space, ip)
  std::vector<Version> versions;
  std::vector<std::byte> arena;
  std::vector<Interval> suspect;  ///< disjoint, in order
  std::vector<Interval> doubts;   ///< of a site: in which lost records may have left other content than told; in order
  std::vector<Finding> findings;

  /// When the version may have been live, and when it surely was (its neighbours were not).
  [[nodiscard]] Interval possible(const Site& site, uint32_t version) const;
  [[nodiscard]] Interval certain(const Site& site, uint32_t version) const;
  [[nodiscard]] const Version& version(const Site& site, uint32_t version) const { return versions[site.first_version + version]; }
  [[nodiscard]] const std::byte* bytes(const Version& version) const { return arena.data() + version.bytes_offset; }
  /// Whether byte `offset` of the version is known.
  [[nodiscard]] bool known_at(const Site& site, const Version& version, uint64_t offset) const;
  /// Versions [first, last] that may have been live at some moment of `when`.
  struct Range {
    uint32_t first = 0, last = 0;
  };
  [[nodiscard]] Range versions_in(const Site& site, Interval when) const;
  /// First site of the space that ends after `address`; first_site + site_count if there is none.
  [[nodiscard]] SiteId site_at_or_after(const SpaceData& space, uint64_t address) const;
  /// The section mapped at (space, address, t) here or in the spaces it was forked from.
  [[nodiscard]] Timeline::SectionAt section_at(SpaceId space, uint64_t address, TimeNs t) const;
};

/// Kernel-half addresses belong to the kernel whatever space they are asked in.
constexpr SpaceId effective_space(SpaceId space, Ip ip) { return is_kernel_half(ip) ? kKernelSpace : space; }
constexpr TimeNs before(TimeNs t) { return t == kTimeMin ? t : TimeNs{t.value - 1}; }
constexpr TimeNs after(TimeNs t) { return t == kTimeMax ? t : TimeNs{t.value + 1}; }
constexpr TimeNs middle(Interval when) { return TimeNs{when.first.value + (when.last.value - when.first.value) / 2}; }

}  // namespace ptd
