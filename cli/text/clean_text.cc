// Text as it may be shown: see clean_text.h.
#include "cli/text/clean_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace ptd::cli {

namespace {

constexpr std::array<char, 16> kDigits = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
constexpr unsigned char kFirstPrintable = 0x20, kDelete = 0x7f;

/// Not plain ASCII text of one line.
bool is_odd(char c) { return static_cast<unsigned char>(c) < kFirstPrintable || static_cast<unsigned char>(c) >= kDelete; }

struct CharRange {
  uint32_t first, last;
};
/// Characters that reorder or end the line (explicit formatting characters of [Unicode] annex 9, U+2028, U+2029) or show nothing, so that
/// two names look alike (Default_Ignorable_Code_Point of DerivedCoreProperties.txt).
constexpr std::array kHidden = {CharRange{0xad, 0xad},       CharRange{0x34f, 0x34f},    CharRange{0x61c, 0x61c},
                                CharRange{0x115f, 0x1160},   CharRange{0x17b4, 0x17b5},  CharRange{0x180b, 0x180f},
                                CharRange{0x200b, 0x200f},   CharRange{0x2028, 0x202e},  CharRange{0x2060, 0x206f},
                                CharRange{0x3164, 0x3164},   CharRange{0xfe00, 0xfe0f},  CharRange{0xfeff, 0xfeff},
                                CharRange{0xffa0, 0xffa0},   CharRange{0xfff0, 0xfff8},  CharRange{0x1bca0, 0x1bca3},
                                CharRange{0x1d173, 0x1d17a}, CharRange{0xe0000, 0xe0fff}};

bool is_hidden(uint32_t character) {
  return std::any_of(kHidden.begin(), kHidden.end(),
                     [&](const CharRange& range) { return character >= range.first && character <= range.last; });
}

/// Bytes of the character of two to four bytes that `text` begins with ([Unicode] table 3-7, well-formed UTF-8), 0 if that is none, a
/// control character, or hidden.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  const auto follows = [&](size_t at) { return (byte(at) & 0xc0U) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  size_t size = 0;
  if (first >= 0xc2 && first <= 0xdf) {
    size = first == 0xc2 && second < 0xa0 ? 0 : 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    const bool shortest = first != 0xe0 || second >= 0xa0, no_surrogate = first != 0xed || second < 0xa0;
    size = shortest && no_surrogate ? 3 : 0;
  } else if (first >= 0xf0 && first <= 0xf4) {
    const bool in_range = (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second < 0x90);
    size = in_range ? 4 : 0;
  }
  uint32_t character = size == 0 ? 0 : first & (0x7fU >> size);
  for (size_t at = 1; at < size; ++at) {
    if (!follows(at)) return 0;
    character = character << 6 | (byte(at) & 0x3fU);
  }
  return is_hidden(character) ? 0 : size;
}

/// Appends `text`; of what is odd, what `stays` as it is.
template <class Out, class Stays>
void clean(std::string_view text, Out& out, Stays stays) {
  while (!text.empty()) {
    const auto odd = static_cast<size_t>(std::find_if(text.begin(), text.end(), is_odd) - text.begin());
    out(text.substr(0, odd));
    text.remove_prefix(odd);
    if (text.empty()) return;
    if (const size_t whole = stays(text.front()) ? 1 : character_bytes(text); whole != 0) {
      out(text.substr(0, whole));
      text.remove_prefix(whole);
      continue;
    }
    const auto byte = static_cast<unsigned char>(text.front());
    const std::array<char, 4> escape = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    out(std::string_view(escape.data(), escape.size()));
    text.remove_prefix(1);
  }
}

bool is_layout(char c) { return c == '\n' || c == '\t'; }

}  // namespace

std::string shown(std::string_view name) {
  std::string out;
  const auto add = [&](std::string_view piece) { out += piece; };
  clean(name, add, [](char) { return false; });
  return out;
}

void put_shown(TextBuffer& out, std::string_view name) {
  const auto add = [&](std::string_view piece) { out.text(piece); };
  clean(name, add, [](char) { return false; });
}

bool is_harmless(std::string_view lines) {
  constexpr size_t kBlock = 64;  // looked at as a whole, without a branch in it
  while (lines.size() >= kBlock) {
    unsigned odd = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      const auto c = static_cast<unsigned char>(lines[i]);
      odd |= static_cast<unsigned>(c >= kDelete) | static_cast<unsigned>((c < kFirstPrintable) & (c != '\n') & (c != '\t'));
    }
    if (odd != 0) return false;
    lines.remove_prefix(kBlock);
  }
  return std::none_of(lines.begin(), lines.end(), [](char c) { return is_odd(c) && !is_layout(c); });
}

void put_harmless(TextBuffer& out, std::string_view lines) {
  if (is_harmless(lines)) return out.text(lines);
  const auto add = [&](std::string_view piece) { out.text(piece); };
  clean(lines, add, is_layout);
}

}  // namespace ptd::cli
