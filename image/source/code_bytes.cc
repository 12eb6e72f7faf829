// CodeBytes: bytes that keep a file mapped, or own a copy.
#include "image/source/code_bytes.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ptd {

CodeBytes piece_of(const std::shared_ptr<const MappedFile>& file, uint64_t offset_bytes, uint64_t size_bytes) {
  if (!file || offset_bytes >= file->bytes().size()) return {};
  const uint64_t left = file->bytes().size() - offset_bytes;
  return {file, file->bytes().subspan(offset_bytes, std::min(left, size_bytes))};
}

CodeBytes own_bytes(Bytes bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  const Bytes view(*copy);
  return {std::move(copy), view};
}

}  // namespace ptd
