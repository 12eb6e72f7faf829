// Protobuf's wire format: appends fields to a message.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace ptd::cli {

inline void put_number(std::string& out, uint64_t value) {
  std::array<char, 10> bytes;
  size_t size = 0;
  for (; value >= 128; value >>= 7) bytes[size++] = static_cast<char>(value | 128);
  bytes[size++] = static_cast<char>(value);
  out.append(bytes.data(), size);
}

inline void put(std::string& out, unsigned field, uint64_t value) {
  put_number(out, uint64_t{field} << 3);
  put_number(out, value);
}

inline void put(std::string& out, unsigned field, std::string_view bytes) {
  put_number(out, uint64_t{field} << 3 | 2);
  put_number(out, bytes.size());
  out.append(bytes);
}

inline void put_double(std::string& out, unsigned field, double value) {
  put_number(out, uint64_t{field} << 3 | 1);
  for (uint64_t bits = std::bit_cast<uint64_t>(value), i = 0; i < 8; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

}  // namespace ptd::cli
