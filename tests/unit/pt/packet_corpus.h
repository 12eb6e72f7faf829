// Helpers of the packet tests: corpus files, plain or gzipped, and hex.
#pragma once

#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::pt::test {

inline std::filesystem::path corpus() {
  const char* path = std::getenv("PTDECODE_CORPUS");
  return path != nullptr ? path : PTD_SOURCE_DIR "/../shared/corpus";
}

/// Returns a file's content, uncompressed if it is gzipped. Empty if there is none.
inline std::string read_text(const std::filesystem::path& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return text;
  char buffer[1 << 16];
  for (int got = 0; (got = gzread(file, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  gzclose(file);
  return text;
}

inline std::vector<std::byte> to_bytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(separator, from)) != std::string::npos; from = at + 1) parts.push_back(text.substr(from, at - from));
  if (from < text.size()) parts.push_back(text.substr(from));
  return parts;
}

inline std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace ptd::pt::test
