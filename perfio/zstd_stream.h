// Zstd compression and decompression streams. The only file that includes libzstd.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

/// Decompresses a stream in parts. Memory is bounded by zstd's default maximum window (128 MiB).
class ZstdDecompressor {
 public:
  ZstdDecompressor();
  ~ZstdDecompressor();
  ZstdDecompressor(ZstdDecompressor&&) noexcept;
  ZstdDecompressor& operator=(ZstdDecompressor&&) noexcept;

  /// Consumes from the front of `input` and fills the front of `output`; returns how many bytes were written. 0 with an empty
  /// `input` means that everything given so far is out. After an error failed() is true and nothing more comes.
  size_t step(Bytes& input, std::span<std::byte> output);
  [[nodiscard]] bool failed() const { return failed_; }
  /// Returns true if the input so far ends inside a block or a header: the rest is missing.
  [[nodiscard]] bool is_cut() const { return is_cut_; }
  /// The same at the end of all input, also for a block that lacks as many bytes as a block's header has. Nothing may be decompressed after
  /// it.
  [[nodiscard]] bool ends_inside_block();

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool failed_ = false, is_cut_ = false, awaits_block_ = false;
};

/// Returns the most bytes that a stored part of a file may expand to, so that no small file needs much memory. Readers refuse a part that
/// expands further, and writers store content that compresses better uncompressed.
[[nodiscard]] uint64_t zstd_expansion_limit(uint64_t stored_bytes);
/// Returns one complete frame with checksum and size; empty on an error of the library.
[[nodiscard]] std::vector<std::byte> zstd_compress(Bytes input, int level);
/// Appends a skippable frame to `frames` if their content, `raw_bytes`, is above zstd_expansion_limit() without it.
void zstd_pad(std::vector<std::byte>& frames, uint64_t raw_bytes);
/// Returns the content of one or more complete frames, which must be `raw_bytes` long. Memory grows with the output, not with `raw_bytes`.
/// Errors: file_format (damaged, longer), file_cut (shorter).
Result<std::vector<std::byte>> zstd_decompress(Bytes frames, uint64_t raw_bytes);

/// Compresses parts of one stream as separate frames, so that each can be decompressed at once and another process can continue the stream
/// without its history.
class ZstdCompressor {
 public:
  explicit ZstdCompressor(int level);
  ~ZstdCompressor();
  ZstdCompressor(ZstdCompressor&&) noexcept;
  ZstdCompressor& operator=(ZstdCompressor&&) noexcept;

  /// Appends the compressed form of `input`; returns false on an error of the library.
  [[nodiscard]] bool add(Bytes input, std::vector<std::byte>& output);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::perfio
