// Address filters: see address_filter.h.
#include "capture/live/events/address_filter.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "capture/live/events/pmu_terms.h"
#include "image/base/system_error.h"
#include "image/source/elf_file.h"

namespace ptd::live {
namespace {

struct Symbol {
  uint64_t address = 0, size_bytes = 0;
};

Error usage(const std::string& message) { return {ErrorCode::bad_option, "--filter: " + message, 0}; }

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

std::string hex(uint64_t value) {
  char text[24];
  (void)std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

/// The values of names: offsets for one file, addresses for the kernel.
class Names {
 public:
  static Result<Names> of_file(const std::string& path) {
    Result<std::shared_ptr<const ElfFile>> file = ElfFile::open(path);
    if (!file) return file.error();
    Names names;
    for (const ElfSymbol& symbol : (*file)->read_symbols()) {
      for (const ElfSegment& segment : (*file)->segments()) {
        const uint64_t within = symbol.address - segment.address;
        if (!segment.executable || symbol.address < segment.address || within >= segment.file_size_bytes) continue;
        names.add(symbol.name, {segment.file_offset_bytes + within, symbol.size_bytes});
        break;
      }
    }
    return names;
  }
  static Names of_kernel(const std::string& kallsyms) {
    Names names;
    std::vector<std::pair<uint64_t, std::string>> order;
    std::istringstream lines(kallsyms);
    std::string line;
    while (std::getline(lines, line)) {
      unsigned long long address = 0;
      char type = 0, name[512] = "";
      if (std::sscanf(line.c_str(), "%llx %c %511s", &address, &type, name) != 3 || address == 0) continue;
      if (std::strchr("tTwW", type) != nullptr) order.emplace_back(address, name);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) {  // no sizes there: up to what comes next
      size_t next = i + 1;
      while (next < order.size() && order[next].first == order[i].first) ++next;
      names.add(order[i].second, {order[i].first, next < order.size() ? order[next].first - order[i].first : 0});
    }
    return names;
  }

  /// NAME or NAME#N.
  [[nodiscard]] Result<Symbol> find(const std::string& text) const {
    const size_t hash = text.rfind('#');
    const std::optional<uint64_t> number = hash == std::string::npos ? std::nullopt : parse_integer(text.substr(hash + 1), 0);
    const bool chosen = number.has_value();
    const uint64_t nth = number.value_or(1);
    const std::string name = chosen ? trimmed(text.substr(0, hash)) : text;
    const auto found = symbols_.find(name);
    if (found == symbols_.end()) return usage("no symbol '" + name + "'");
    const std::vector<Symbol>& all = found->second;
    if (nth == 0 || nth > all.size()) return usage("'" + name + "' occurs only " + std::to_string(all.size()) + " times");
    if (!chosen && all.size() > 1)
      return usage("'" + name + "' occurs " + std::to_string(all.size()) + " times: write " + name + "#1 ...");
    return all[static_cast<size_t>(nth - 1)];
  }

 private:
  void add(const std::string& name, const Symbol& symbol) {
    std::vector<Symbol>& all = symbols_[name];
    const bool known = std::any_of(all.begin(), all.end(), [&](const Symbol& other) { return other.address == symbol.address; });
    if (!known) all.push_back(symbol);
  }
  std::map<std::string, std::vector<Symbol>> symbols_;
};

struct Range {
  uint64_t start = 0, size_bytes = 0;
};

Result<Range> resolve_range(const std::string& text, bool wants_size, const Names& names) {
  const size_t slash = text.find('/');
  const std::string start = trimmed(text.substr(0, slash)), end = slash == std::string::npos ? "" : trimmed(text.substr(slash + 1));
  Range range;
  if (const std::optional<uint64_t> number = parse_integer(start, 0)) {
    range.start = *number;
  } else {
    const Result<Symbol> symbol = names.find(start);
    if (!symbol) return symbol.error();
    range = {symbol->address, symbol->size_bytes};
  }
  if (!wants_size) return Range{range.start, 0};
  if (const std::optional<uint64_t> number = parse_integer(end, 0)) {
    range.size_bytes = *number;
  } else if (!end.empty()) {
    const Result<Symbol> symbol = names.find(end);
    if (!symbol) return symbol.error();
    if (symbol->address < range.start) return usage("'" + end + "' lies before '" + start + "'");
    range.size_bytes = symbol->address + symbol->size_bytes - range.start;
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
  Result<Names> names = file.empty() ? Result<Names>(Names::of_kernel(kallsyms)) : Names::of_file(file);
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
