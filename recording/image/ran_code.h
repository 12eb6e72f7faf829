// RanCode: compares the code of a complete jitdump with the mapped files. Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "ptdecode/timeline.h"

namespace ptd {

/// The code that one process ran, as its complete jitdump (kCompleteJitdump) lists it: also that of files which were gone when the recorder
/// ended. Code that the mapped file has at that place and time needs no section of its own. Other code within a mapped file belongs to that
/// file, so its addresses have one name at all times.
class RanCode {
 public:
  /// `mappings`: what the records map, without generated code.
  RanCode(const Timeline& mappings, SpaceId space) : mappings_(mappings), space_(space) {}

  /// Calls add(section) for the parts of [ip, ip + code.size()) that are other than what the timeline has at `time`. Call in order of time;
  /// `code` must outlive this.
  void add(Ip ip, const CodeBytes& code, TimeNs time, const std::function<void(Section)>& add);

 private:
  /// Code that was added, on top of the file.
  struct Run {
    uint64_t end = 0;
    TimeNs time;
    Bytes bytes;
  };
  /// Part of one mapping.
  struct Part {
    uint64_t first = 0, end = 0;
    const Section* file = nullptr;  ///< null: no file is mapped there
    TimeNs mapped_at;
  };
  struct Known {
    uint64_t end = 0;
    Bytes bytes;  ///< empty: not known
  };
  enum class Content : uint8_t { unknown, equal, other };
  [[nodiscard]] Part part_at(uint64_t first, uint64_t end, TimeNs time) const;
  [[nodiscard]] Known known_at(const Part& part, uint64_t at) const;
  void compare(const Part& part, Bytes code);
  [[nodiscard]] size_t end_of_run(size_t first) const;
  void cover(uint64_t first, TimeNs time, Bytes bytes);

  const Timeline& mappings_;
  SpaceId space_;
  std::map<uint64_t, Run> runs_;   // by first address; disjoint
  std::vector<Content> contents_;  // of each byte of one part
};

}  // namespace ptd
