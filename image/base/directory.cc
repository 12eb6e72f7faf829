// Reading directories: see directory.h.
#include "image/base/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string_view>

namespace ptd {

std::vector<DirectoryEntry> entries_of(const std::string& directory, size_t most) {
  std::vector<DirectoryEntry> entries;
  struct Close {
    void operator()(DIR* list) const { ::closedir(list); }
  };
  const std::unique_ptr<DIR, Close> list(::opendir(directory.c_str()));
  if (!list) return entries;
  while (entries.size() < most) {
    const dirent* entry = ::readdir(list.get());  // NOLINT: a directory stream of its own
    if (entry == nullptr) break;
    const std::string_view name = static_cast<const char*>(entry->d_name);
    if (name == "." || name == "..") continue;
    bool is_folder = entry->d_type == DT_DIR;
    struct stat info {};
    if (entry->d_type == DT_UNKNOWN)
      is_folder = ::fstatat(::dirfd(list.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
    entries.push_back({std::string(name), is_folder});
  }
  return entries;
}

}  // namespace ptd
