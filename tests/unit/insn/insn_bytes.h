// Bytes from hex digits, for tables in tests.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ptd {

/// Parses two hex digits per byte; blanks between bytes are skipped.
inline std::vector<std::byte> bytes_of(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size();) {
    if (hex[i] == ' ') {
      ++i;
      continue;
    }
    out.push_back(static_cast<std::byte>(digit(hex[i]) << 4 | digit(hex[i + 1])));
    i += 2;
  }
  return out;
}

}  // namespace ptd
