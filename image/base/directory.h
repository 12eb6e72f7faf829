// Reading directories. std::filesystem's iterators end the process if there is no memory (libstdc++ 12: increment() is noexcept inside).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ptd {

struct DirectoryEntry {
  std::string name;        ///< without the directory
  bool is_folder = false;  ///< the entry itself, not the target of a link
};

/// Returns the entries of a directory, unordered, at most `most`. Empty if it cannot be read.
[[nodiscard]] std::vector<DirectoryEntry> entries_of(const std::string& directory, size_t most);

}  // namespace ptd
