// libzstd's streaming interface.
#include "perfio/zstd_stream.h"

#include <zstd.h>

#include <algorithm>
#include <array>

#include "image/base/interrupt.h"

namespace ptd::perfio {

constexpr size_t kBlockHeaderBytes = 3;

struct ZstdDecompressor::State {
  ZSTD_DStream* stream = ZSTD_createDStream();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ZSTD_freeDStream(stream); }
};

ZstdDecompressor::ZstdDecompressor() : state_(std::make_unique<State>()) { failed_ = state_->stream == nullptr; }
ZstdDecompressor::~ZstdDecompressor() = default;
ZstdDecompressor::ZstdDecompressor(ZstdDecompressor&&) noexcept = default;
ZstdDecompressor& ZstdDecompressor::operator=(ZstdDecompressor&&) noexcept = default;

size_t ZstdDecompressor::step(Bytes& input, std::span<std::byte> output) {
  if (failed_) return 0;
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  ZSTD_outBuffer out{output.data(), output.size(), 0};
  while (out.pos < out.size) {
    const size_t in_before = in.pos;
    const size_t out_before = out.pos;
    const size_t result = ZSTD_decompressStream(state_->stream, &out, &in);
    if (ZSTD_isError(result) != 0) {
      failed_ = true;
      break;
    }
    // At a boundary it wants nothing (the end of a frame) or the 3 bytes of a block's header (RFC 8878, 3.1.1.2).
    if (in.pos != in_before || out.pos != out_before) {
      awaits_block_ = result == kBlockHeaderBytes;
      is_cut_ = result != 0 && !awaits_block_;
    }
    if (in.pos == in_before && out.pos == out_before) break;
  }
  input = input.subspan(in.pos);
  return out.pos;
}

// An empty last block ends a frame only where a block can begin. Inside a block it is data.
bool ZstdDecompressor::ends_inside_block() {
  if (failed_ || is_cut_ || !awaits_block_) return !failed_ && is_cut_;
  constexpr std::array<std::byte, kBlockHeaderBytes> kEmptyLast = {std::byte{1}};
  constexpr size_t kChecksumBytes = 4;
  std::byte more{};
  ZSTD_inBuffer in{kEmptyLast.data(), kEmptyLast.size(), 0};
  ZSTD_outBuffer out{&more, 1, 0};
  const size_t result = ZSTD_decompressStream(state_->stream, &out, &in);
  failed_ = true;
  return out.pos != 0 || (result != 0 && result != kChecksumBytes);
}

namespace {

constexpr uint64_t kFreeOutputBytes = 64ULL << 10, kMaxRatio = 256;

}  // namespace

uint64_t zstd_expansion_limit(uint64_t stored_bytes) {
  return stored_bytes > (~uint64_t{0} - kFreeOutputBytes) / kMaxRatio ? ~uint64_t{0} : kFreeOutputBytes + stored_bytes * kMaxRatio;
}

std::vector<std::byte> zstd_compress(Bytes input, int level) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (!context) return {};
  (void)ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  (void)ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::vector<std::byte> output(ZSTD_compressBound(input.size()));
  const size_t size = ZSTD_compress2(context.get(), output.data(), output.size(), input.data(), input.size());
  output.resize(ZSTD_isError(size) != 0 ? 0 : size);
  output.shrink_to_fit();
  return output;
}

void zstd_pad(std::vector<std::byte>& frames, uint64_t raw_bytes) {
  if (raw_bytes <= zstd_expansion_limit(frames.size())) return;
  constexpr uint32_t kSkippable = 0x184D2A50;  // RFC 8878, 3.1.2
  const uint64_t wanted = (raw_bytes - kFreeOutputBytes + kMaxRatio - 1) / kMaxRatio;
  const auto size = static_cast<uint32_t>(wanted - std::min<uint64_t>(wanted, frames.size() + 8));
  for (const uint32_t word : {kSkippable, size}) {
    for (unsigned shift = 0; shift < 32; shift += 8) frames.push_back(static_cast<std::byte>(word >> shift));
  }
  frames.resize(frames.size() + size);
}

Result<std::vector<std::byte>> zstd_decompress(Bytes frames, uint64_t raw_bytes) {
  constexpr size_t kStep = size_t{1} << 18;
  ZstdDecompressor stream;
  std::vector<std::byte> output;
  while (output.size() < raw_bytes) {
    check_interrupt();
    const size_t before = output.size();
    output.resize(before + std::min<uint64_t>({raw_bytes - before, std::max(kStep, before), uint64_t{1} << 26}));
    const size_t got = stream.step(frames, std::span(output).subspan(before));
    output.resize(before + got);
    if (stream.failed()) return Error{ErrorCode::bad_compression, "compressed data is damaged", 0};
    if (got == 0) return Error{ErrorCode::truncated, "compressed data ends early", 0};
  }
  std::byte more{};
  if (stream.step(frames, std::span(&more, 1)) != 0)
    return Error{ErrorCode::bad_compression, "compressed data is longer than announced", 0};
  if (stream.failed()) return Error{ErrorCode::bad_compression, "compressed data is damaged", 0};
  return output;
}

struct ZstdCompressor::State {
  ZSTD_CStream* stream = ZSTD_createCStream();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ZSTD_freeCStream(stream); }
};

ZstdCompressor::ZstdCompressor(int level) : state_(std::make_unique<State>()) {
  if (state_->stream != nullptr) (void)ZSTD_initCStream(state_->stream, level);
}
ZstdCompressor::~ZstdCompressor() = default;
ZstdCompressor::ZstdCompressor(ZstdCompressor&&) noexcept = default;
ZstdCompressor& ZstdCompressor::operator=(ZstdCompressor&&) noexcept = default;

bool ZstdCompressor::add(Bytes input, std::vector<std::byte>& output) {
  if (state_->stream == nullptr) return false;
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  std::vector<std::byte> buffer(ZSTD_CStreamOutSize());
  size_t left = 1;
  while (in.pos < in.size || left != 0) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    left = ZSTD_compressStream2(state_->stream, &out, &in, ZSTD_e_end);
    if (ZSTD_isError(left) != 0) return false;
    output.insert(output.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(out.pos));
  }
  return true;
}

}  // namespace ptd::perfio
