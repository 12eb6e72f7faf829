// Appends little-endian fields to a byte vector; the inverse of Cursor.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::perfio {

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(&out) {}

  template <class T>
  ByteWriter& put(T value) {
    const size_t at = out_->size();
    out_->resize(at + sizeof(T));
    std::memcpy(out_->data() + at, &value, sizeof(T));
    return *this;
  }
  ByteWriter& u8(uint8_t value) { return put(value); }
  ByteWriter& u16(uint16_t value) { return put(value); }
  ByteWriter& u32(uint32_t value) { return put(value); }
  ByteWriter& i32(int32_t value) { return put(value); }
  ByteWriter& u64(uint64_t value) { return put(value); }
  ByteWriter& bytes(Bytes value) {
    out_->insert(out_->end(), value.begin(), value.end());
    return *this;
  }
  ByteWriter& zeros(size_t count) {
    out_->resize(out_->size() + count);
    return *this;
  }
  /// Appends zeros up to a multiple of `alignment` bytes from the vector's start.
  ByteWriter& align(size_t alignment) { return zeros((alignment - out_->size() % alignment) % alignment); }
  /// Appends characters and at least one NUL, up to a multiple of `alignment` bytes.
  ByteWriter& text(std::string_view value, size_t alignment) {
    bytes(std::as_bytes(std::span(value)));
    return zeros(alignment - value.size() % alignment);
  }
  /// perf_header_string.
  ByteWriter& header_string(std::string_view value) {
    constexpr size_t kAlign = 64;
    u32(static_cast<uint32_t>(value.size() + (kAlign - value.size() % kAlign)));
    return text(value, kAlign);
  }
  [[nodiscard]] size_t size() const { return out_->size(); }

 private:
  std::vector<std::byte>* out_;
};

}  // namespace ptd::perfio
