// Words and numbers of text files that other programs write. Private to recording.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ptd {

/// Parses a decimal number, or hexadecimal after 0x; returns false if it is not a number or does not fit.
[[nodiscard]] bool parse_number(std::string_view text, uint64_t& value);
[[nodiscard]] std::string_view trimmed(std::string_view text);           ///< without blanks around
[[nodiscard]] bool equal_words(std::string_view a, std::string_view b);  ///< whatever their case (ASCII)
[[nodiscard]] std::string lower_case(std::string_view text);             ///< words that are equal have the same

}  // namespace ptd
