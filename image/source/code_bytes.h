// CodeBytes of files and of copies of memory.
#pragma once

#include <cstdint>
#include <memory>

#include "image/base/mapped_file.h"
#include "ptdecode/timeline.h"
#include "ptdecode/types.h"

namespace ptd {

/// Returns the part [offset, offset + size) of a file as code bytes that keep the file mapped. The part is cut at the end of the file, and
/// empty past it.
[[nodiscard]] CodeBytes piece_of(const std::shared_ptr<const MappedFile>& file, uint64_t offset_bytes, uint64_t size_bytes);

/// Returns code bytes that own a copy of `bytes`.
[[nodiscard]] CodeBytes own_bytes(Bytes bytes);

/// A range of memory with its bytes, from a copy of memory.
struct MemoryRange {
  Ip ip;
  CodeBytes code;
};

}  // namespace ptd
