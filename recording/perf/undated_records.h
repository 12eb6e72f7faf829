// UndatedRecords: records without a time, because the recording's events give them none. Private to recording.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/records.h"
#include "recording/image/image_build.h"

namespace ptd {

/// Finds out whether the order of mappings and edits is known. perf writes records of what it found at its start without a time, too; these
/// have a trailer for it and are not counted. Not thread-safe.
class UndatedRecords {
 public:
  /// `attrs` must outlive this object; in a pipe, it grows while records are read.
  void set_attrs(const std::vector<perfio::EventAttr>& attrs) { attrs_ = &attrs; }
  void on_record(const perfio::Record& record);
  /// Reports undated records. If an address had two mappings, or kernel text changed, which code ran at a moment is unknown: all is
  /// suspect. `parents`: by process, the one that started it.
  void report(const UserMappings& mappings, const std::unordered_map<int32_t, int32_t>& parents, ImageBuild& image) const;

 private:
  [[nodiscard]] bool gives_time(const perfio::Record& record) const;

  const std::vector<perfio::EventAttr>* attrs_ = nullptr;
  uint64_t count_ = 0, edits_ = 0;
};

}  // namespace ptd
