// Ini files as debuggers write them.
#include "recording/coresight/snapshot_ini.h"

#include <algorithm>
#include <map>

#include "recording/image/words.h"

namespace ptd {
namespace {

constexpr size_t kMaxSections = 1U << 16;
constexpr size_t kMaxValues = 1U << 20;

}  // namespace

bool is_dump(const IniSection& section) { return equal_words(std::string_view(section.name).substr(0, 4), "dump"); }

std::string_view IniSection::value(std::string_view key) const {
  for (const auto& [name_of, text] : values) {
    if (equal_words(name_of, key)) return text;
  }
  return {};
}

const IniSection& IniFile::section(std::string_view name) const {
  static const IniSection kNone;
  for (const IniSection& candidate : sections) {
    if (equal_words(candidate.name, name)) return candidate;
  }
  return kNone;
}

IniFile parse_ini(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  IniFile file;
  std::map<std::string, size_t> by_name;  // lower case
  size_t values = 0, at = 0;
  while (!text.empty() && file.sections.size() < kMaxSections && values < kMaxValues) {
    const size_t end = text.find_first_of("\r\n");
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty() || line[0] == ';' || line[0] == '#') continue;
    if (line[0] == '[') {
      const size_t close = line.find(']');
      if (close == std::string_view::npos) continue;
      IniSection section{std::string(trimmed(line.substr(1, close - 1))), {}};
      const auto [entry, added] = by_name.try_emplace(lower_case(section.name), file.sections.size());
      at = entry->second;
      if (!added && !is_dump(section)) continue;
      at = file.sections.size();
      file.sections.push_back(std::move(section));
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || file.sections.empty()) continue;
    std::string_view key = trimmed(line.substr(0, equals));
    key = trimmed(key.substr(0, key.find('(')));
    if (key.empty()) continue;
    std::string_view value = line.substr(equals + 1);
    if (const size_t comment = value.find(';'); comment != std::string_view::npos) value = value.substr(0, comment);
    file.sections[at].values.emplace_back(key, trimmed(value));
    ++values;
  }
  return file;
}

}  // namespace ptd
