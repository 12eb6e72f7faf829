// SiteBuilder: turns the edits of one range of bytes into versions; checks old bytes and inserts the edits of lost records.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "image/build/edit_store.h"
#include "image/timeline_data.h"

namespace ptd {

/// Returns `when`, longer by `ns` on either side.
[[nodiscard]] Interval widen(Interval when, uint64_t ns);

/// An event that changes, or proves, the bytes of a site. Offsets are relative to the site's first byte.
struct SiteStep {
  enum class Kind : uint8_t {
    unmap,    ///< the bytes were removed with their section
    section,  ///< a section with bytes was mapped
    observe,  ///< a dated copy contains these bytes: a proof, not a change
    record,   ///< an edit
  };
  Kind kind = Kind::record;
  bool weak = false;    ///< section: assumed bytes, which a record may contradict without a finding
  bool healed = false;  ///< record: inserted here, or derived from copies
  EditOrigin origin = EditOrigin::text_poke;
  Interval time;
  uint32_t offset = 0;
  uint32_t size = 0;           ///< size of the range it covers, clipped to the site
  Bytes old_bytes, new_bytes;  ///< clipped too; empty: absent
  uint32_t edit = kNoEdit;     ///< index of the StoredEdit, or a larger number for an inserted edit
  uint32_t copy = 0;           ///< observe: index of the copy

  [[nodiscard]] uint32_t end() const { return offset + size; }
};

/// The part of a dated copy that covers a site.
struct SiteCopy {
  uint32_t copy = 0;  ///< index of the copy; 0 is the base
  uint32_t offset = 0;
  Bytes bytes;
  Interval taken;
  Interval limit;  ///< contains `taken`, the time at which most sites place the copy; this site may place it elsewhere within `limit`
};

/// A range of bytes and all events that affect it.
struct SiteInput {
  SpaceId space;
  uint64_t ip = 0;
  uint32_t size = 0;
  std::vector<SiteStep> steps;
  std::vector<SiteCopy> copies;
  bool outside_base = false;  ///< copies exist and none covers this range: code that a record removes here was created after `base_taken`
  TimeNs base_taken;
};

/// Builds sites one at a time, in address order, onto the end of a TimelineData. Not thread-safe.
class SiteBuilder {
 public:
  SiteBuilder(TimelineData& data, const EditStore& edits);

  /// Appends the site, or several if its history can be resolved only in parts. Consumes the input.
  void build(SiteInput& input);
  /// Keeps the first known version of each site only and reports nothing.
  void freeze() { frozen_ = true; }
  /// Returns the times at which the site, by its records alone, had the bytes of `copy`. For dating copies.
  void matching_times(SiteInput& input, const SiteCopy& copy, std::vector<Interval>& out);
  /// Adds the finding unless there are already too many.
  void report(Finding finding);

 private:
  /// The state of a byte at one point of the scan.
  enum class Level : uint8_t { unknown, weak, known, absent };
  struct Byte {
    TimeNs since;         // the value is proven only from this time on
    int32_t set_by = -1;  // index into scanned_, -1: initial content
    std::byte value{};
    Level level = Level::unknown;
    bool healed = false;
  };
  /// A step as it is written to the versions. `content` (per byte of its range) replaces new_bytes for sections and inserted edits.
  struct Scanned {
    SiteStep step;
    size_t content = 0;  // offset in pool_
    bool pooled = false;
  };
  /// Bytes [first, end) that differ from what `cause` requires.
  struct Mismatch {
    uint32_t first = 0, end = 0;
    TimeNs since;
    int32_t set_by = -1;
  };

  void build_at(SiteInput& input, uint32_t depth);
  void place_copies(SiteInput& input);
  void place_copy(SiteInput& input, const SiteCopy& copy);
  void trace_records(const SiteInput& input, const SiteCopy& copy, std::vector<uint8_t>& cost);
  bool half_written(const SiteInput& input, const SiteCopy& copy);
  bool scan(SiteInput& input);
  [[nodiscard]] bool fits(const SiteStep& step) const;
  void apply_section(const SiteStep& step);
  bool apply_record(const SiteInput& input, const SiteStep& step);
  bool apply_observation(const SiteInput& input, const SiteStep& step);
  Mismatch compare(const SiteInput& input, const SiteStep& step, Bytes held);
  void learn(uint32_t offset, std::byte value);
  bool heal(const SiteStep& cause, Bytes held, const Mismatch& mismatch);
  void heal_removal(const SiteInput& input, const SiteStep& cause);
  bool extend_heal(const SiteStep& cause, Bytes held, const Mismatch& mismatch);
  void push_pooled(SiteStep step, Bytes content, Level level);
  void add_pending(Finding finding);
  bool begin_report(uint32_t edit);
  void report_mismatch(const SiteInput& input, const SiteStep& cause, const Mismatch& mismatch, Bytes held);
  void split(const SiteInput& input, uint32_t depth);
  void write_versions(const SiteInput& input);
  void push_version(const SiteInput& input, const SiteStep* step, uint64_t first_version);
  void seal(const SiteInput& input, uint64_t first_version);
  void add_doubts(const SiteInput& input);

  TimelineData& data_;
  const EditStore& edits_;
  bool frozen_ = false;
  uint32_t next_edit_;
  std::vector<bool> reported_;    // per stored edit
  std::vector<bool> is_pending_;  // per stored edit: it is in pending_edits_
  size_t findings_left_;

  // State of the current site.
  std::vector<Scanned> scanned_;
  std::vector<Byte> pool_;
  std::vector<Byte> bytes_;    // current bytes
  std::vector<Byte> initial_;  // at the start of time
  std::vector<Finding> pending_;
  std::vector<uint32_t> pending_edits_;
  Mismatch crossing_;
};

}  // namespace ptd
