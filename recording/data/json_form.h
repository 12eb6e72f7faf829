// Recognises LLDB's trace.json among recordings.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "image/base/mapped_file.h"

namespace ptd {

/// Returns whether a file is JSON. JSON starts with a brace after a byte order mark and white space; perf.data starts with PERFILE2.
inline bool looks_like_json(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return false;
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  const auto* text = reinterpret_cast<const char*>((*file)->bytes().data());
  std::string_view start(text, std::min<size_t>((*file)->bytes().size(), 256));
  if (start.starts_with(kMark)) start.remove_prefix(kMark.size());
  for (const char c : start) {
    if (c == '{') return true;
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return false;
}

}  // namespace ptd
