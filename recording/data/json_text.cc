// JsonText: see json_text.h.
#include "recording/data/json_text.h"

#include <array>

namespace ptd {

namespace {

constexpr uint32_t kReplacement = 0xfffd;  // U+FFFD, for bytes that are not UTF-8

/// Takes the first character of `text`, which is not empty. Source: RFC 3629, section 4.
uint32_t take_character(std::string_view& text) {
  const auto byte = [&text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  const size_t more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  uint32_t character = more == 0 ? lead : lead & (0x3fU >> more);
  bool good = lead < 0x80 || (0xc2 <= lead && lead <= 0xf4);
  for (size_t i = 1; i <= more; ++i) {
    good = good && (byte(i) & 0xc0U) == 0x80;
    character = character << 6U | (byte(i) & 0x3fU);
  }
  const bool is_surrogate = 0xd800 <= character && character <= 0xdfff;
  const std::array<uint32_t, 4> least = {0, 0x80, 0x800, 0x10000};
  good = good && character >= least[more] && character <= 0x10ffff && !is_surrogate;
  text.remove_prefix(good ? more + 1 : 1);
  return good ? character : kReplacement;
}

}  // namespace

void JsonText::add_unit(uint32_t unit) {
  out_ += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out_ += "0123456789abcdef"[unit >> shift & 15U];
}

void JsonText::add_text(std::string_view text) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  out_ += '"';
  while (!text.empty()) {
    const uint32_t character = take_character(text);
    const size_t at = character < 0x7f ? kShort.find(static_cast<char>(character)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[at];
    } else if (character >= 0x20 && character < 0x7f) {
      out_ += static_cast<char>(character);
    } else if (character < 0x10000) {
      add_unit(character);
    } else {  // RFC 8259, section 7: a surrogate pair
      add_unit(0xd7c0 + (character >> 10U));
      add_unit(0xdc00 + (character & 0x3ffU));
    }
  }
  out_ += '"';
}

void add_json_text(std::string_view text, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') out += '\\';
    if (code < 0x20) {
      out += "\\u00";
      out += kDigits[code >> 4];
      out += kDigits[code & 15];
    } else {
      out += letter;
    }
  }
  out += '"';
}

}  // namespace ptd
