// Timeline: the exact code bytes that were live at each (space, ip, time). Immutable.
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

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
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

/// A text that its copies share: many sections have one path, and code that moves often keeps one name. The text never changes, so any
/// number of threads may use copies.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text) : body_(text.empty() ? nullptr : new Body{std::move(text)}) {}  // NOLINT: as a string
  SharedText(const char* text) : SharedText(std::string(text)) {}                              // NOLINT
  SharedText(const SharedText& other) : body_(other.body_) {
    if (body_ != nullptr) body_->copies.fetch_add(1, std::memory_order_relaxed);
  }
  SharedText(SharedText&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  SharedText& operator=(SharedText other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~SharedText() {
    if (body_ != nullptr && body_->copies.fetch_sub(1, std::memory_order_acq_rel) == 1) delete body_;
  }
  operator std::string_view() const { return str(); }    // NOLINT
  operator const std::string&() const { return str(); }  // NOLINT
  [[nodiscard]] const std::string& str() const {
    static const std::string none;
    return body_ != nullptr ? body_->text : none;
  }
  [[nodiscard]] bool empty() const { return body_ == nullptr; }
  [[nodiscard]] bool starts_with(std::string_view start) const { return str().starts_with(start); }
  [[nodiscard]] bool ends_with(std::string_view end) const { return str().ends_with(end); }
  /// Returns what the copies share; null if the text is empty.
  [[nodiscard]] const std::string* shared() const { return body_ != nullptr ? &body_->text : nullptr; }
  template <std::convertible_to<std::string_view> Text>
  bool operator==(const Text& other) const {
    return str() == std::string_view(other);
  }

 private:
  struct Body {
    std::string text;
    std::atomic<size_t> copies{1};
  };
  Body* body_ = nullptr;  // smaller than a std::shared_ptr
};

using SectionId = uint32_t;
inline constexpr SectionId kNoSection = 0xffffffffU;
using SiteId = uint32_t;
inline constexpr SiteId kNoSite = 0xffffffffU;

/// A mapping: the file or code at `ip` during `live`. code.bytes is empty if the bytes were not found.
struct Section {
  SpaceId space = kKernelSpace;
  bool assumed = false;  ///< bytes are a guess that no record confirms (e.g. vmlinux instead of kcore)
  Ip ip;
  uint64_t size_bytes = 0;
  Interval live;        ///< from the time at which it was mapped to the time at which it was replaced
  CodeBytes code;       ///< size_bytes long (shorter: the rest is unknown), or empty
  SharedText path;      ///< file, "[vdso]", "[kernel]", "bpf_prog_...", or empty
  SharedText build_id;  ///< hex, may be empty
  uint64_t file_offset_bytes = 0;
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
  /// Returns true if some address may have several contents over time: code that changed, or mappings that came and went.
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
  /// Returns the sites of `space` that intersect [first, first + size_bytes), in address order.
  [[nodiscard]] std::vector<SiteId> sites_in(SpaceId space, Ip first, uint64_t size_bytes) const;
  /// Returns the section live at (space, ip, t), or kNoSection.
  [[nodiscard]] SectionId section_at(SpaceId space, Ip ip, TimeNs t) const { return section_during(space, ip, t).id; }
  struct SectionAt {
    SectionId id = kNoSection;
    Interval valid;  ///< times at which the address certainly has the same section
  };
  [[nodiscard]] SectionAt section_during(SpaceId space, Ip ip, TimeNs t) const;
  /// Returns the sections mapped at (space, ip) at any time, including those of the spaces that it was forked from.
  [[nodiscard]] std::vector<SectionId> sections_at(SpaceId space, Ip ip) const;
  /// Returns the windows in which the kernel image is suspect because records were lost.
  [[nodiscard]] const std::vector<Interval>& suspect_windows() const;
  /// Returns whether any code is suspect at some time, in the kernel or in one process, because records were lost.
  [[nodiscard]] bool has_suspect_windows() const;

  [[nodiscard]] const TimelineData& data() const { return *data_; }
  [[nodiscard]] FetchLog* fetch_log() const { return fetch_log_.get(); }
  [[nodiscard]] const CodeLimits* code_limits() const { return code_limits_.get(); }

 private:
  friend struct TimelineAccess;
  std::shared_ptr<const TimelineData> data_;
  std::shared_ptr<FetchLog> fetch_log_;
  std::shared_ptr<const CodeLimits> code_limits_;
};

}  // namespace ptd
