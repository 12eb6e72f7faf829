// The --itrace option: see itrace.h.
#include "cli/options/itrace.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/options/exit_status.h"

namespace ptd::cli {

namespace {

/// Alternatives to letters of perf that this program does not support.
const char* instead_of(char letter) {
  switch (letter) {
    case 'd':
      return "a debug log; use 'ptdecode packets' for the packets and 'ptdecode stat' for the counts";
    case 'q':
      return "quick, inexact decoding; use 'ptdecode packets', which needs no code";
    case 's':
      return "skipping the first events; use --time A,B";
    case 'y':
      return "cycle samples; use --itrace=i with a period in instructions or time";
    case 'A':
      return "approximate cycle counts";
    case 'Z':
      return "preferring timestamps; lines are always in time order";
    case 'f':
    case 'm':
    case 't':
    case 'a':
    case 'M':
      return "cache, TLB and memory events of Arm SPE, which Intel PT does not have";
    default:
      return nullptr;
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Reads the optional number after a letter; false if it does not fit 64 bits.
bool take_number(std::string_view& rest, uint64_t& value, bool& given) {
  size_t digits = 0;
  while (digits < rest.size() && is_digit(rest[digits])) ++digits;
  given = digits != 0;
  if (!given) return true;
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + digits, value);
  (void)end;
  rest.remove_prefix(digits);
  return status == std::errc{};
}

bool scale(uint64_t& value, uint64_t factor) { return !__builtin_mul_overflow(value, factor, &value); }

/// The number and unit after 'i': i, t, ns, us, ms.
Status take_period(std::string_view& rest, ItraceOptions& options) {
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  uint64_t value = 0;
  bool given = false;
  if (!take_number(rest, value, given)) return bad_option("--itrace: the period is too large");
  if (!given) return {};
  options.period = value;
  options.unit = PeriodUnit::ns;
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const auto starts = [&](std::string_view unit) {
    if (!rest.starts_with(unit)) return false;
    rest.remove_prefix(unit.size());
    return true;
  };
  uint64_t factor = 1;
  if (starts("i")) {
    options.unit = PeriodUnit::instructions;
  } else if (starts("ms")) {
    factor = 1'000'000;
  } else if (starts("us")) {
    factor = 1'000;
  } else if (starts("ns")) {
    factor = 1;
  } else if (starts("t")) {
    options.unit = PeriodUnit::ticks;
  } else if (!rest.empty()) {
    return bad_option(
        fmt::format("--itrace: '{}' is not a unit for a period; use i (instructions), t (ticks), ns, us or ms", rest.front()));
  }
  if (!scale(options.period, factor)) return bad_option("--itrace: the period is too large");
  return {};
}

/// The flags after 'e': +o, -o (overflows), +l, -l (lost data).
Status take_error_flags(std::string_view& rest, ItraceOptions& options) {
  while (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) {
    const bool plus = rest.front() == '+';
    rest.remove_prefix(1);
    bool any = false;
    while (!rest.empty() && (rest.front() == 'o' || rest.front() == 'l')) {
      (rest.front() == 'o' ? options.overflow_errors : options.lost_errors) = plus;
      rest.remove_prefix(1);
      any = true;
    }
    if (!any) return bad_option("--itrace: 'e' may be followed by +o or -o (overflows) and +l or -l (lost data)");
  }
  return {};
}

Status take_ignored_number(char letter, std::string_view& rest, ItraceOptions& options) {
  uint64_t ignored = 0;
  bool given = false;
  if (!take_number(rest, ignored, given)) return bad_option(fmt::format("--itrace: the number after '{}' is too large", letter));
  const bool chain = letter == 'g' || letter == 'G';
  options.notes.push_back(fmt::format("--itrace: '{}' ({}) has no effect; {}", letter, chain ? "call chains" : "last-branch stacks",
                                      chain ? "--call-trace shows the calls" : "--itrace=b lists every branch"));
  return {};
}

Status take_letter(char letter, std::string_view& rest, ItraceOptions& options) {
  switch (letter) {
    case 'i':
      options.instructions = true;
      return take_period(rest, options);
    case 'b':
      options.branches = true;
      return {};
    case 'c':
      options.calls = true;
      return {};
    case 'r':
      options.returns = true;
      return {};
    case 'e':
      options.errors = true;
      return take_error_flags(rest, options);
    case 'x':
      options.transactions = true;
      return {};
    case 'w':
      options.ptwrite = true;
      return {};
    case 'p':
      options.power = true;
      return {};
    case 'I':
      options.interrupts = true;
      return {};
    case 'o':
      options.pebs = true;
      return {};
    case 'g':
    case 'G':
    case 'l':
    case 'L':
      return take_ignored_number(letter, rest, options);
    case ' ':
    case ',':
      return {};
    default:
      break;
  }
  if (const char* instead = instead_of(letter)) return bad_option(fmt::format("--itrace: '{}' is not supported: {}", letter, instead));
  return bad_option(fmt::format("--itrace: unknown letter '{}'; known: i b c r e x w p I o (and g G l L without effect)", letter));
}

}  // namespace

ItraceOptions default_itrace() {
  ItraceOptions options;
  options.calls = options.errors = options.transactions = options.ptwrite = options.power = options.interrupts = options.pebs = true;
  return options;
}

Result<ItraceOptions> parse_itrace(std::string_view text) {
  ItraceOptions options;
  std::string_view rest = text.empty() ? std::string_view("ibxwpIoe") : text;
  while (!rest.empty()) {
    const char letter = rest.front();
    rest.remove_prefix(1);
    if (Status status = take_letter(letter, rest, options); !status) return status.error();
  }
  if (options.calls || options.returns) options.branches = false;  // as perf: c and r select some of the branches
  return options;
}

}  // namespace ptd::cli
