// SavedFiles: the interface through which CodeSource looks up files that were saved when a recording was made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image/base/mapped_file.h"

namespace ptd {

class ElfFile;
struct ElfSymbol;
struct MappedPath;

/// Files saved when a recording was made. Their bytes are checked against their hash before they are returned.
class SavedFiles {
 public:
  virtual ~SavedFiles() = default;
  /// Returns exactly the content of this mapping of this recording; null if it was not saved. `whole_is_mapping`: it is a copy of the
  /// mapping's memory, not of the file that contains it at the mapping's offset.
  struct OfMapping {
    std::shared_ptr<const MappedFile> file;
    bool whole_is_mapping = false;
  };
  [[nodiscard]] virtual OfMapping of_mapping(const MappedPath& wanted) = 0;
  /// Returns when of_mapping()'s content was saved or earlier, in nanoseconds since the epoch, without reading it; 0 if it was not saved.
  [[nodiscard]] virtual int64_t saved_at_ns(const MappedPath& wanted) = 0;
  /// A later copy of memory, which changed to this content at some time in [since, until], on the recording's clock.
  struct Copy {
    std::shared_ptr<const MappedFile> file;
    uint64_t since_ns = 0, until_ns = 0;
  };
  /// Returns the copies of the mapping's memory after the first one (see of_mapping()), oldest first.
  [[nodiscard]] virtual std::vector<Copy> later_copies(const MappedPath& wanted) = 0;
  /// Returns the contents with a build id (hex), saved for any recording.
  [[nodiscard]] virtual std::vector<std::shared_ptr<const MappedFile>> with_build_id(const std::string& build_id) = 0;
  /// Returns the symbols of a file. For files from the calls above this may be faster than reading the file. Thread-safe after the last
  /// call of those.
  [[nodiscard]] virtual std::vector<ElfSymbol> symbols_of(const ElfFile& elf) = 0;
  /// Returns one sentence for each saved file that cannot be used (damaged, not readable).
  [[nodiscard]] virtual std::vector<std::string> troubles() const = 0;
};

}  // namespace ptd
