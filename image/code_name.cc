// code_name: see code_name.h.
#include "image/code_name.h"

#include <cinttypes>
#include <cstdio>

#include "image/base/fnv.h"

namespace ptd {

std::string code_name(const Section& section) {
  if (!section.build_id.empty()) return section.build_id;
  if (section.code.bytes.empty()) return section.path;
  char text[32];
  std::snprintf(text, sizeof text, "fnv64:%016" PRIx64, fnv1a(section.code.bytes));
  return text;
}

uint64_t code_offset(const Section& section, Ip ip) {
  return (section.build_id.empty() ? 0 : section.file_offset_bytes) + (ip - section.ip);
}

}  // namespace ptd
