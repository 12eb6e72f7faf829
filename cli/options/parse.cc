// Parsers of option values, declared in options.h.
#include <fmt/format.h>

#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>

#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "recording/image/image_files.h"

namespace ptd::cli {

namespace {

/// The whole of `text` as a number; `base` 0: 0x hex or decimal.
bool to_number(std::string_view text, uint64_t& value, int base = 0) {
  if ((base == 0 || base == 16) && (text.starts_with("0x") || text.starts_with("0X"))) {
    text.remove_prefix(2);
    base = 16;
  }
  if (base == 0) base = 10;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && status == std::errc{} && end == text.data() + text.size();
}

/// Removes and returns the text before `separator`; all of it if there is none.
std::string_view cut(std::string_view& rest, char separator) {
  const size_t at = rest.find(separator);
  const std::string_view word = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return word;
}

}  // namespace

Result<std::pair<uint32_t, uint32_t>> parse_tsc_ctc(std::string_view text) {
  std::string_view rest = text;
  uint64_t n = 0, d = 0;
  const bool whole = to_number(cut(rest, '/'), n, 10) && to_number(rest, d, 10) && n != 0 && d != 0 && n <= UINT32_MAX && d <= UINT32_MAX;
  if (!whole) return bad_option(fmt::format("--tsc-ctc: '{}' is not N/D; for example 250/2", text));
  return std::pair(static_cast<uint32_t>(n), static_cast<uint32_t>(d));
}

Result<pt::CpuId> parse_cpu(std::string_view text) {
  const Error wrong = bad_option(fmt::format("--pt-cpu: '{}' is not FAMILY/MODEL[/STEPPING]; for example 6/94/3", text));
  std::string_view rest = text;
  uint64_t family = 0, model = 0, stepping = 0;
  if (!to_number(cut(rest, '/'), family) || !to_number(cut(rest, '/'), model)) return wrong;
  if (!rest.empty() && !to_number(rest, stepping)) return wrong;
  if (family > 0xffff || model > 0xff || stepping > 0xff || text.ends_with('/')) return wrong;
  return pt::CpuId{static_cast<uint16_t>(family), static_cast<uint8_t>(model), static_cast<uint8_t>(stepping)};
}

Result<AssumedMapping> parse_map(std::string_view text) {
  const Error wrong = bad_option(
      fmt::format("--map: '{}' is not PID:FILE[,off=N][,size=N]@ADDR; for example 812:/usr/bin/db,off=0x1000@55d0c0e01000", text));
  std::string_view rest = text;
  uint64_t pid = 0;
  if (!to_number(cut(rest, ':'), pid, 10) || pid == 0 || pid > 0x7fffffff) return wrong;
  const Result<RawImage> image = parse_image(rest);
  if (!image || !image->load_address) return wrong;
  return AssumedMapping{static_cast<int32_t>(pid), image->path, image->file_offset_bytes, image->size_bytes, *image->load_address};
}

Result<DropPoke> parse_drop_poke(std::string_view text) {
  std::string_view rest = text;
  uint64_t every = 0, seed = 0;
  const bool ok = to_number(cut(rest, ','), every) && (rest.empty() || to_number(rest, seed));
  if (!ok || every == 0 || every > 0xffffffffU || seed > 0xffffffffU) {
    return bad_option(fmt::format("--drop-poke: '{}' is not N[,SEED]; for example 10,3", text));
  }
  return DropPoke{static_cast<uint32_t>(every), static_cast<uint32_t>(seed)};
}

namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

/// Reads a number with up to nine decimals and one of the units; without one, its unit is 1. Nothing if it is not such a number.
std::optional<uint64_t> parse_amount(std::string_view number, std::initializer_list<Unit> units) {
  uint64_t factor = 1;
  for (const Unit& unit : units) {
    if (!number.ends_with(unit.name)) continue;
    factor = unit.factor;
    number.remove_suffix(unit.name.size());
    break;
  }
  std::string_view fraction = number;
  uint64_t value = 0, rest = 0, scale = 1;
  const std::string_view whole = cut(fraction, '.');
  if (!to_number(whole, value, 10) || fraction.size() > 9 || number.ends_with('.')) return {};
  if (!fraction.empty() && !to_number(fraction, rest, 10)) return {};
  for (size_t digit = 0; digit < fraction.size(); ++digit) scale *= 10;
  if (__builtin_mul_overflow(value, factor, &value) || __builtin_add_overflow(value, rest * factor / scale, &value)) return {};
  return value;
}

}  // namespace

Result<uint64_t> parse_duration_ns(std::string_view text) {
  const std::optional<uint64_t> ns = parse_amount(text, {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}});
  if (!ns) return bad_option(fmt::format("'{}' is not a duration; for example 50us, 1.5ms, 2000ns", text));
  if (!text.ends_with('s') && text.find_first_not_of("0.") != std::string_view::npos)
    return bad_option(fmt::format("'{0}' has no unit: give ns, us, ms or s, as in {0}us", text));
  return *ns;
}

Result<uint64_t> parse_frequency_hz(std::string_view text) {
  constexpr uint64_t kMostHz = 1'000'000'000'000;
  const std::optional<uint64_t> hz = parse_amount(text, {{"kHz", 1'000}, {"MHz", 1'000'000}, {"GHz", 1'000'000'000}, {"Hz", 1}});
  if (!hz || *hz == 0 || *hz > kMostHz) return bad_option(fmt::format("'{}' is not a frequency; for example 2.4GHz, 24MHz, 1000000", text));
  return *hz;
}

Result<uint64_t> parse_seconds_ns(std::string_view text) {
  const Error wrong = bad_option(fmt::format("'{}' is not a time in seconds; for example 17.865267613", text));
  std::string_view fraction = text;
  uint64_t seconds = 0, ns = 0;
  const std::string_view whole = cut(fraction, '.');
  if (!to_number(whole, seconds, 10) || fraction.size() > 9) return wrong;
  if (!fraction.empty()) {
    if (!to_number(fraction, ns, 10)) return wrong;
    for (size_t digit = fraction.size(); digit < 9; ++digit) ns *= 10;
  }
  if (__builtin_mul_overflow(seconds, uint64_t{1'000'000'000}, &seconds) || __builtin_add_overflow(seconds, ns, &seconds)) return wrong;
  return seconds;
}

Result<Interval> parse_time_range(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.size() == 1) {
    return bad_option(fmt::format("--time: '{}' is not A,B in seconds (either may be omitted); for example 17.9,18", text));
  }
  Interval range;
  for (const bool first : {true, false}) {
    const std::string_view word = first ? text.substr(0, comma) : text.substr(comma + 1);
    if (word.empty()) continue;
    const Result<uint64_t> ns = parse_seconds_ns(word);
    if (!ns) return bad_option(fmt::format("--time: {}", ns.error().message));
    (first ? range.first : range.last) = TimeNs{*ns};
  }
  if (range.empty()) return bad_option(fmt::format("--time: '{}' ends before it starts", text));
  return range;
}

Result<Ip> parse_address(std::string_view text) {
  uint64_t value = 0;
  if (!to_number(text, value, 16)) return bad_option(fmt::format("'{}' is not a hexadecimal address", text));
  return Ip{value};
}

Result<std::vector<int32_t>> parse_number_list(std::string_view option, std::string_view text) {
  const Error wrong = bad_option(fmt::format("{}: '{}' is not a list of numbers; for example 0 or 1,3-5", option, text));
  std::vector<int32_t> numbers;
  std::string_view rest = text;
  do {
    std::string_view last = cut(rest, ',');
    const bool range = last.find('-') != std::string_view::npos;
    const std::string_view first = cut(last, '-');
    uint64_t from = 0, to = 0;
    if (!to_number(first, from, 10) || from > std::numeric_limits<int32_t>::max()) return wrong;
    to = from;
    if (range && !to_number(last, to, 10)) return wrong;
    if (to < from || to - from >= 65536 || to > std::numeric_limits<int32_t>::max() || numbers.size() + (to - from) >= 65536) return wrong;
    for (uint64_t number = from; number <= to; ++number) numbers.push_back(static_cast<int32_t>(number));
  } while (!rest.empty());
  return numbers;
}

}  // namespace ptd::cli
