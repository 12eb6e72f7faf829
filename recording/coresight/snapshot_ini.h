// The ini files of an OpenCSD / DS-5 snapshot directory. Private to recording.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// One `key=value`, in file order; keys without a suffix in parentheses ("TRCIDR1(0x079)" is "TRCIDR1").
struct IniSection {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;

  /// Returns the first value of `key`, ignoring case; empty if there is none.
  [[nodiscard]] std::string_view value(std::string_view key) const;
};

/// Lines end with LF, CR LF or CR. Never fails: ignores lines that are neither a section nor `key=value`. Comments begin with ; or #.
/// Sections with equal names are merged, except dumps.
struct IniFile {
  std::vector<IniSection> sections;

  /// Returns the first section with that name, ignoring case; an empty one if there is none.
  [[nodiscard]] const IniSection& section(std::string_view name) const;
};
[[nodiscard]] IniFile parse_ini(std::string_view text);
[[nodiscard]] bool is_dump(const IniSection& section);  ///< [dump], [dump1], ...: one piece of memory each

}  // namespace ptd
