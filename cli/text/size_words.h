// Sizes, counts and ages as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ptdecode/error.h"

namespace ptd::cli {

/// "500M", "2G", "64K", plain bytes; powers of 1024.
[[nodiscard]] Result<uint64_t> parse_size(std::string_view option, std::string_view text);
/// "90s", "12h", "30d", "2w", in seconds; a bare number is days.
[[nodiscard]] Result<int64_t> parse_age_s(std::string_view text);
/// "5 bytes", "1.5 MiB".
[[nodiscard]] std::string size_text(uint64_t bytes);
/// "1 thread", "2 threads"; `plural` for words that take more than an s.
[[nodiscard]] std::string counted(uint64_t count, std::string_view word, std::string_view plural = {});
/// 0 of nothing.
[[nodiscard]] constexpr double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}
}  // namespace ptd::cli
