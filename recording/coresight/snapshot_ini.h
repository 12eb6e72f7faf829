// The ini files of an OpenCSD / DS-5 snapshot directory. Private to recording.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// One `key=value`; keys without what stands in parentheses ("TRCIDR1(0x079)" is "TRCIDR1"), in the order of the file.
struct IniSection {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;

  /// The first value of `key`, whatever its case; empty if there is none.
  [[nodiscard]] std::string_view value(std::string_view key) const;
};

/// Never fails: what is no section and no `key=value` is left out. Comments begin with ; or #. Sections of one name are one, but for dumps.
struct IniFile {
  std::vector<IniSection> sections;

  /// The first section of that name, whatever its case; an empty one if there is none.
  [[nodiscard]] const IniSection& section(std::string_view name) const;
};
[[nodiscard]] IniFile parse_ini(std::string_view text);
[[nodiscard]] bool is_dump(const IniSection& section);  ///< [dump], [dump1], ...: one piece of memory each

/// Decimal, or hexadecimal after 0x; false if it is no number or does not fit.
[[nodiscard]] bool parse_ini_number(std::string_view text, uint64_t& value);
[[nodiscard]] std::string_view trimmed(std::string_view text);           ///< without blanks around
[[nodiscard]] bool equal_words(std::string_view a, std::string_view b);  ///< whatever their case
[[nodiscard]] std::string lower_case(std::string_view text);             ///< words that are equal have the same

}  // namespace ptd
