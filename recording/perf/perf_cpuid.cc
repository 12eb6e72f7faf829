// cpuid texts.
#include "recording/perf/perf_cpuid.h"

#include <charconv>
#include <string_view>

namespace ptd {
namespace {

bool take_number(std::string_view& text, char separator, int base, unsigned& value) {
  if (text.empty() || text.front() != separator) return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

bool parse_cpuid(const std::string& text, pt::CpuId& cpu) {
  constexpr std::string_view kVendor = "GenuineIntel";
  std::string_view rest(text);
  if (!rest.starts_with(kVendor)) return false;
  rest.remove_prefix(kVendor.size());
  if (rest.empty()) return false;
  const char separator = rest.front();
  if (separator != ',' && separator != '-') return false;
  const int base = separator == '-' ? 16 : 10;
  unsigned family = 0, model = 0, stepping = 0;
  if (!take_number(rest, separator, base, family) || !take_number(rest, separator, base, model)) return false;
  if (!rest.empty() && !take_number(rest, separator, base, stepping)) return false;
  if (family > 0xffff || model > 0xff || stepping > 0xff) return false;
  cpu = {static_cast<uint16_t>(family), static_cast<uint8_t>(model), static_cast<uint8_t>(stepping)};
  return true;
}

}  // namespace ptd
