// The cpuid text of perf.data headers. Private to recording.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "ptdecode/pt/config.h"

namespace ptd {
/// Of parse_cpuid().
inline bool take_cpuid_number(std::string_view& text, char separator, int base, unsigned& value) {
  if (text.empty() || text.front() != separator) return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

/// Reads "GenuineIntel,6,78,3" (decimal; feature CPUID) and "GenuineIntel-6-4E-3" (hexadecimal model; perf's map files). False, and `cpu`
/// is left alone, for other vendors and forms.
inline bool parse_cpuid(const std::string& text, pt::CpuId& cpu) {
  constexpr std::string_view kVendor = "GenuineIntel";
  std::string_view rest(text);
  if (!rest.starts_with(kVendor)) return false;
  rest.remove_prefix(kVendor.size());
  if (rest.empty()) return false;
  const char separator = rest.front();
  if (separator != ',' && separator != '-') return false;
  const int base = separator == '-' ? 16 : 10;
  unsigned family = 0, model = 0, stepping = 0;
  if (!take_cpuid_number(rest, separator, base, family) || !take_cpuid_number(rest, separator, base, model)) return false;
  if (!rest.empty() && !take_cpuid_number(rest, separator, base, stepping)) return false;
  if (family > 0xffff || model > 0xff || stepping > 0xff) return false;
  cpu = {static_cast<uint16_t>(family), static_cast<uint8_t>(model), static_cast<uint8_t>(stepping)};
  return true;
}

}  // namespace ptd
