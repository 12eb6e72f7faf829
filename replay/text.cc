// Text for people: see text.h.
#include "replay/text.h"

namespace ptd::replay {

std::string hex(uint64_t value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + digits;
}

std::string seconds(TimeNs time) {
  if (time == kTimeMin) return "-";
  constexpr uint64_t kSecond = 1'000'000'000;
  const std::string part = std::to_string(time.value % kSecond);
  return std::to_string(time.value / kSecond) + "." + std::string(9 - part.size(), '0') + part;
}

std::string plain(std::string_view text) {
  std::string clean;
  for (const char c : text) clean += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
  return clean;
}

std::string xml(std::string_view text) {
  std::string escaped;
  for (const char c : plain(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace ptd::replay
