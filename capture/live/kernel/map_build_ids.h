// MapBuildIds: build ids of the files that processes have mapped when a recording starts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "perfio/format/records.h"

namespace ptd::live {

/// The kernel records build ids of mappings made during a recording; those of earlier mappings are read here. A file is opened through the
/// mapping (mapping_file.h), else by its path in the process's file system, and is accepted only if device and inode are the mapping's.
/// Not thread-safe.
class MapBuildIds {
 public:
  /// Returns the build id as raw bytes; empty if there is none or it cannot be read.
  const std::string& of(const perfio::MmapRecord& map);

 private:
  static constexpr size_t kMostFiles = 16384;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, std::string> known_;  // device's numbers, inode
  std::string none_;
};

}  // namespace ptd::live
