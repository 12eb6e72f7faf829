// Address filters: see address_filter.h.
#include "capture/live/events/address_filter.h"

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "capture/live/events/pmu_terms.h"
#include "capture/live/events/symbol_places.h"
#include "image/base/system_error.h"

namespace ptd::live {
namespace {

Error usage(const std::string& message) { return {ErrorCode::bad_option, "--filter: " + message, 0}; }

std::string hex(uint64_t value) {
  char text[24];
  (void)std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

struct Range {
  uint64_t start = 0, size_bytes = 0;
};

Result<Range> resolve_range(const std::string& text, bool wants_size, const SymbolPlaces& names) {
  const size_t slash = text.find('/');
  const std::string start = trimmed(text.substr(0, slash)), end = slash == std::string::npos ? "" : trimmed(text.substr(slash + 1));
  Range range;
  if (const std::optional<uint64_t> number = parse_integer(start, 0)) {
    range.start = *number;
  } else {
    const Result<SymbolPlace> symbol = names.find(start);
    if (!symbol) return usage(symbol.error().message);
    range = {symbol->place, symbol->size_bytes};
  }
  if (!wants_size) return Range{range.start, 0};
  if (const std::optional<uint64_t> number = parse_integer(end, 0)) {
    range.size_bytes = *number;
  } else if (!end.empty()) {
    const Result<SymbolPlace> symbol = names.find(end);
    if (!symbol) return usage(symbol.error().message);
    if (symbol->place < range.start) return usage("'" + end + "' lies before '" + start + "'");
    range.size_bytes = symbol->place + symbol->size_bytes - range.start;
  }
  if (range.size_bytes == 0) return usage("'" + start + "' has no size: write " + start + "/SIZE");
  return range;
}

Result<std::string> resolve_one(const std::string& text, const std::string& kallsyms) {
  const size_t space = text.find_first_of(" \t"), at = text.find('@');
  const std::string kind = text.substr(0, space);
  const bool known = kind == "filter" || kind == "start" || kind == "stop" || kind == "tracestop";
  if (!known || space == std::string::npos) return usage("'" + text + "' must be filter, start, stop or tracestop, followed by a place");
  const std::string place = trimmed(text.substr(space, at == std::string::npos ? std::string::npos : at - space));
  std::string file = at == std::string::npos ? "" : trimmed(text.substr(at + 1));
  if (at != std::string::npos) {  // the kernel looks a file up by its whole path
    char whole[PATH_MAX];
    if (realpath(file.c_str(), whole) == nullptr) return system_error("--filter: " + file);
    file = whole;
    if (file.find_first_of(", ") != std::string::npos) return usage("the kernel cannot take a path with blanks or commas: " + file);
  }
  Result<SymbolPlaces> names = file.empty() ? Result<SymbolPlaces>(SymbolPlaces::of_kernel(kallsyms)) : SymbolPlaces::of_file(file);
  if (!names) return names.error();
  const bool wants_size = kind == "filter" || kind == "tracestop";
  const Result<Range> range = resolve_range(place, wants_size, *names);
  if (!range) return range.error();
  return kind + " " + hex(range->start) + (wants_size ? "/" + hex(range->size_bytes) : "") + (file.empty() ? "" : "@" + file);
}

}  // namespace

Result<std::string> resolve_filter(const std::string& text, const std::string& kallsyms, uint64_t ranges) {
  std::string filter;
  uint64_t count = 0;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    const Result<std::string> one = resolve_one(trimmed(part), kallsyms);
    if (!one) return one.error();
    filter += (filter.empty() ? "" : ",") + *one;
    ++count;
  }
  if (count == 0) return usage("it is empty");
  if (ranges != 0 && count > ranges) {
    return usage(std::to_string(count) + " places; this processor has registers for " + std::to_string(ranges) +
                 " (caps/num_address_ranges)");
  }
  return filter;
}

}  // namespace ptd::live
