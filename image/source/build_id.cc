// Build ids as text.
#include "image/source/build_id.h"

#include <algorithm>
#include <cctype>

namespace ptd {
namespace {

constexpr size_t kMaxBuildIdBytes = 64;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

bool all_zero_digits(std::string_view hex) {
  return std::all_of(hex.begin(), hex.end(), [](char c) { return c == '0'; });
}

}  // namespace

std::string hex_of(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return hex;
}

std::string hex_of(std::string_view raw) { return hex_of(std::as_bytes(std::span(raw.data(), raw.size()))); }

std::string normalize_build_id(std::string_view text_or_raw) {
  std::string digits;
  bool text = text_or_raw.size() >= 8;
  for (const char c : text_or_raw) {
    if (c == '-') continue;
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) {
      text = false;
      break;
    }
    digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (!text || digits.size() % 2 != 0) digits = hex_of(text_or_raw.substr(0, kMaxBuildIdBytes));
  if (digits.size() > kMaxBuildIdBytes * 2) digits.resize(kMaxBuildIdBytes * 2);
  return all_zero_digits(digits) ? std::string() : digits;
}

bool same_build_id(std::string_view a_hex, std::string_view b_hex) {
  if (a_hex.size() > b_hex.size()) std::swap(a_hex, b_hex);
  return !a_hex.empty() && b_hex.substr(0, a_hex.size()) == a_hex && all_zero_digits(b_hex.substr(a_hex.size()));
}

std::vector<std::string> cache_paths(const std::string& cache_dir, std::string_view build_id_hex, std::string_view kind) {
  if (cache_dir.empty() || build_id_hex.size() < 4 || !is_hex(build_id_hex)) return {};
  const std::string entry = cache_dir + "/.build-id/" + std::string(build_id_hex.substr(0, 2)) + "/" + std::string(build_id_hex.substr(2));
  return {entry + "/" + std::string(kind), entry};
}

std::string debug_path(const std::string& debug_dir, std::string_view build_id_hex) {
  if (debug_dir.empty() || build_id_hex.size() < 4 || !is_hex(build_id_hex)) return {};
  return debug_dir + "/.build-id/" + std::string(build_id_hex.substr(0, 2)) + "/" + std::string(build_id_hex.substr(2)) + ".debug";
}

}  // namespace ptd
