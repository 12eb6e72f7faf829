// Tally of lost flow and the report that ends a command: gaps by reason, and missing code as one ranked list.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// Counts gaps. One per worker; merge() joins them. Plain counters, bounded by the number of sections and 2 MiB regions.
class GapTally {
 public:
  struct Count {
    uint64_t gaps = 0;
    uint64_t lost_bytes = 0;
    void add(const Count& other) { gaps += other.gaps, lost_bytes += other.lost_bytes; }
  };
  /// Code that was missing. A gap that *follows* is an unknown_return of the same space, with no gap of another reason since the missing
  /// code: the call of that return would be known if the flow had not been lost there, unless it is from before the trace.
  struct Missing {
    Count own, following;
  };
  /// Counts the next gap of a stream.
  void add(const Gap& gap);
  void merge(const GapTally& other);
  [[nodiscard]] uint64_t total() const;
  [[nodiscard]] const std::array<Count, kGapReasons>& by_reason() const { return by_reason_; }

  /// Where code was missing: a section, or (kNoSection) the 2 MiB region of a space.
  using Place = std::tuple<SectionId, uint32_t, uint64_t>;  // section, space, region address
  [[nodiscard]] const std::map<Place, Missing>& missing() const { return missing_; }

 private:
  static constexpr size_t kMaxPlaces = 1U << 16;
  std::array<Count, kGapReasons> by_reason_{};
  std::map<Place, Missing> missing_;
  std::optional<Place> last_;  ///< the missing code after which an unknown_return of last_space_ follows
  SpaceId last_space_ = kNoSpace;
};

/// One line of the ranked list.
struct MissingLine {
  std::string path, build_id, reason, remedy;
  uint64_t gaps = 0;            ///< in this code
  uint64_t following_gaps = 0;  ///< see GapTally::Missing
  uint64_t lost_bytes = 0;      ///< in all of them
  double share = 0;             ///< of all trace bytes
};
/// Returns "the code of FILE is missing (REASON)" for a file that `name` is of (names_file()), or, if it is empty, for the first that is
/// missing; "" if none is.
[[nodiscard]] std::string missing_file_text(const Recording& recording, std::string_view name);
/// Returns the sections whose files were not found. Some of their code may be known: what the program changed, for example.
[[nodiscard]] std::set<SectionId> sections_of_missing_files(const Recording& recording);
/// Ranked by bytes lost, then by gaps. `total_bytes`: bytes of trace looked at.
[[nodiscard]] std::vector<MissingLine> rank_missing(const GapTally& tally, const Recording& recording, uint64_t total_bytes);
/// The field `missing_code` of `stat` and `check` (docs/FORMAT-json.md).
[[nodiscard]] nlohmann::json missing_json(std::span<const MissingLine> lines);

/// The exit status of a command that went through: with --strict 3 if flow was lost or anything of the recording disagrees (what `check`
/// finds, a file that is cut short among it).
[[nodiscard]] int strict_status(bool strict, const GapTally& tally, const Recording& recording);

/// Says that Ctrl-C ended the decoding, and how far it had come; printed before gap_summary().
[[nodiscard]] std::string interrupt_text(double share_decoded, const GapTally& tally);
/// The summary at the end of a command, for standard error; empty if nothing was lost.
[[nodiscard]] std::string gap_summary(const GapTally& tally, const Recording& recording, uint64_t total_bytes);

}  // namespace ptd::cli
