// CodeView: reads the possible contents of memory at (space, ip) during an interval from a Timeline.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ptdecode/export.h"
#include "ptdecode/timeline.h"
#include "ptdecode/types.h"

namespace ptd {

/// One possible content of memory at the requested ip during (part of) the requested interval.
struct CodeCandidate {
  Bytes bytes;            ///< from ip on; at least 1 byte. At least 15 if that much is contiguous and known
  Interval possible;      ///< when these bytes may have been live (hull over equal versions)
  Interval certain;       ///< when these bytes, and no others, were live; may be empty()
  SiteId site = kNoSite;  ///< the first site among the bytes that has more than one version, or kNoSite
  uint32_t version = 0;   ///< lowest version number of that site with this content (>= the floor given)
  CodeFlag flags = CodeFlag::none;
};

/// A proof that `site` has reached `version`, so that earlier versions are no longer live.
struct VersionFloor {
  SiteId site = kNoSite;
  uint32_t version = 0;
};

/// The longest x86 instruction.
inline constexpr unsigned kFetchSpanBytes = 15;

enum class FetchStatus : uint8_t {
  ok,
  not_mapped,  ///< nothing known at that address
  no_bytes,    ///< a section is known (see `section`), but its bytes were not found
  too_many,    ///< more distinct contents than the caller's span holds
};

struct FetchResult {
  FetchStatus status = FetchStatus::not_mapped;
  uint32_t count = 0;              ///< candidates written, in order of time
  SectionId section = kNoSection;  ///< the section at ip (at the middle of the interval)
};

/// Code of one section that no edit touches.
struct PlainCode {
  Bytes bytes;                ///< from the requested address on
  uint64_t before_bytes = 0;  ///< bytes before them, in memory and in the section, with the same properties; there may be more
  Interval certain;           ///< when these bytes, and no others, were live
  CodeFlag flags = CodeFlag::none;
  SectionId section = kNoSection;
};

/// Addresses at which no fetch() finds bytes. A plain value.
struct PTD_API NoCode {
  uint64_t first = 1, last = 0;    ///< inclusive; first > last: unknown
  Interval when;                   ///< the times at which this holds
  SectionId section = kNoSection;  ///< mapped there
  [[nodiscard]] constexpr bool covers(Ip ip, Interval asked) const { return first <= ip.value && ip.value <= last && when.contains(asked); }
};

/// A reader of one Timeline with its own scratch memory. Not thread-safe: use one per thread. Keeps the timeline alive. Addresses of the
/// kernel half always read kKernelSpace.
class PTD_API CodeView {
 public:
  explicit CodeView(const Timeline& timeline);
  CodeView(CodeView&&) noexcept;
  CodeView& operator=(CodeView&&) noexcept;
  ~CodeView();

  /// Returns the possible contents at `ip` at some moment of `when`, distinct in their first `span_bytes` bytes (1 to 64), in order of
  /// their first possible moment. `floors` rules out older versions; a floor above all versions that time allows overrides time.
  /// The candidates' bytes stay valid until the next call. Fetch 15 bytes first. When the length of the instruction is known, fetch again
  /// with that length, so that changes after the instruction neither multiply candidates nor narrow `certain`.
  ///  - A moment T at which an edit is dated belongs to both the old and the new version, and to neither one's `certain`.
  ///  - Contents that are absent or unknown at `ip` are omitted. Unknown bytes further on shorten a candidate.
  ///  - Versions of neighbouring sites combine only if one moment of `when` allows both. An edit is never applied in part.
  ///  - `certain` also implies equal flags: it is cut at windows of lost records.
  FetchResult fetch(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors, std::span<CodeCandidate> out,
                    unsigned span_bytes = kFetchSpanBytes);

  /// Returns the longest stretch of code from `ip` on for which, at each moment of `certain` (which covers `when`), fetch() has one
  /// candidate with this `certain` and these flags. Empty if that cannot be decided cheaply; use fetch() then. The bytes are valid as long
  /// as the timeline.
  [[nodiscard]] PlainCode plain(SpaceId space, Ip ip, Interval when);
  /// Returns the addresses around `ip`, and the times, at which fetch() finds no bytes. Empty if that cannot be decided cheaply.
  [[nodiscard]] NoCode no_code(SpaceId space, Ip ip, Interval when);

  [[nodiscard]] const Timeline& timeline() const { return timeline_; }

 private:
  struct Scratch;
  FetchResult look_up(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors, std::span<CodeCandidate> out,
                      unsigned span_bytes);
  Timeline timeline_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace ptd
