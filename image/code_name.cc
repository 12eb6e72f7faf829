// code_name: see code_name.h.
#include "image/code_name.h"

#include <cinttypes>
#include <cstdio>

namespace ptd {

uint64_t hash_of_code(Bytes bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

std::string code_name(const Section& section) {
  if (!section.build_id.empty()) return section.build_id;
  if (section.code.bytes.empty()) return section.path;
  char text[32];
  std::snprintf(text, sizeof text, "fnv64:%016" PRIx64, hash_of_code(section.code.bytes));
  return text;
}

uint64_t code_offset(const Section& section, Ip ip) { return (section.build_id.empty() ? 0 : section.file_offset_bytes) + (ip - section.ip); }

}  // namespace ptd
