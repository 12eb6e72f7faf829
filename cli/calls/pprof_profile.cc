// PprofProfile: see pprof_profile.h.
#include "cli/calls/pprof_profile.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cli/cache/symbol_cache.h"
#include "cli/text/clean_text.h"
#include "cli/text/protobuf.h"

namespace ptd::cli {

namespace {

// Field numbers: proto/profile.proto of github.com/google/pprof.
constexpr unsigned kSampleType = 1, kSample = 2, kMapping = 3, kLocation = 4, kFunction = 5, kStringTable = 6, kDuration = 10,
                   kDefaultType = 14;
constexpr unsigned kTypeName = 1, kTypeUnit = 2, kSampleLocations = 1, kSampleValues = 2, kSampleLabel = 3, kLabelKey = 1, kLabelText = 2;
constexpr unsigned kMappingId = 1, kMappingFile = 5, kMappingBuildId = 6, kMappingHasFunctions = 7, kMappingHasInlined = 10;
constexpr unsigned kLocationId = 1, kLocationMapping = 2, kLocationLine = 4, kLineFunction = 1;
constexpr unsigned kFunctionId = 1, kFunctionName = 2;

std::string packed(const std::vector<uint64_t>& numbers) {
  std::string out;
  for (const uint64_t number : numbers) put_number(out, number);
  return out;
}

/// Returns the build id of each module, or "" if files of several builds have its name.
std::map<std::string, std::string> build_ids(const Recording& recording) {
  std::map<std::string, std::string> ids;
  const Timeline& timeline = recording.timeline();
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    const auto [known, is_new] = ids.try_emplace(std::string(recording.symbolizer().module_of(section)), section.build_id);
    if (!is_new && known->second != section.build_id) known->second.clear();
  }
  return ids;
}

/// Returns whether `module` is a file that is not named like a library: not "libc.so.6", "ntdll.dll", "[kernel]".
bool is_program(std::string_view module) {
  const std::string_view name = module.substr(module.rfind('/') + 1);
  if (name.empty() || name.starts_with('[')) return false;
  return !name.ends_with(".so") && name.find(".so.") == name.npos && !name.ends_with(".dll") && !name.ends_with(".DLL");
}

}  // namespace

/// Numbers strings, modules, functions and locations, and writes each once.
class PprofProfile::Writer {
 public:
  explicit Writer(const PprofProfile& profile)
      : profile_(profile), functions_(profile.input_.functions()), build_ids_(build_ids(profile.input_.recording())) {}
  std::string write() {
    text("");
    put_type("calls", "count");
    put_type("instructions", "count");
    if (profile_.has_cycles_) put_type("cycles", "count");
    if (profile_.input_.timed()) put_type("time", "nanoseconds");
    std::vector<std::string> comms(profile_.comms_.size());
    for (const auto& [comm, number] : profile_.comms_) comms[number] = comm;
    if (const std::string program = main_program(); !program.empty()) (void)mapping(program);  // the first one
    for (const auto& [key, sums] : profile_.sums_) put_sample(key.first, comms[key.second], sums);
    if (profile_.duration_ns_ != 0) put(out_, kDuration, profile_.duration_ns_);
    put(out_, kDefaultType, text(profile_.input_.timed() ? "time" : "instructions"));
    for (const std::string* each : order_) put(out_, kStringTable, std::string_view(*each));
    return std::move(out_);
  }

 private:
  uint64_t text(const std::string& wanted) {
    const auto [known, is_new] = texts_.try_emplace(wanted, texts_.size());
    if (is_new) order_.push_back(&known->first);
    return known->second;
  }
  void put_type(const char* name, const char* unit) {
    std::string type;
    put(type, kTypeName, text(name));
    put(type, kTypeUnit, text(unit));
    put(out_, kSampleType, type);
  }
  /// Returns the file that executes the most, of those that are not named like a library; "" if there is none.
  [[nodiscard]] std::string main_program() const {
    std::map<std::string, uint64_t> instructions;
    for (const auto& [key, sums] : profile_.sums_) {
      const FunctionId function = profile_.paths_[key.first].function;
      if (function == kNoFunction) continue;
      const std::string& module = functions_.info(function).module;
      if (is_program(module)) instructions[module] += sums.instructions;
    }
    const auto most = std::ranges::max_element(instructions, {}, [](const auto& each) { return each.second; });
    return most == instructions.end() ? std::string() : most->first;
  }
  void put_sample(uint32_t path, const std::string& comm, const Sums& sums) {
    std::vector<uint64_t> values{sums.calls, sums.instructions};
    if (profile_.has_cycles_) values.push_back(sums.cycles);
    if (profile_.input_.timed()) values.push_back(sums.ns);
    std::string sample, label;
    put(sample, kSampleLocations, packed(locations_of(path)));
    put(sample, kSampleValues, packed(values));
    put(label, kLabelKey, text("comm"));
    put(label, kLabelText, text(shown(comm)));
    put(sample, kSampleLabel, label);
    put(out_, kSample, sample);
  }
  [[nodiscard]] bool is_inlined(FunctionId id) const { return id != kNoFunction && functions_.info(id).name.ends_with(kInlinedMark); }
  /// A location is a call with the functions that are inlined in it.
  std::vector<uint64_t> locations_of(uint32_t path) {
    std::vector<uint64_t> locations;
    std::vector<FunctionId> lines;  // of one location, innermost first
    const auto& paths = profile_.paths_;
    for (; path != CallPaths::kRoot; path = paths[path].parent) {
      lines.push_back(paths[path].function);
      if (is_inlined(lines.back()) && paths[path].parent != CallPaths::kRoot) continue;
      locations.push_back(location(lines));
      lines.clear();
    }
    return locations;
  }
  uint64_t location(const std::vector<FunctionId>& lines) {
    const auto [known, is_new] = locations_.try_emplace(lines, locations_.size() + 1);
    if (!is_new) return known->second;
    std::string location;
    put(location, kLocationId, known->second);
    if (lines.back() != kNoFunction && !functions_.info(lines.back()).module.empty())
      put(location, kLocationMapping, mapping(functions_.info(lines.back()).module));
    for (const FunctionId each : lines) {
      std::string line;
      put(line, kLineFunction, function(each));
      put(location, kLocationLine, line);
    }
    put(out_, kLocation, location);
    return known->second;
  }
  uint64_t mapping(const std::string& module) {
    const auto [known, is_new] = mappings_.try_emplace(module, mappings_.size() + 1);
    if (!is_new) return known->second;
    std::string mapping;
    put(mapping, kMappingId, known->second);
    put(mapping, kMappingFile, text(shown(module)));
    if (const auto id = build_ids_.find(module); id != build_ids_.end()) put(mapping, kMappingBuildId, text(id->second));
    put(mapping, kMappingHasFunctions, 1);
    put(mapping, kMappingHasInlined, 1);
    put(out_, kMapping, mapping);
    return known->second;
  }
  uint64_t function(FunctionId id) {
    const auto [known, is_new] = functions_written_.try_emplace(id, functions_written_.size() + 1);
    if (!is_new) return known->second;
    std::string name = function_text(functions_, id), function;
    if (is_inlined(id)) name.resize(name.size() - kInlinedMark.size());
    put(function, kFunctionId, known->second);
    put(function, kFunctionName, text(shown(name)));
    put(out_, kFunction, function);
    return known->second;
  }

  const PprofProfile& profile_;
  const FunctionTable& functions_;
  const std::map<std::string, std::string> build_ids_;
  std::string out_;
  std::unordered_map<std::string, uint64_t> texts_;
  std::vector<const std::string*> order_;  ///< the keys of texts_, by number
  std::map<std::vector<FunctionId>, uint64_t> locations_;
  std::map<std::string, uint64_t> mappings_;
  std::map<FunctionId, uint64_t> functions_written_;
};

void PprofProfile::take(std::span<const CallStep> steps, const CallTree& tree) {
  for (const CallStep& step : steps) {
    if (!input_.wanted(step, tree)) continue;
    const auto ended = calls_.take(step);
    if (!ended) continue;
    const auto comm = comms_.try_emplace(input_.label(step, tree), static_cast<uint32_t>(comms_.size())).first->second;
    const uint64_t calls = (step.flags & (kCallNoStart | kCallMiddle)) == 0 ? 1 : 0;
    sums_[{ended->call.path, comm}] += {calls, step.self_instructions, step.self_cycles, step.self_ns};
    has_cycles_ = has_cycles_ || step.self_cycles != 0;
  }
  for (const CallThread& thread : tree.finished() ? tree.threads() : std::vector<CallThread>())
    if (thread.first != kTimeMin) duration_ns_ = std::max(duration_ns_, thread.last.value - thread.first.value);
}

PprofProfile::Sums& PprofProfile::Sums::operator+=(const Sums& other) {
  calls += other.calls;
  instructions += other.instructions;
  cycles += other.cycles;
  ns += other.ns;
  return *this;
}

void PprofProfile::finish() {
  CallPaths::Settled settled = calls_.paths().settled();
  for (const auto& [key, sums] : std::exchange(sums_, {})) sums_[{settled.numbers[key.first], key.second}] += sums;
  paths_ = std::move(settled.paths);
}

std::string PprofProfile::write() const { return Writer(*this).write(); }

}  // namespace ptd::cli
