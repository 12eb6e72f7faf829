// TimelineData: the data that copies of a Timeline share. Private to the module.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "image/mapping_snapshots.h"
#include "image/section_index.h"
#include "ptdecode/guest.h"
#include "ptdecode/timeline.h"

namespace ptd {

inline constexpr uint32_t kNoEdit = 0xffffffffU;
/// Maximum size of a site, which bounds the memory per edit.
inline constexpr uint32_t kMaxSiteBytes = 512;

/// How many of a version's bytes are known. A partial version has a mask (one byte each, 0 or 1) after its bytes in the arena.
enum class Known : uint8_t { none, partial, all };

/// One version of a site. It opens at some time within `open` and closes at some time within the next version's `open`.
struct Version {
  Interval open;
  uint64_t bytes_offset = 0;  ///< in TimelineData::arena; equal contents of one site may share it
  uint32_t edit = kNoEdit;    ///< the edit that opened it; pieces of one edit in several sites have the same number
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
  uint32_t first_doubt = 0, doubt_count = 0;  ///< range in `doubts`
};

/// One address space: its sections by (address, time) and its run of sites in address order.
struct SpaceData {
  SectionIndex sections;
  SpaceId parent = kNoSpace;  ///< where this space has no mapping, the parent's content at `forked` applies
  TimeNs forked;
  SpaceId forked_from = kNoSpace;  ///< `parent`, also where `start` stands for it
  SiteId first_site = 0;
  uint32_t site_count = 0;
  /// When records of its code were lost (a guest's kernel: any records of the guest or the host); disjoint, in order.
  std::vector<Interval> suspect;
  /// The same for a space without `parent`: sections, and the indices of spaces whose sites apply. See cut_fork_chains().
  MappingSnapshots::Id start = MappingSnapshots::kNothing, edited = MappingSnapshots::kNothing;

  [[nodiscard]] bool inherits() const {
    return parent != kNoSpace || start != MappingSnapshots::kNothing || edited != MappingSnapshots::kNothing;
  }
};

/// Spaces of the host and of all guests are numbered together (types.h, guest.h); a guest's kernel is looked up by its machine.
inline uint32_t index_of_space(SpaceId space, const std::vector<uint32_t>& kernels) {
  const uint32_t machine = machine_of(space);
  if (machine == 0) return space.value;
  const uint32_t index = space.value & ((1U << kGuestSpaceBits) - 1);
  if (machine >= kernels.size() || kernels[machine] == 0) return kNoSpace.value;
  return index == 0 ? kernels[machine] : index;
}
/// Addresses of the kernel half belong to the machine's kernel in every space.
constexpr SpaceId effective_space(SpaceId space, Ip ip) { return space_at(space, ip); }

class TimelineData {
 public:
  std::deque<Section> sections;   ///< many: a vector takes three times their memory while it grows
  std::vector<SpaceData> spaces;  ///< by index_of()
  std::vector<uint32_t> kernels;  ///< by machine: the index of its kernel's space; 0: none
  MappingSnapshots snapshots;
  ForkTree forks;           ///< empty if no space starts with snapshots
  std::vector<Site> sites;  ///< by (space, ip)
  std::vector<Version> versions;
  std::vector<std::byte> arena;
  std::vector<Interval> suspect;  ///< disjoint, in order
  std::vector<Interval> doubts;   ///< per site: times at which lost records may have changed the content; in order
  std::vector<Finding> findings;

  /// Returns the place of a space in `spaces`; spaces.size() or more if there is no such space.
  [[nodiscard]] uint32_t index_of(SpaceId space) const { return index_of_space(space, kernels); }
  /// Returns the windows in which records of the machine of `kernel` were lost.
  [[nodiscard]] const std::vector<Interval>& lost_of(SpaceId kernel) const {
    return machine_of(kernel) == 0 ? suspect : spaces[index_of(kernel)].suspect;
  }

  /// Return when the version may have been live, and when it certainly was (its neighbours were not).
  [[nodiscard]] Interval possible(const Site& site, uint32_t version) const;
  [[nodiscard]] Interval certain(const Site& site, uint32_t version) const;
  [[nodiscard]] const Version& version(const Site& site, uint32_t version) const { return versions[site.first_version + version]; }
  [[nodiscard]] const std::byte* bytes(const Version& version) const { return arena.data() + version.bytes_offset; }
  /// Returns whether byte `offset` of the version is known.
  [[nodiscard]] bool known_at(const Site& site, const Version& version, uint64_t offset) const;
  /// Returns the versions [first, last] that may have been live at some time within `when`.
  struct Range {
    uint32_t first = 0, last = 0;
  };
  [[nodiscard]] Range versions_in(const Site& site, Interval when) const;
  /// Returns the first site of the space that ends after `address`; first_site + site_count if there is none.
  [[nodiscard]] SiteId site_at_or_after(const SpaceData& space, uint64_t address) const;
  /// What a space that starts with snapshots has at an address, where it maps nothing itself.
  struct Inherited {
    uint64_t first = 0, last = ~uint64_t{0};  ///< the addresses around it to which this applies
    SectionId section = kNoSection;
    Fork fork;  ///< if it has a parent: the content is that of a site of this space at the fork
  };
  [[nodiscard]] Inherited inherited(const SpaceData& space, uint64_t address) const;
  /// Returns the section mapped at (space, address, t) in the space or in the spaces it was forked from.
  [[nodiscard]] Timeline::SectionAt section_at(SpaceId space, uint64_t address, TimeNs t) const;
};

constexpr TimeNs before(TimeNs t) { return t == kTimeMin ? t : TimeNs{t.value - 1}; }
constexpr TimeNs after(TimeNs t) { return t == kTimeMax ? t : TimeNs{t.value + 1}; }
constexpr TimeNs middle(Interval when) { return TimeNs{when.first.value + (when.last.value - when.first.value) / 2}; }

}  // namespace ptd
