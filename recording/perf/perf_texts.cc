// Texts of perf: address filters, the processor and listed build ids.
#include "recording/perf/perf_texts.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "image/source/build_id.h"

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

std::vector<pt::IpRange> filter_ranges(const std::vector<PerfFilter>& filters, const UserMappings& mappings) {
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

namespace {

// What the records and the header say of a path.
struct ListedPath {
  SharedText build_id;  // "": several were listed
  FileId latest = {};   // the file of the last mapping
};

bool is_same_file(const FileId& a, const FileId& b) {
  return std::tie(a.inode, a.generation, a.maj, a.min) == std::tie(b.inode, b.generation, b.maj, b.min);
}

std::string number_of(const FileId& file) { return std::to_string(file.inode); }

// Returns why a mapping of the path may be of another file than the one with the listed build id, a sentence fragment; "" if nothing says
// so. Clears the build id if it is known to be of another file.
std::string doubt_listed_id(const ListedPath& listed, UserMapping& mapping, const std::vector<std::string>* roots, ImageBuild& image) {
  if (mapping.file_id.inode == 0) return {};
  const MappedPath wanted = wanted_of(mapping, roots);
  const CodeSource::ListedId checked = image.source.check_listed_id(wanted);
  const bool is_older = listed.latest.inode != 0 && !is_same_file(mapping.file_id, listed.latest);
  const bool is_doubted = checked == CodeSource::ListedId::doubtful || (checked == CodeSource::ListedId::unknown && is_older);
  const auto& saved = image.source.options().saved;
  if (checked == CodeSource::ListedId::other || (is_doubted && saved && saved->saved_at_ns(wanted) != 0)) mapping.build_id = {};
  if (!is_doubted || mapping.build_id.empty()) return {};
  if (is_older) return "another file (inode " + number_of(listed.latest) + ") was mapped under this path later";
  return "the file that is there now has this build id and another inode";
}

void report_listed_id(const UserMapping& mapping, std::string what, ImageBuild& image) {
  Finding finding;
  finding.kind = FindingKind::file_changed;
  finding.space = mapping.space;
  finding.ip = mapping.ip;
  finding.time = {mapping.from, mapping.from};
  finding.what = std::move(what);
  image.builder.add_finding(std::move(finding));
}

}  // namespace

void use_listed_build_ids(const std::vector<perfio::BuildIdEntry>& entries, UserMappings& mappings, const RootsOf& roots_of,
                          ImageBuild& image) {
  std::unordered_map<std::string, ListedPath> paths;
  for (const perfio::BuildIdEntry& entry : entries) {
    std::string build_id = normalize_build_id(perfio::build_id_hex(entry.build_id));
    const auto [known, is_new] = paths.try_emplace(entry.path);
    if (!is_new && known->second.build_id != build_id) build_id.clear();
    known->second.build_id = std::move(build_id);
  }
  std::vector<std::pair<UserMapping*, ListedPath*>> without_id;
  for (UserMapping& mapping : mappings) {
    const auto known = paths.find(mapping.path);
    if (!mapping.label.empty() || !mapping.build_id.empty() || known == paths.end()) continue;
    without_id.emplace_back(&mapping, &known->second);
    if (mapping.file_id.inode != 0) known->second.latest = mapping.file_id;
  }
  std::unordered_map<std::string_view, bool> reported;  // paths
  for (const auto& [mapping, listed] : without_id) {
    mapping->build_id = listed->build_id;
    std::string what = mapping->path;
    if (listed->build_id.empty()) {
      what += ": the recording lists several build ids for this path, and none of them is used";
    } else if (const std::string doubt = doubt_listed_id(*listed, *mapping, roots_of(mapping->pid), image); !doubt.empty()) {
      mapping->assumed = true;
      what += ": the recording lists the build id of the file that was there at its end, and the mapped one (inode " +
              number_of(mapping->file_id) + ") may be another: " + doubt + "; used and marked assumed";
    } else {
      continue;
    }
    if (reported.try_emplace(mapping->path, true).second) report_listed_id(*mapping, std::move(what), image);
  }
}

}  // namespace ptd
