// KeptFiles: the interface through which CodeSource looks up files that were saved when a recording was made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image/source/mapped_file.h"

namespace ptd {

class ElfFile;
struct ElfSymbol;
struct MappedPath;

/// What was kept; the bytes were checked before they are given.
class KeptFiles {
 public:
  virtual ~KeptFiles() = default;
  /// The very content that this mapping of this recording showed; null if it was not kept. `whole_is_mapping`: it is a copy of the
  /// mapping's memory, not of the file that has it at the mapping's offset.
  struct OfMapping {
    std::shared_ptr<const MappedFile> file;
    bool whole_is_mapping = false;
  };
  [[nodiscard]] virtual OfMapping of_mapping(const MappedPath& wanted) = 0;
  /// A later copy of memory: it came to look so at some moment of [since, until], on the recording's clock.
  struct Copy {
    std::shared_ptr<const MappedFile> file;
    uint64_t since_ns = 0, until_ns = 0;
  };
  /// Copies of the mapping's memory after the first, which of_mapping() gives, oldest first.
  [[nodiscard]] virtual std::vector<Copy> later_copies(const MappedPath& wanted) = 0;
  /// Contents with a build id (hex), whoever kept them.
  [[nodiscard]] virtual std::vector<std::shared_ptr<const MappedFile>> with_build_id(const std::string& build_id) = 0;
  /// The symbols of a file: of one that was given by the calls above perhaps faster than from the file itself. Thread-safe once no more
  /// files are asked for.
  [[nodiscard]] virtual std::vector<ElfSymbol> symbols_of(const ElfFile& elf) = 0;
  /// What was kept and cannot be used (damaged, not readable), a sentence each.
  [[nodiscard]] virtual std::vector<std::string> troubles() const = 0;
};

}  // namespace ptd
