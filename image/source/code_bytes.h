// CodeBytes of files and of copies of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "image/base/mapped_file.h"
#include "ptdecode/timeline.h"
#include "ptdecode/types.h"

namespace ptd {

/// Returns the part [offset, offset + size) of a file as code bytes that keep the file mapped. The part is cut at the end of the file, and
/// empty past it.
[[nodiscard]] inline CodeBytes piece_of(const std::shared_ptr<const MappedFile>& file, uint64_t offset_bytes, uint64_t size_bytes) {
  if (!file || offset_bytes >= file->bytes().size()) return {};
  const uint64_t left = file->bytes().size() - offset_bytes;
  return {file, file->bytes().subspan(offset_bytes, std::min(left, size_bytes))};
}

/// Returns code bytes that own a copy of `bytes`.
[[nodiscard]] inline CodeBytes own_bytes(Bytes bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  const Bytes view(*copy);
  return {std::move(copy), view};
}

/// A range of memory with its bytes, from a copy of memory.
struct MemoryRange {
  Ip ip;
  CodeBytes code;
};

}  // namespace ptd
