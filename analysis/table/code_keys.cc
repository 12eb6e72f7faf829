// CodeKeys: see code_keys.h.
#include "analysis/table/code_keys.h"

#include <cinttypes>
#include <cstdio>
#include <string>

namespace ptd {
namespace {

constexpr int32_t kUnknown = -2;

std::string hash_text(Bytes bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "fnv64:%016" PRIx64, hash_of_code(bytes));
  return text;
}

std::string text_of(const Section& section) {
  if (!section.build_id.empty()) return section.build_id;
  return section.code.bytes.empty() ? section.path : hash_text(section.code.bytes);
}

}  // namespace

uint64_t hash_of_code(Bytes bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

CodeKeys::Found CodeKeys::find(SpaceId space, Ip ip, TimeNs when) {
  const auto [id, valid] = timeline_.section_during(is_kernel_half(ip) ? kKernelSpace : space, ip, when);
  if (id == kNoSection) return {{}, valid};
  const Section& section = timeline_.section(id);
  if (code_of_.empty()) code_of_.assign(timeline_.section_count(), kUnknown);
  if (code_of_[id] == kUnknown) code_of_[id] = codes.index_of(text_of(section));
  return {{code_of_[id], (section.build_id.empty() ? 0 : section.file_offset_bytes) + (ip - section.ip)}, valid};
}

}  // namespace ptd
