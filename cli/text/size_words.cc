// Sizes and ages as people write them.
#include "cli/text/size_words.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <limits>

namespace ptd::cli {

namespace {

/// Parses a number and the letters after it; false if it is none.
bool split(std::string_view text, uint64_t& number, std::string_view& unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  unit = text.substr(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view option, std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  constexpr unsigned kShift = 10;
  uint64_t number = 0;
  std::string_view unit;
  const Error bad{ErrorCode::bad_option,
                  fmt::format("{}: '{}' is not a size: give bytes, or a number with K, M, G or T, as in 500M", option, text), 0};
  if (!split(text, number, unit)) return bad;
  if (unit.ends_with("iB")) unit.remove_suffix(2);
  if (unit.size() > 1 || (unit.size() == 1 && kUnits.find(unit.front()) == std::string_view::npos)) return bad;
  const unsigned shift = unit.empty() ? 0 : kShift * static_cast<unsigned>(kUnits.find(unit.front()) + 1);
  if (number > std::numeric_limits<uint64_t>::max() >> shift) return bad;
  return number << shift;
}

Result<int64_t> parse_age_s(std::string_view text) {
  constexpr int64_t kHour = 3600, kDay = 24 * kHour;
  uint64_t number = 0;
  std::string_view unit;
  const bool good = split(text, number, unit);
  const int64_t one = unit == "s"                   ? 1
                      : unit == "m"                 ? 60
                      : unit == "h"                 ? kHour
                      : unit == "d" || unit.empty() ? kDay
                      : unit == "w"                 ? 7 * kDay
                                                    : 0;
  if (!good || one == 0 || number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / (one == 0 ? 1 : one)))
    return Error{ErrorCode::bad_option, fmt::format("'{}' is not an age; for example 12h, 30d or 2w", text), 0};
  return static_cast<int64_t>(number) * one;
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string counted(uint64_t count, std::string_view word, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", word);
  return plural.empty() ? fmt::format("{} {}s", count, word) : fmt::format("{} {}", count, plural);
}

}  // namespace ptd::cli
