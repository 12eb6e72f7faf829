// Timeline: for every (space, ip, time) the exact code bytes that were live. Immutable.
//
//        address
//          ^   | file A                | file B (mmap over A)
//   0x2000 |   +-----------+-----------+------------------
//          |   | v0        | v1 (poke) | v2 (poke)           <- a *site*: bytes that edits touch, with its versions
//   0x1000 |   +-----------+-----------+------------------
//          +------------------------------------------------> time
//
// Invariant: nothing is overwritten. An edit closes one version of its site and opens the next.
// Invariant: sites of one space do not overlap; the versions of one site are ordered in time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/finding.h"
#include "ptdecode/types.h"

namespace ptd {

/// Bytes of code, and the owner that keeps them alive (a mapped file, a heap block).
struct CodeBytes {
  std::shared_ptr<const void> owner;
  Bytes bytes;
};

using SectionId = uint32_t;
inline constexpr SectionId kNoSection = 0xffffffffU;
using SiteId = uint32_t;
inline constexpr SiteId kNoSite = 0xffffffffU;

/// A mapping: the file or code at `ip` during `live`. code.bytes is empty if the bytes were not found.
struct Section {
  SpaceId space = kKernelSpace;
  Ip ip;
  uint64_t size_bytes = 0;
  Interval live;         ///< from the moment it was mapped to the moment it was replaced
  CodeBytes code;        ///< size_bytes long (shorter: the rest is unknown), or empty
  std::string path;      ///< file, "[vdso]", "[kernel]", "bpf_prog_...", or empty
  std::string build_id;  ///< hex, may be empty
  uint64_t file_offset_bytes = 0;
  bool assumed = false;  ///< bytes are a guess that no record confirms (e.g. vmlinux instead of kcore)
};

enum class CodeFlag : uint8_t {
  none = 0,
  healed = 1,   ///< version inserted by healing
  suspect = 2,  ///< within a window of lost records
  assumed = 4,  ///< from a section marked assumed
};
constexpr CodeFlag operator|(CodeFlag a, CodeFlag b) { return static_cast<CodeFlag>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b)); }
constexpr CodeFlag operator&(CodeFlag a, CodeFlag b) { return static_cast<CodeFlag>(static_cast<uint8_t>(a) & static_cast<uint8_t>(b)); }
constexpr CodeFlag operator~(CodeFlag a) { return static_cast<CodeFlag>(~static_cast<unsigned>(a) & 7U); }
constexpr bool any(CodeFlag set, CodeFlag flag) { return (static_cast<uint8_t>(set) & static_cast<uint8_t>(flag)) != 0; }

/// One possible content of memory at the requested ip during (part of) the requested interval.
struct CodeCandidate {
  Bytes bytes;            ///< from ip on; at least 1 byte. At least 15 if that much is contiguous and known
  Interval possible;      ///< when these bytes may have been live (hull over equal versions)
  Interval certain;       ///< when these bytes, and no others, were live; may be empty()
  SiteId site = kNoSite;  ///< the first site among the bytes that has more than one version, or kNoSite
  uint32_t version = 0;   ///< lowest version number of that site with this content (>= the floor given)
  CodeFlag flags = CodeFlag::none;
};

/// The decoder knows that `site` has reached `version`, so earlier versions are no longer live.
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
  Bytes bytes;                ///< from the address asked for on
  uint64_t before_bytes = 0;  ///< bytes before them, in memory and in the section, with the same properties; there may be more
  Interval certain;           ///< when these bytes, and no others, were live
  CodeFlag flags = CodeFlag::none;
  SectionId section = kNoSection;
};

/// Addresses at which no fetch() finds bytes. A plain value.
struct PTD_API NoCode {
  uint64_t first = 1, last = 0;    ///< inclusive; first > last: unknown
  Interval when;                   ///< the moments at which this holds
  SectionId section = kNoSection;  ///< mapped there
  [[nodiscard]] constexpr bool covers(Ip ip, Interval asked) const { return first <= ip.value && ip.value <= last && when.contains(asked); }
};

class TimelineData;  // private to image/
class FetchLog;
class CodeLimits;

/// Immutable; any number of threads may read. Copies share one body; references and bytes are valid as long as one of them.
class PTD_API Timeline {
 public:
  Timeline();  ///< empty: nothing is mapped
  explicit Timeline(std::shared_ptr<const TimelineData> data);

  [[nodiscard]] const std::vector<Finding>& findings() const;
  [[nodiscard]] const Section& section(SectionId id) const;
  [[nodiscard]] size_t section_count() const;
  [[nodiscard]] size_t site_count() const;
  /// True if some address may have had several contents: code that changed, or mappings that came and went.
  [[nodiscard]] bool has_versions() const;
  /// Number of versions of a site and its address range; for `ptdecode image`.
  struct SiteInfo {
    SpaceId space;
    Ip ip;
    uint32_t size_bytes;
    uint32_t versions;
  };
  [[nodiscard]] SiteInfo site(SiteId id) const;
  struct VersionInfo {
    Bytes bytes;         ///< of the site's whole range; bytes not known are absent (see `known`)
    bool known = false;  ///< false: code did not exist or its bytes are unknown
    Interval possible;
    Interval certain;
    CodeFlag flags;
  };
  [[nodiscard]] VersionInfo version(SiteId id, uint32_t version) const;
  /// Sites of `space` that intersect [first, first + size_bytes), in address order.
  [[nodiscard]] std::vector<SiteId> sites_in(SpaceId space, Ip first, uint64_t size_bytes) const;
  /// The section live at (space, ip, t), or kNoSection.
  [[nodiscard]] SectionId section_at(SpaceId space, Ip ip, TimeNs t) const { return section_during(space, ip, t).id; }
  struct SectionAt {
    SectionId id = kNoSection;
    Interval valid;  ///< moments at which the same address surely has the same section
  };
  [[nodiscard]] SectionAt section_during(SpaceId space, Ip ip, TimeNs t) const;
  /// Returns the sections mapped at (space, ip) at any time, including those of the spaces that it was forked from.
  [[nodiscard]] std::vector<SectionId> sections_at(SpaceId space, Ip ip) const;
  /// Windows in which the kernel image is suspect because records were lost.
  [[nodiscard]] const std::vector<Interval>& suspect_windows() const;

  [[nodiscard]] const TimelineData& data() const { return *data_; }
  [[nodiscard]] FetchLog* fetch_log() const { return fetch_log_.get(); }
  [[nodiscard]] const CodeLimits* code_limits() const { return code_limits_.get(); }

 private:
  friend struct TimelineAccess;
  std::shared_ptr<const TimelineData> data_;
  std::shared_ptr<FetchLog> fetch_log_;
  std::shared_ptr<const CodeLimits> code_limits_;
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
