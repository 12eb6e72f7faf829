// match_modules(): see module_match.h.
#include "analysis/paths/module_match.h"

#include <string_view>
#include <utility>

namespace ptd {

namespace {

using MatchedNames = std::map<std::string, std::string, std::less<>>;
using BuildIds = std::map<std::string_view, std::set<std::string_view>>;  ///< by module; "" for files without one

/// Returns the names that modules of `other` have in `recording`, where they differ: those of the same files, as far as paths and build ids
/// tell.
MatchedNames names_in(const Recording& recording, const Recording& other) {
  std::map<std::pair<std::string_view, std::string_view>, std::string_view> by_build;
  std::map<std::string_view, std::string_view> by_path;
  for (SectionId id = 0; id < recording.timeline().section_count(); ++id) {
    const Section& section = recording.timeline().section(id);
    const std::string_view module = recording.symbolizer().module_of(section);
    by_build.try_emplace({section.path, section.build_id}, module);
    by_path.try_emplace(section.path, module);
  }
  MatchedNames names;
  for (SectionId id = 0; id < other.timeline().section_count(); ++id) {
    const Section& section = other.timeline().section(id);
    const std::string_view module = other.symbolizer().module_of(section);
    const auto same = by_build.find({section.path, section.build_id});
    const auto near = by_path.find(section.path);
    if (near == by_path.end()) continue;
    const std::string_view name = same != by_build.end() ? same->second : near->second;
    if (name != module) names.try_emplace(std::string(module), name);
  }
  return names;
}

BuildIds builds_of(const Recording& recording) {
  BuildIds builds;
  for (SectionId id = 0; id < recording.timeline().section_count(); ++id) {
    const Section& section = recording.timeline().section(id);
    builds[recording.symbolizer().module_of(section)].insert(section.build_id);
  }
  return builds;
}

/// Returns the modules of `own` that `other` has in another build. `names` are those that `other` has for modules of `own`, where they
/// differ.
std::set<std::string, std::less<>> other_builds(const BuildIds& own, const BuildIds& other, const MatchedNames& names) {
  std::set<std::string, std::less<>> modules;
  for (const auto& [module, builds] : own) {
    const auto renamed = names.find(module);
    const auto found = other.find(renamed == names.end() ? module : std::string_view(renamed->second));
    if (found != other.end() && found->second != builds) modules.emplace(module);
  }
  return modules;
}

}  // namespace

bool is_unnamed(const FunctionInfo& function) {
  return function.name.starts_with(function.module + "+0x") || function.name == "[unnamed code of " + function.module + "]";
}

FunctionInfo ModuleMatch::renamed(const FunctionInfo& function) const {
  const auto other = names.find(function.module);
  if (other == names.end()) return function;
  FunctionInfo result{function.name, other->second};
  if (is_unnamed(function)) result.name.replace(function.name.find(function.module), function.module.size(), other->second);
  return result;
}

std::array<ModuleMatch, 2> match_modules(const Recording& a, const Recording& b) {
  const std::array<BuildIds, 2> builds = {builds_of(a), builds_of(b)};
  const MatchedNames names = names_in(a, b);
  MatchedNames names_of_a;
  for (const auto& [of_b, of_a] : names) names_of_a.try_emplace(of_a, of_b);
  return {ModuleMatch{{}, other_builds(builds[0], builds[1], names_of_a)}, ModuleMatch{names, other_builds(builds[1], builds[0], names)}};
}

}  // namespace ptd
