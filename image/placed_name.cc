// Names with a source file: see placed_name.h.
#include "image/placed_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace ptd {
namespace {

constexpr size_t kMaxFileName = 64;  // of a place

bool is_file_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '+';
}

bool is_hex(std::string_view text) {
  return text.size() > 2 && text.starts_with("0x") && text.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

}  // namespace

bool is_file_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxFileName && text.front() != '.' && text.find('.') != std::string_view::npos &&
         text.back() != '.' && std::all_of(text.begin(), text.end(), is_file_letter);
}

std::string_view whole_function(std::string_view name) {
  constexpr std::string_view kClone = " [clone ", kParts[] = {".cold", ".__part", ".eh"};
  const bool in_brackets = name.ends_with(']');
  const std::string_view marked = name.substr(0, name.find_last_not_of(".0123456789", name.size() - (in_brackets ? 2 : 1)) + 1);
  for (const std::string_view part : kParts) {
    if (!marked.ends_with(part)) continue;
    if (part == ".eh" && !in_brackets && !name.starts_with("_Z")) return name;  // main.eh of Go is a function
    const std::string_view whole = marked.substr(0, marked.size() - part.size());
    if (whole.empty() || whole.ends_with(kClone) != in_brackets) return name;
    return whole.substr(0, whole.size() - (in_brackets ? kClone.size() : 0));
  }
  return name;
}

std::string hex_text(uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

std::string placed_name(std::string_view place, std::string_view name) {
  return place.empty() ? std::string(name) : std::string(place) + ":" + std::string(name);
}

std::string_view without_address(std::string_view name) {
  const size_t place = place_length(name);
  return place != 0 && is_hex(name.substr(0, place - 1)) ? name.substr(place) : name;
}

size_t place_length(std::string_view name) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos || name.substr(colon).starts_with("::")) return 0;
  const std::string_view place = name.substr(0, colon);
  return is_file_name(place) || is_hex(place) ? colon + 1 : 0;
}

}  // namespace ptd
