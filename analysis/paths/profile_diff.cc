// PathProfile and ProfileDiff: see profile_diff.h.
#include "analysis/paths/profile_diff.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "image/placed_name.h"

namespace ptd {

namespace {

constexpr size_t kNone = ~size_t{0};
constexpr size_t kFolded = kNone - 1;  // matches: an inlined function that counts as part of its callers

CallSums sums_of(const FunctionTotals& totals) {
  return {totals.all_calls(), totals.self_ns, totals.total_ns, totals.self_instructions, totals.instructions};
}

}  // namespace

CallSums& CallSums::operator+=(const CallSums& other) {
  calls += other.calls;
  self_ns += other.self_ns;
  total_ns += other.total_ns;
  self_instructions += other.self_instructions;
  total_instructions += other.total_instructions;
  return *this;
}

void PathProfile::take(const CallStep& step) {
  if (step.kind == CallStepKind::leave) functions_.add({&step, 1});
  const std::optional<OpenCalls::Ended> ended = open_.take(step);
  if (!ended) return;
  if (ended->call.path >= sums_.size()) sums_.resize(paths().paths().size());
  CallSums& sums = sums_[ended->call.path];
  const bool beyond_limit = ended->call.path == ended->caller.path;  // its time is in that of the call that has the path
  sums += {beyond_limit ? 0U : 1U, step.self_ns, beyond_limit ? 0 : step.total_ns(), step.self_instructions, beyond_limit ? 0 : step.instructions};
}

ProfileDiff::ProfileDiff(const DiffSide& a, const DiffSide& b) {
  const std::array<DiffSide, kSides> sides = {a, b};
  Matches matches;
  match_functions(sides, matches);
  find_folded(sides);
  fold_functions(sides, matches);
  match_paths(sides, matches);
}

void ProfileDiff::match_functions(const std::array<DiffSide, kSides>& sides, Matches& matches) {
  functions_.push_back({{}, {sums_of(sides[0].profile.functions().untraced()), sums_of(sides[1].profile.functions().untraced())}});
  std::map<std::pair<std::string, std::string>, size_t> by_name;
  std::array<std::map<std::string_view, size_t>, kSides> left;  // names that only one side has: the index, kNone if there are several
  std::vector<bool> is_of_both(1, true);
  for (size_t side = 0; side < kSides; ++side) {
    const auto& totals = sides[side].profile.functions().functions();
    matches[side].assign(sides[side].functions.size() + 1, 0);
    for (FunctionId id = 0; id < totals.size() && id < sides[side].functions.size(); ++id) {
      if (totals[id].all_calls() == 0) continue;
      const FunctionInfo& info = sides[side].functions.info(id);
      const FunctionInfo shown{std::string(without_address(info.name)), info.module};  // those that only their addresses tell apart are one row
      std::pair key(shown.name, shown.module);
      const bool has_symbol = !key.first.starts_with(info.module + "+");
      if (const auto other = sides[side].names.find(info.module); other != sides[side].names.end()) {
        if (!has_symbol) key.first.replace(0, info.module.size(), other->second);
        key.second = other->second;
      }
      if (!has_symbol && sides[side].other_builds.contains(info.module)) {
        key.first.append(1, '\0').append(std::to_string(side));
        unmatched_.insert(info.module);
      }
      const auto [place, is_new] = by_name.emplace(std::move(key), functions_.size());
      if (is_new) {
        functions_.push_back({{shown, shown}, {}});
        is_of_both.push_back(false);
      } else if (side == 1) {
        is_of_both[place->second] = true;
        functions_[place->second].info[1] = shown;
      }
      functions_[place->second].sums[side] += sums_of(totals[id]);
      matches[side][size_t{id} + 1] = place->second;
    }
  }
  for (const auto& [name, index] : by_name) {
    if (is_of_both[index]) continue;
    const auto [place, is_new] = left[functions_[index].sums[0].calls != 0 ? 0 : 1].emplace(name.first, index);
    if (!is_new) place->second = kNone;
  }
  std::vector<size_t> moved(functions_.size());
  std::iota(moved.begin(), moved.end(), size_t{0});
  for (const auto& [name, index] : left[0]) {
    const auto other = left[1].find(name);
    if (index == kNone || other == left[1].end() || other->second == kNone) continue;
    Function& of_other = functions_[other->second];
    functions_[index].sums[1] = std::exchange(of_other.sums[1], CallSums{});
    functions_[index].info[1] = of_other.info[1];
    moved[other->second] = index;
  }
  for (size_t& match : matches[1]) match = moved[match];
}

void ProfileDiff::find_folded(const std::array<DiffSide, kSides>& sides) {
  for (size_t side = 0; side < kSides; ++side) {
    std::set<std::string_view> inlined, others;                           // modules of this side; of the other
    std::map<std::string_view, std::set<std::string_view>> counterparts;  // of this side's modules, by the functions that both have
    for (const Function& row : functions_) {
      const bool is_inlined = row.info[side].name.ends_with(kInlinedMark);
      const bool here = row.sums[side].calls != 0, there = row.sums[1 - side].calls != 0;
      if (is_inlined && here) inlined.insert(row.info[side].module);
      if (is_inlined && there) others.insert(row.info[1 - side].module);
      if (!is_inlined && here && there) counterparts[row.info[side].module].insert(row.info[1 - side].module);
    }
    for (const std::string_view module : inlined) {
      const auto found = counterparts.find(module);
      const DiffSide& other = sides[1 - side];
      const auto is_other = [&](std::string_view counterpart) { return others.contains(counterpart) || other.has_debug_information(counterpart); };
      if (found != counterparts.end() && std::none_of(found->second.begin(), found->second.end(), is_other)) folded_[side].emplace(module);
    }
  }
}

void ProfileDiff::fold_functions(const std::array<DiffSide, kSides>& sides, Matches& matches) {
  for (size_t side = 0; side < kSides; ++side) {
    for (FunctionId id = 0; id < sides[side].functions.size(); ++id) {
      const FunctionInfo& info = sides[side].functions.info(id);
      size_t& match = matches[side][size_t{id} + 1];
      if (match == 0 || !info.name.ends_with(kInlinedMark) || !folded_[side].contains(info.module)) continue;
      functions_[match].sums[side] = {};
      match = kFolded;
    }
  }
}

void ProfileDiff::match_paths(const std::array<DiffSide, kSides>& sides, const Matches& matches) {
  CallPaths both;
  paths_.emplace_back();
  for (size_t side = 0; side < kSides; ++side) {
    const auto [own, own_number] = sides[side].profile.paths().settled();
    const std::vector<CallSums>& unsettled = sides[side].profile.sums();
    std::vector<CallSums> sums(own.size());
    for (size_t i = 0; i < unsettled.size(); ++i) sums[own_number[i]] += unsettled[i];
    std::vector<uint32_t> number(own.size(), CallPaths::kRoot);
    for (size_t i = CallPaths::kRoot + 1; i < own.size(); ++i) {
      const size_t id = own[i].function == kNoFunction ? 0 : size_t{own[i].function} + 1;
      const size_t function = id < matches[side].size() ? matches[side][id] : 0;
      if (function == kFolded) {
        number[i] = number[own[i].parent];
        if (number[i] == CallPaths::kRoot) continue;
        const CallSums part{.self_ns = sums[i].self_ns, .self_instructions = sums[i].self_instructions};
        paths_[number[i]].sums[side] += part;
        functions_[paths_[number[i]].function].sums[side] += part;
        continue;
      }
      number[i] = both.below(number[own[i].parent], static_cast<FunctionId>(function));
      if (number[i] == paths_.size()) paths_.push_back({number[own[i].parent], function, {}});
      paths_[number[i]].sums[side] += sums[i];
    }
  }
}

}  // namespace ptd
