// SymbolPlaces: see symbol_places.h.
#include "capture/live/events/symbol_places.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "capture/live/events/pmu_terms.h"
#include "image/placed_name.h"

namespace ptd::live {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

std::optional<uint64_t> code_offset(const ElfFile& file, uint64_t address) {
  for (const ElfSegment& segment : file.segments()) {
    if (segment.executable && address >= segment.address && address - segment.address < segment.file_size_bytes)
      return segment.file_offset_bytes + (address - segment.address);
  }
  return std::nullopt;
}

Result<SymbolPlaces> SymbolPlaces::of_file(const std::string& path) {
  const Result<std::shared_ptr<const ElfFile>> file = ElfFile::open(path);
  if (!file) return file.error();
  return of_file(**file);
}

SymbolPlaces SymbolPlaces::of_file(const ElfFile& file) {
  SymbolPlaces places;
  SymbolPlaces old;  // names without their version, which mean it only if there is no newer one
  for (const ElfSymbol& symbol : file.read_symbols()) {
    const std::optional<uint64_t> offset = code_offset(file, symbol.address);
    if (!offset) continue;
    const SymbolPlace place{*offset, symbol.size_bytes};
    const std::string name = symbol.name.substr(0, symbol.name.size() - (symbol.name.ends_with(kResolverMark) ? kResolverMark.size() : 0));
    places.add(name, place);
    const size_t version = name.find('@');  // "free@@GLIBC_2.2.5" is the default version, "cfree@GLIBC_2.2.5" an old one
    if (version == std::string::npos) continue;
    (name.compare(version, 2, "@@") == 0 ? places : old).add(name.substr(0, version), place);
  }
  places.places_.merge(old.places_);  // keeps the names that have a newer version
  return places;
}

SymbolPlaces SymbolPlaces::of_kernel(const std::string& kallsyms) {
  SymbolPlaces places;
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
    places.add(order[i].second, {order[i].first, next < order.size() ? order[next].first - order[i].first : 0});
  }
  return places;
}

Result<SymbolPlace> SymbolPlaces::find(const std::string& text) const {
  const auto wrong = [](const std::string& message) { return Error{ErrorCode::bad_option, message, 0}; };
  const size_t hash = text.rfind('#');
  const std::optional<uint64_t> number = hash == std::string::npos ? std::nullopt : parse_integer(text.substr(hash + 1), 0);
  const bool chosen = number.has_value();
  const uint64_t nth = number.value_or(1);
  const std::string name = chosen ? trimmed(text.substr(0, hash)) : text;
  const auto found = places_.find(name);
  if (found == places_.end()) return Error{ErrorCode::no_such_function, "no symbol '" + name + "'", 0};
  const std::vector<SymbolPlace>& all = found->second;
  if (nth == 0 || nth > all.size()) return wrong("'" + name + "' occurs only " + std::to_string(all.size()) + " times");
  if (!chosen && all.size() > 1) return wrong("'" + name + "' occurs " + std::to_string(all.size()) + " times: write " + name + "#1 ...");
  return all[static_cast<size_t>(nth - 1)];
}

void SymbolPlaces::add(const std::string& name, const SymbolPlace& place) {
  std::vector<SymbolPlace>& all = places_[name];
  const bool known = std::any_of(all.begin(), all.end(), [&](const SymbolPlace& other) { return other.place == place.place; });
  if (!known) all.push_back(place);
}

}  // namespace ptd::live
