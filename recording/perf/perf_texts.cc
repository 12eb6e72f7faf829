// Texts of perf: address filters, and the processor.
#include "recording/perf/perf_texts.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace ptd {
namespace {

constexpr size_t kMaxFilters = 64;  // hardware has four
constexpr std::string_view kSeparators = ", \t\n";

bool take_number(std::string_view& text, uint64_t& value) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
  const std::string_view word = text.substr(0, std::min(text.find_first_of(kSeparators), text.size()));
  text.remove_prefix(word.size());
  return word;
}

// A number of a cpuid text, with the separator before it.
bool take_part(std::string_view& text, char separator, int base, unsigned& value) {
  if (text.empty() || text.front() != separator) return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

std::vector<PerfFilter> parse_perf_filters(const std::string& text) {
  std::vector<PerfFilter> filters;
  std::string_view rest(text);
  while (filters.size() < kMaxFilters) {
    const std::string_view verb = take_word(rest);
    std::string_view term = take_word(rest);
    if (verb.empty() || term.empty()) break;
    PerfFilter filter;
    if (!take_number(term, filter.start)) break;
    if (term.starts_with('/')) {
      term.remove_prefix(1);
      if (!take_number(term, filter.size_bytes)) break;
    }
    if (term.starts_with('@')) filter.file = term.substr(1);
    if (verb == "filter" && filter.size_bytes > 0) filters.push_back(std::move(filter));
  }
  return filters;
}

std::vector<pt::IpRange> filter_ranges(const std::vector<PerfFilter>& filters, const std::vector<UserMapping>& mappings) {
  std::vector<pt::IpRange> ranges;
  for (const PerfFilter& filter : filters) {
    const uint64_t last = filter.size_bytes - 1;
    if (filter.file.empty()) {
      if (last > ~filter.start) return {};
      ranges.push_back({Ip{filter.start}, Ip{filter.start + last}});
      continue;
    }
    bool placed = false;
    for (const UserMapping& mapping : mappings) {
      if (mapping.path != filter.file || !mapping.label.empty() || filter.start < mapping.file_offset_bytes) continue;
      const uint64_t offset = filter.start - mapping.file_offset_bytes;
      if (offset >= mapping.size_bytes || last > ~mapping.ip.value - offset) continue;
      ranges.push_back({mapping.ip + offset, mapping.ip + (offset + last)});
      placed = true;
    }
    if (!placed) return {};
  }
  return ranges;
}

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
  if (!take_part(rest, separator, base, family) || !take_part(rest, separator, base, model)) return false;
  if (!rest.empty() && !take_part(rest, separator, base, stepping)) return false;
  if (family > 0xffff || model > 0xff || stepping > 0xff) return false;
  cpu = {static_cast<uint16_t>(family), static_cast<uint8_t>(model), static_cast<uint8_t>(stepping)};
  return true;
}

}  // namespace ptd
