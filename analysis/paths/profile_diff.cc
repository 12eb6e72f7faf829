// PathProfile and ProfileDiff: see profile_diff.h.
#include "analysis/paths/profile_diff.h"

#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "image/placed_name.h"

namespace ptd {

namespace {

constexpr size_t kNone = ~size_t{0};

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
  if (step.kind == CallStepKind::enter) return open_.enter(step);
  if (step.kind != CallStepKind::leave) return;
  functions_.add({&step, 1});
  const std::optional<OpenCalls::Ended> ended = open_.leave(step);
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
  match_paths(sides, matches);
}

void ProfileDiff::match_functions(const std::array<DiffSide, kSides>& sides, Matches& matches) {
  functions_.push_back({{}, {sums_of(sides[0].profile.functions().untraced()), sums_of(sides[1].profile.functions().untraced())}});
  std::map<std::pair<std::string_view, std::string_view>, size_t> by_name;
  std::array<std::map<std::string_view, size_t>, kSides> left;  // names that only one side has: the index, kNone if there are several
  std::vector<bool> is_of_both(1, true);
  for (size_t side = 0; side < kSides; ++side) {
    const auto& totals = sides[side].profile.functions().functions();
    matches[side].assign(sides[side].functions.size() + 1, 0);
    for (FunctionId id = 0; id < totals.size() && id < sides[side].functions.size(); ++id) {
      if (totals[id].all_calls() == 0) continue;
      const FunctionInfo& info = sides[side].functions.info(id);
      const std::string_view name = without_address(info.name);  // those that only their addresses tell apart are one row
      const auto [place, is_new] = by_name.emplace(std::pair<std::string_view, std::string_view>(name, info.module), functions_.size());
      if (is_new) {
        const FunctionInfo shown{std::string(name), info.module};
        functions_.push_back({{shown, shown}, {}});
        is_of_both.push_back(false);
      } else if (side == 1) {
        is_of_both[place->second] = true;
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

void ProfileDiff::match_paths(const std::array<DiffSide, kSides>& sides, const Matches& matches) {
  CallPaths both;
  paths_.emplace_back();
  for (size_t side = 0; side < kSides; ++side) {
    const std::vector<CallPaths::Path>& own = sides[side].profile.paths().paths();
    const std::vector<CallSums>& sums = sides[side].profile.sums();
    std::vector<uint32_t> number(own.size(), CallPaths::kRoot);
    for (size_t i = CallPaths::kRoot + 1; i < own.size(); ++i) {
      const size_t id = own[i].function == kNoFunction ? 0 : size_t{own[i].function} + 1;
      const size_t function = id < matches[side].size() ? matches[side][id] : 0;
      number[i] = both.below(number[own[i].parent], static_cast<FunctionId>(function));
      if (number[i] == paths_.size()) paths_.push_back({number[own[i].parent], function, {}});
      if (i < sums.size()) paths_[number[i]].sums[side] += sums[i];
    }
  }
}

}  // namespace ptd
