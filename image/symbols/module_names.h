// ModuleNames: short names of the files that sections show. Private to the module.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "ptdecode/timeline.h"

namespace ptd {

/// A file's name without its folders. Where several files have it, as much of their paths as tells them apart is added ("a/prog"), and of
/// several builds at one path the first digits of the build id ("cur.so [997d9b91]"). Files with one build id are one file.
///
/// Thread-safe. The timeline must outlive it.
class ModuleNames {
 public:
  explicit ModuleNames(const Timeline& timeline);
  /// Returns the name of the file that sections with this path and build id show, or the path if it is in brackets. The view is valid as
  /// long as the path, the timeline and this.
  [[nodiscard]] std::string_view of(std::string_view path, std::string_view build_id) const;

 private:
  using File = std::pair<std::string_view, std::string_view>;  ///< path, build id
  std::map<File, std::string> longer_;                         ///< those that are not their files' names
};

}  // namespace ptd
