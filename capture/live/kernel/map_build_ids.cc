// MapBuildIds: see map_build_ids.h.
#include "capture/live/kernel/map_build_ids.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "image/source/build_id_note.h"
#include "image/stash/mapping_file.h"

namespace ptd::live {
namespace {

stash::Fd open_mapped(const perfio::MmapRecord& map) {
  stash::MappingFile mapped = stash::open_mapping({map.pid, map.addr, map.size_bytes, map.maj, map.min, map.inode, {}});
  if (mapped.fd.ok()) return std::move(mapped.fd);
  stash::Fd fd(open(("/proc/" + std::to_string(map.pid) + "/root" + map.path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd.ok() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const bool same = info.st_ino == map.inode && major(info.st_dev) == map.maj && minor(info.st_dev) == map.min;
  return same ? std::move(fd) : stash::Fd();
}

}  // namespace

const std::string& MapBuildIds::of(const perfio::MmapRecord& map) {
  if (map.inode == 0 || map.pid <= 0 || !map.path.starts_with('/')) return none_;
  const auto known = known_.find({map.maj, map.min, map.inode});
  if (known != known_.end()) return known->second;
  const stash::Fd fd = open_mapped(map);
  if (!fd.ok()) return none_;
  std::string id = read_build_id(fd.get());
  if (known_.size() >= kMostFiles) known_.clear();
  return known_[{map.maj, map.min, map.inode}] = std::move(id);
}

}  // namespace ptd::live
