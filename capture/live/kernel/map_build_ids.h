// MapBuildIds: build ids of the files that processes have mapped when a recording starts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "perfio/format/records.h"

namespace ptd::live {

/// The kernel gives build ids of what is mapped while it records; of what was mapped before somebody has to look. A file is opened by the
/// mapping itself (mapping_file.h), else by its path in the process's file system, and only believed if device and inode are the mapping's.
/// One thread.
class MapBuildIds {
 public:
  /// Raw bytes; empty if there is none, or it cannot be known.
  const std::string& of(const perfio::MmapRecord& map);

 private:
  static constexpr size_t kMostFiles = 16384;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, std::string> known_;  // device's numbers, inode
  std::string none_;
};

}  // namespace ptd::live
