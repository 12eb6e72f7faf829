// Reading directories. std::filesystem's iterators end the process if there is no memory (libstdc++ 12: increment() is noexcept inside).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ptd {

struct DirectoryEntry {
  std::string name;        ///< without the directory
  bool is_folder = false;  ///< itself, not through a link
};

/// The entries of a directory in no order, at most `most`. Empty if it cannot be read.
[[nodiscard]] std::vector<DirectoryEntry> entries_of(const std::string& directory, size_t most);

}  // namespace ptd
