// The guest writes no compressed data: each function fails as on an error of the library.
#include "perfio/zstd_stream.h"

namespace ptd::perfio {

struct ZstdDecompressor::State {};
struct ZstdCompressor::State {};

ZstdDecompressor::ZstdDecompressor() : failed_(true) {}
ZstdDecompressor::~ZstdDecompressor() = default;
ZstdDecompressor::ZstdDecompressor(ZstdDecompressor&&) noexcept = default;
ZstdDecompressor& ZstdDecompressor::operator=(ZstdDecompressor&&) noexcept = default;
size_t ZstdDecompressor::step(Bytes&, std::span<std::byte>) { return 0; }

std::vector<std::byte> zstd_compress(Bytes, int) { return {}; }
Result<std::vector<std::byte>> zstd_decompress(Bytes, uint64_t) {
  return Error{ErrorCode::unsupported_compression, "this program has no zstd", 0};
}

ZstdCompressor::ZstdCompressor(int) {}
ZstdCompressor::~ZstdCompressor() = default;
ZstdCompressor::ZstdCompressor(ZstdCompressor&&) noexcept = default;
ZstdCompressor& ZstdCompressor::operator=(ZstdCompressor&&) noexcept = default;
bool ZstdCompressor::add(Bytes, std::vector<std::byte>&) { return false; }

}  // namespace ptd::perfio
