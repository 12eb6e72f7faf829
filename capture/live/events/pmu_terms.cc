// Words of PMU events: see pmu_terms.h.
#include "capture/live/events/pmu_terms.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/start_scan.h"

namespace ptd::live {
namespace {

namespace fs = std::filesystem;
using perfio::EventSpec;

Error bad_event(const std::string& message) { return {ErrorCode::bad_option, message, 0}; }

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t& word_of(EventSpec& spec, uint32_t word) {
  uint64_t* const words[] = {&spec.config, &spec.config1, &spec.config2, &spec.config3};
  return *words[word];
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The numbers whose bits are set.
std::string bits_text(uint64_t bits) {
  std::vector<std::string> words;
  for (unsigned i = 0; i < 64; ++i) {
    if ((bits >> i & 1) != 0) words.push_back(std::to_string(i));
  }
  return words.empty() ? "none" : joined(words);
}

uint64_t cap(const Pmu& pmu, const std::string& name) {
  const auto found = pmu.caps.find(name);
  return found == pmu.caps.end() ? 0 : found->second;
}

/// What Intel PT can do only with a capability bit.
struct Need {
  const char* term;
  const char* cap;
  bool of_values;  // the capability is a map of values, else a yes
};
constexpr Need kNeeds[] = {{"mtc", "mtc", false},
                           {"mtc_period", "mtc_periods", true},
                           {"cyc", "psb_cyc", false},
                           {"cyc_thresh", "cycle_thresholds", true},
                           {"psb_period", "psb_periods", true},
                           {"ptw", "ptwrite", false},
                           {"fup_on_ptw", "ptwrite", false},
                           {"pwr_evt", "power_event_trace", false},
                           {"event", "event_trace", false},
                           {"notnt", "tnt_disable", false}};

Status check_pt(const Pmu& pmu, const EventSpec& spec, const std::vector<std::string>& typed) {
  for (const Need& need : kNeeds) {
    const uint64_t value = pmu.get(spec, need.term), allowed = cap(pmu, need.cap);
    const bool given = std::find(typed.begin(), typed.end(), need.term) != typed.end();
    if (!given || (value == 0 && !need.of_values)) continue;
    if (!need.of_values && allowed == 0) {
      return bad_event("intel_pt: this processor does not support '" + std::string(need.term) + "' (caps/" + need.cap + " is 0)");
    }
    if (need.of_values && value != 0 && (value >= 64 || (allowed >> value & 1) == 0)) {
      return bad_event("intel_pt: " + std::string(need.term) + "=" + std::to_string(value) +
                       " is not supported by this processor, which supports: " + bits_text(allowed) + " (caps/" + need.cap + ")");
    }
  }
  const auto without = [&](const char* of, const char* what) { return pmu.get(spec, of) != 0 && pmu.get(spec, what) == 0; };
  if (without("mtc_period", "mtc") && std::find(typed.begin(), typed.end(), "mtc_period") != typed.end()) {
    return bad_event("intel_pt: mtc_period has no effect with mtc=0");
  }
  if (without("cyc_thresh", "cyc")) return bad_event("intel_pt: cyc_thresh needs cyc");
  if (without("fup_on_ptw", "ptw")) return bad_event("intel_pt: fup_on_ptw needs ptw");
  return {};
}

/// What perf turns on by default (tools/perf arch/x86/util/intel-pt.c, intel_pt_default_config()).
void pt_defaults(const Pmu& pmu, EventSpec& spec) {
  constexpr uint64_t kUsualPeriod = 3;
  for (const char* term : {"tsc", "pt", "branch"}) (void)pmu.set(spec, term, 1);
  const uint64_t periods = cap(pmu, "mtc_periods");
  if (cap(pmu, "mtc") == 0 || periods == 0) return;
  const uint64_t from_usual = periods >> kUsualPeriod << kUsualPeriod;
  (void)pmu.set(spec, "mtc", 1);
  (void)pmu.set(spec, "mtc_period", static_cast<uint64_t>(std::countr_zero(from_usual != 0 ? from_usual : periods)));
}

Status set_term(const Pmu& pmu, EventSpec& spec, const std::string& term, std::vector<std::string>& typed) {
  if (term.starts_with("@")) {
    const auto sink = pmu.sinks.find(term.substr(1));
    std::vector<std::string> names;
    for (const auto& [name, id] : pmu.sinks) names.push_back(name);
    if (sink == pmu.sinks.end()) return bad_event(pmu.name + ": no sink '" + term.substr(1) + "'; available: " + joined(names));
    spec.config2 = (spec.config2 & ~uint64_t{0xffffffff}) | sink->second;
    return {};
  }
  const size_t equals = term.find('=');
  const std::string name = term.substr(0, equals);
  const std::optional<uint64_t> value = equals == std::string::npos ? 1 : parse_integer(term.substr(equals + 1), 0);
  if (!value) return bad_event(pmu.name + ": '" + term + "' is not a number");
  for (uint32_t word = 0; word < 4; ++word) {
    if (name != (word == 0 ? "config" : "config" + std::to_string(word))) continue;
    word_of(spec, word) = *value;
    return {};
  }
  if (!pmu.has(name)) {
    std::vector<std::string> names;
    for (const auto& [known, format] : pmu.formats) names.push_back(known);
    return bad_event(pmu.name + ": no term '" + name + "' on this machine; there are: " + joined(names));
  }
  typed.push_back(name);
  if (pmu.set(spec, name, *value)) return {};
  return bad_event(pmu.name + ": " + name + " has " + std::to_string(pmu.formats.at(name).bits.size()) +
                   " bits: " + std::to_string(*value) + " is too large");
}

std::string traceable(const std::string& devices) {
  std::vector<std::string> names;
  for (const std::string& name : files_of(devices)) {
    if (name == "intel_pt" || name == "intel_bts" || name == "cs_etm" || name.starts_with("arm_spe") || name.starts_with("hisi_ptt"))
      names.push_back(name);
  }
  return names.empty() ? "the kernel found no tracing hardware" : "it has: " + joined(names);
}

}  // namespace

std::optional<uint64_t> parse_integer(const std::string& text, int base) {
  if (text.empty() || text[0] == '-' || text[0] == '+' || text[0] == ' ') return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text.c_str(), &end, base);
  if (*end != '\0' || errno != 0) return std::nullopt;
  return value;
}

Status set_levels(EventSpec& spec, const std::string& levels) {
  if (levels.empty()) return {};
  spec.exclude_user = spec.exclude_kernel = spec.exclude_hv = true;
  for (const char level : levels) {
    if (level == 'u') spec.exclude_user = false;
    if (level == 'k') spec.exclude_kernel = false;
    if (level == 'h') spec.exclude_hv = false;
    if (std::strchr("ukh", level) == nullptr) return bad_event(std::string("an event's levels are u, k and h, not '") + level + "'");
  }
  return {};
}

TermFormat parse_term_format(const std::string& text) {
  TermFormat format;
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  if (colon == std::string::npos || !word.starts_with("config") || word.size() > 7) return {};
  if (word.size() == 7) {
    if (word[6] < '1' || word[6] > '3') return {};
    format.word = static_cast<uint32_t>(word[6] - '0');
  }
  for (const int32_t bit : parse_cpu_list(text.substr(colon + 1))) {  // the same form: "0-3,7"
    if (bit >= 64) return {};
    format.bits.push_back(static_cast<uint32_t>(bit));
  }
  return format;
}

bool Pmu::set(EventSpec& spec, const std::string& term, uint64_t value) const {
  const auto found = formats.find(term);
  if (found == formats.end()) return false;
  const TermFormat& format = found->second;
  if (format.bits.size() < 64 && (value >> format.bits.size()) != 0) return false;
  uint64_t& word = word_of(spec, format.word);
  for (size_t i = 0; i < format.bits.size(); ++i) {
    const uint64_t bit = 1ULL << format.bits[i];
    word = (value >> i & 1) != 0 ? word | bit : word & ~bit;
  }
  return true;
}

uint64_t Pmu::get(const EventSpec& spec, const std::string& term) const {
  const auto found = formats.find(term);
  if (found == formats.end()) return 0;
  EventSpec copy = spec;
  const uint64_t word = word_of(copy, found->second.word);
  uint64_t value = 0;
  for (size_t i = 0; i < found->second.bits.size() && i < 64; ++i) value |= (word >> found->second.bits[i] & 1) << i;
  return value;
}

uint64_t Pmu::mask_of(const std::string& term) const {
  const auto found = formats.find(term);
  if (found == formats.end() || found->second.word != 0) return 0;
  uint64_t mask = 0;
  for (const uint32_t bit : found->second.bits) mask |= 1ULL << bit;
  return mask;
}

Result<Pmu> read_pmu(const std::string& name, const std::string& sysfs) {
  const std::string devices = sysfs + "/bus/event_source/devices";
  const bool plain =
      !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == std::string::npos;
  Pmu pmu;
  pmu.name = name;
  pmu.folder = devices + "/" + name;
  const std::optional<uint64_t> type = plain && name[0] != '.' ? parse_integer(first_line(pmu.folder + "/type"), 10) : std::nullopt;
  if (!type) return Error{ErrorCode::no_hardware, "this machine has no '" + name + "' (" + devices + "): " + traceable(devices), 0};
  pmu.type = static_cast<uint32_t>(*type);
  for (const std::string& term : files_of(pmu.folder + "/format")) {
    const TermFormat format = parse_term_format(first_line(pmu.folder + "/format/" + term));
    if (!format.bits.empty()) pmu.formats[term] = format;
  }
  for (const std::string& file : files_of(pmu.folder + "/caps")) {
    const std::optional<uint64_t> value = parse_integer(first_line(pmu.folder + "/caps/" + file), name == "intel_pt" ? 16 : 0);
    if (value) pmu.caps[file] = *value;
  }
  for (const std::string& sink : files_of(pmu.folder + "/sinks")) {
    const std::optional<uint64_t> id = parse_integer(first_line(pmu.folder + "/sinks/" + sink), 0);
    if (id) pmu.sinks[sink] = *id;
  }
  pmu.cpus = parse_cpu_list(first_line(pmu.folder + "/cpumask"));
  if (pmu.cpus.empty()) pmu.cpus = parse_cpu_list(first_line(pmu.folder + "/cpus"));
  return pmu;
}

Result<PmuEvent> parse_pmu_event(const std::string& text, const std::string& sysfs) {
  const size_t first = text.find('/'), last = text.rfind('/');
  if (first == std::string::npos || first == last)
    return bad_event("-e: '" + text + "' is not a PMU event: NAME/TERMS/LEVELS, for example intel_pt//u");
  Result<Pmu> pmu = read_pmu(text.substr(0, first), sysfs);
  if (!pmu) return pmu.error();
  PmuEvent event{std::move(*pmu), {}, text};
  event.spec.type = event.pmu.type;
  event.spec.config = 0;
  const bool pt = event.pmu.name == "intel_pt";
  if (pt) pt_defaults(event.pmu, event.spec);
  if (event.pmu.name == "cs_etm") {
    (void)event.pmu.set(event.spec, "timestamp", 1);
    if (!event.pmu.set(event.spec, "contextid", 1)) (void)event.pmu.set(event.spec, "contextid1", 1);
  }
  std::vector<std::string> typed;
  std::istringstream terms(text.substr(first + 1, last - first - 1));
  std::string term;
  while (std::getline(terms, term, ',')) {
    if (term.empty()) continue;
    if (Status status = set_term(event.pmu, event.spec, term, typed); !status) return status.error();
  }
  if (Status status = set_levels(event.spec, text.substr(last + 1)); !status) return status.error();
  if (pt) {
    if (Status status = check_pt(event.pmu, event.spec, typed); !status) return status.error();
  }
  return event;
}

}  // namespace ptd::live
