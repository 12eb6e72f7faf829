// SpanReader: numbers and strings of debug sections. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ptd {

/// Reads within a span. After the first read past the end, every value is 0 and ok() is false.
class SpanReader {
 public:
  SpanReader() = default;
  SpanReader(std::span<const std::byte> bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - at_; }
  /// Whether a byte is left, and is not 0.
  [[nodiscard]] bool goes_on() const { return left() != 0 && bytes_[at_] != std::byte{0}; }

  void skip(uint64_t count) {
    if (count > left()) return fail();
    at_ += count;
  }
  void keep(uint64_t count) {
    if (count > left()) return fail();
    bytes_ = bytes_.first(at_ + count);
  }
  uint64_t number(size_t size) {
    if (size > left()) fail();
    uint64_t value = 0;
    for (size_t i = 0; ok_ && i < size; ++i) {
      const auto byte = static_cast<uint64_t>(bytes_[at_ + i]);
      value |= byte << 8 * (big_endian_ ? size - 1 - i : i);
    }
    at_ += ok_ ? size : 0;
    return value;
  }
  /// Numbers have up to 10 bytes: libdw takes the bytes after that for opcodes.
  uint64_t uleb() {
    constexpr unsigned kMostShift = 63;
    uint64_t value = 0;
    for (unsigned shift = 0; ok_; shift += 7) {
      if (shift > kMostShift) return fail(), 0;
      const uint64_t byte = number(1);
      value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    return value;
  }
  /// Returns the length of a zero-terminated string.
  uint64_t text() {
    const void* end = left() == 0 ? nullptr : std::memchr(bytes_.data() + at_, 0, left());
    if (end == nullptr) return fail(), 0;
    const auto length = static_cast<uint64_t>(static_cast<const std::byte*>(end) - (bytes_.data() + at_));
    at_ += length + 1;
    return length;
  }
  void fail() {
    ok_ = false;
    at_ = bytes_.size();
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool big_endian_ = false, ok_ = true;
};

}  // namespace ptd
