// The words of --time: see time_words.h.
#include "cli/options/time_words.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>

#include "cli/options/options.h"

namespace ptd::cli {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

Error bad_window(std::string message) { return Error{ErrorCode::bad_time_window, std::move(message), 0}; }

bool bounded(Interval span) { return !span.empty() && span.first != kTimeMin && span.last != kTimeMax; }

// "14:03:05.25" or "2026-11-21 14:03:05" in local time.
Result<TimeNs> time_of_day(std::string_view text, const TimeScale& scale) {
  if (!scale.wall_offset_ns || scale.span.first == kTimeMin || scale.span.first == kTimeMax)
    return bad_window(
        fmt::format("--time: '{}' is a time of day, which the recording does not contain; 'perf record -k monotonic' records it", text));
  const std::string word(text.substr(0, text.find('.')));
  const std::time_t began = (static_cast<int64_t>(scale.span.first.value) + *scale.wall_offset_ns) / kSecond;
  std::tm day{};
  ::localtime_r(&began, &day);
  int year = 0, month = 0, used = 0;
  const bool dated = std::sscanf(word.c_str(), "%d-%d-%d%*1[ T]%d:%d:%d%n", &year, &month, &day.tm_mday, &day.tm_hour, &day.tm_min,
                                 &day.tm_sec, &used) == 6;
  if (dated) {
    day.tm_year = year - 1900;
    day.tm_mon = month - 1;
  } else if (std::sscanf(word.c_str(), "%d:%d:%d%n", &day.tm_hour, &day.tm_min, &day.tm_sec, &used) != 3) {
    used = -1;
  }
  const Error wrong = bad_window(fmt::format("--time: '{}' is not a time of day; for example 14:03:05.250", text));
  if (used != static_cast<int>(word.size())) return wrong;
  day.tm_isdst = -1;
  const int64_t seconds = std::mktime(&day);
  uint64_t ns = 0;
  if (word.size() < text.size()) {
    const Result<uint64_t> fraction = parse_seconds_ns("0" + std::string(text.substr(word.size())));
    if (!fraction) return wrong;
    ns = *fraction;
  }
  const int64_t moment = seconds * kSecond + static_cast<int64_t>(ns) - *scale.wall_offset_ns;
  return moment < 0 ? Result<TimeNs>(wrong) : Result<TimeNs>(TimeNs{static_cast<uint64_t>(moment)});
}

// Returns the number in "10%".
std::optional<double> percentage(std::string_view text) {
  double value = 0;
  if (!text.ends_with('%')) return std::nullopt;
  const std::string_view number = text.substr(0, text.size() - 1);
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), value);
  const bool is_number = status == std::errc{} && end == number.data() + number.size();
  return is_number && value >= 0 && value <= 100 ? std::optional(value) : std::nullopt;
}

bool is_percentage(std::string_view text, double value) { return percentage(text) == value; }

Result<TimeNs> percent(std::string_view text, const TimeScale& scale) {
  const std::optional<double> value = percentage(text);
  if (!value) return bad_window(fmt::format("--time: '{}' is not a percentage; for example 10%-20%", text));
  if (!bounded(scale.span)) return bad_window("--time: the recording has no times to take percentages of");
  const auto length = static_cast<double>(scale.span.last.value - scale.span.first.value);
  return TimeNs{scale.span.first.value + static_cast<uint64_t>(std::llround(length * *value / 100))};
}

// `after`: what "+5ms" and "+0.005" count from.
Result<TimeNs> moment(std::string_view text, const TimeScale& scale, TimeNs after) {
  if (text.starts_with('+')) {
    const std::string_view word = text.substr(1);
    const Result<uint64_t> length = word.ends_with('s') ? parse_duration_ns(word) : parse_seconds_ns(word);
    if (!length) return bad_window(fmt::format("--time: {}", length.error().message));
    if (after == kTimeMin) return bad_window("--time: the recording has no start time to count from");
    return TimeNs{after.value > kTimeMax.value - *length ? kTimeMax.value : after.value + *length};
  }
  if (text.ends_with('%')) return percent(text, scale);
  if (text.find(':') != std::string_view::npos) return time_of_day(text, scale);
  const Result<uint64_t> ns = parse_seconds_ns(text);
  if (!ns) return bad_window(fmt::format("--time: {}", ns.error().message));
  return TimeNs{*ns};
}

}  // namespace

Result<Interval> parse_time_words(std::string_view text, const TimeScale& scale) {
  const Error wrong = bad_window(fmt::format(
      "--time: '{}' is not A,B (either may be omitted); for example 17.9,18 or 17.9,+5ms or 10%-20% or 14:03:05,14:03:06", text));
  size_t comma = text.find(',');
  if (comma == std::string_view::npos && text.ends_with('%'))
    comma = text.find("%-") == std::string_view::npos ? comma : text.find("%-") + 1;
  if (comma == std::string_view::npos || text.size() == 1) return wrong;
  const bool several = text.find(',', comma + 1) != std::string_view::npos || text.substr(0, comma).find("%-") != std::string_view::npos;
  if (several)
    return bad_window(fmt::format("--time: '{}' has several ranges: give one ('ptdecode script' takes --time more than once)", text));
  const std::string_view first = text.substr(0, comma), last = text.substr(comma + 1);
  Interval range;
  const TimeNs start = scale.span.empty() ? kTimeMin : scale.span.first;  // the end may be unknown
  if (!first.empty()) {
    const Result<TimeNs> from = moment(first, scale, start);
    if (!from) return from.error();
    range.first = *from;
  }
  if (!last.empty()) {
    const Result<TimeNs> to = moment(last, scale, first.empty() ? start : range.first);
    if (!to) return to.error();
    range.last = *to;
  }
  // 0% and 100% mean no limit: flow without its own timestamp may be before the first timestamp or after the last one.
  if (is_percentage(first, 0)) range.first = kTimeMin;
  if (is_percentage(last, 100)) range.last = kTimeMax;
  if (range.empty()) return bad_window(fmt::format("--time: '{}' ends before it starts", text));
  return range;
}

}  // namespace ptd::cli
