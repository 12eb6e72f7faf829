// Build ids as text, and the CRC of debug links.
#include "image/source/build_id.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

namespace ptd {
namespace {

constexpr size_t kMaxBuildIdBytes = 64;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

bool all_zero_digits(std::string_view hex) {
  return std::all_of(hex.begin(), hex.end(), [](char c) { return c == '0'; });
}

constexpr uint32_t kPolynomial = 0xedb88320;  // bits reversed
constexpr size_t kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

/// tables[k][b]: the CRC of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  }
  return tables;
}
constexpr Tables kTables = make_tables();

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

uint32_t crc32_of(Bytes bytes, uint32_t before) {
  uint32_t crc = ~before;
  const auto at = [&bytes](size_t i) { return static_cast<uint32_t>(bytes[i]); };
  for (; bytes.size() >= kSlices; bytes = bytes.subspan(kSlices)) {
    const uint32_t low = crc ^ (at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24);
    crc = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^ kTables[4][low >> 24] ^ kTables[3][at(4)] ^
          kTables[2][at(5)] ^ kTables[1][at(6)] ^ kTables[0][at(7)];
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace ptd
