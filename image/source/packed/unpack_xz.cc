// liblzma's stream decoder.
#include "image/base/interrupt.h"
#include "image/source/packed/unpack.h"

#ifdef PTD_HAS_LZMA
#include <lzma.h>
#endif

namespace ptd {

#ifdef PTD_HAS_LZMA

Result<std::vector<std::byte>> unpack_xz(Bytes packed) {
  constexpr uint64_t kMostMemory = 128U << 20, kAlways = 16U << 20, kMostTimes = 32;
  constexpr size_t kStep = 1U << 18;
  lzma_stream stream = LZMA_STREAM_INIT;
  lzma_ret result = lzma_stream_decoder(&stream, kMostMemory, 0);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  const auto most = [&stream] { return kAlways + kMostTimes * stream.total_in; };  // what follows the stream does not count
  std::vector<std::byte> output;
  try {
    while (result == LZMA_OK && output.size() <= most()) {
      check_interrupt();
      const size_t before = output.size();
      output.resize(before + std::max(kStep, before / 2));
      stream.next_out = reinterpret_cast<uint8_t*>(output.data()) + before;
      stream.avail_out = output.size() - before;
      result = lzma_code(&stream, LZMA_FINISH);
      output.resize(output.size() - stream.avail_out);
    }
  } catch (...) {
    lzma_end(&stream);
    throw;
  }
  lzma_end(&stream);
  if (output.size() > most()) return Error{ErrorCode::bad_compression, "it would uncompress to far more than its size", 0};
  if (result == LZMA_STREAM_END) return output;
  if (result == LZMA_MEMLIMIT_ERROR || result == LZMA_MEM_ERROR)
    return Error{ErrorCode::bad_compression, "uncompressing it takes too much memory", 0};
  if (result == LZMA_BUF_ERROR) return Error{ErrorCode::truncated, "it ends early", 0};
  return Error{ErrorCode::bad_compression, result == LZMA_FORMAT_ERROR ? "it is not compressed with xz" : "its compressed data is damaged",
               0};
}

#else

Result<std::vector<std::byte>> unpack_xz(Bytes) { return Error{ErrorCode::unsupported_compression, "this build has no liblzma", 0}; }

#endif

}  // namespace ptd
