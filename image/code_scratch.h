// CodeView::Scratch: the memory and the state of a CodeView. Private to the module.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "image/fetch_steps.h"
#include "image/mapping_history.h"
#include "image/timeline_data.h"
#include "ptdecode/code_view.h"

namespace ptd {

inline constexpr unsigned kMaxSpanBytes = 64;
inline constexpr size_t kCacheSlots = 64;

/// One content that a part may have.
struct Choice {
  Interval possible;
  Interval certain;
  const std::byte* bytes = nullptr;  // at the part's first address; null: absent
  const std::byte* mask = nullptr;   // if not null: nonzero for each byte known
  uint64_t size_bytes = 0;           // bytes available from there on
  CodeFlag flags = CodeFlag::none;
  uint32_t version = 0;
  uint32_t opened_by = kNoEdit, closed_by = kNoEdit;
};

/// A run of addresses whose content changes as a whole: (part of) a site, or plain section bytes.
struct Part {
  uint64_t first = 0, last = 0;  // addresses, inclusive
  SiteId site = kNoSite;
  uint32_t first_choice = 0, choice_count = 0;
  bool joined = false;         // a choice stands for several mappings
  uint32_t low = 0, high = 0;  // sweep: choices [low, high) are current
};

struct Opening {
  TimeNs time;
  uint32_t part = 0, choice = 0;
};

/// A stretch of plain bytes that one section covers, for repeated look-ups nearby.
struct CacheSlot {
  SpaceId space = kNoSpace;
  uint64_t first = 1, last = 0;
  Interval live{kTimeMax, kTimeMin};
  const std::byte* bytes = nullptr;
  CodeFlag flags = CodeFlag::none;
  SectionId section = kNoSection;
};

struct CodeView::Scratch {
  const TimelineData* data = nullptr;
  std::array<CacheSlot, kCacheSlots> cache;
  MappingHistories histories;
  std::vector<Part> parts;
  std::vector<Choice> choices;
  std::vector<SectionRect> rects;
  std::vector<Opening> openings;
  std::vector<std::array<std::byte, kMaxSpanBytes>> buffers;
  struct Merged {
    const std::byte* source = nullptr;  // its bytes, if they come from one part
    bool differs = false;               // it has versions that are healed and others that are not
  };
  std::vector<Merged> merged;  // per candidate
  std::vector<uint32_t> pick;  // per part, the choice in the current combination

  // State of the current fetch.
  SpaceId space;
  uint64_t ip = 0;
  Interval when;
  unsigned span_bytes = 0;
  std::span<const VersionFloor> floors;
  std::span<CodeCandidate> out;
  uint32_t count = 0;
  uint64_t combinations = 0;
  mutable uint64_t taken = 0;  ///< see FetchSteps
  uint64_t most_steps = kMostFetchSteps;
  bool overflow = false;
  bool only_plain = false;  ///< look for plain code only
  CodeFlag suspect = CodeFlag::none;
  Interval flags_constant;
  bool one_piece = true;  ///< `flags_constant` is one piece of time without or within a window of lost records, and contains `when`

  bool fetch_cached(FetchResult& result);
  void look_at_suspect_windows();
  void look_at_doubt(const Site& site);
  void collect_parts();
  Part next_part(SpaceId at, uint64_t address, uint64_t last, Interval during, bool use_floors);
  void add_site_choices(Part& part, uint32_t site_id, Interval during, bool use_floors);
  void add_plain_choices(Part& part, SpaceId at, Interval during);
  void add_own_choices(Part& part, const SpaceData& space_data, Interval during);
  void add_piece(Part& part, const MappingHistory::Piece& piece, const Choice& inherited, Interval possible, Interval certain);
  [[nodiscard]] Choice plain_choice(SectionId id, uint64_t address, uint64_t last) const;
  Choice from_parent(Part& part, Fork fork);
  Choice from_snapshot(Part& part, const SpaceData& child);
  [[nodiscard]] bool may_change(SpaceId at, uint64_t address) const;
  bool emit_plain();
  void sweep();
  void combine(uint32_t fixed_part, uint32_t fixed_choice);
  [[nodiscard]] bool consistent() const;
  bool merge_shared();
  void merge(uint32_t index, CodeFlag flags, Interval possible, Interval certain);
  void emit();
  [[nodiscard]] Interval run_certain(const Part& part, const Choice& choice, uint64_t compared) const;
  [[nodiscard]] const Choice& chosen(size_t part) const { return choices[parts[part].first_choice + pick[part]]; }
};

}  // namespace ptd
