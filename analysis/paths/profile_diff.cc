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

/// Returns the name that a function has in the source: without what compilers add for clones (f.constprop.0, f(int) [clone .isra.0]) and
/// for pieces (f.part.0, f.cold), and without the mark of inlined functions. With `pieces`, pieces stay apart (f.part, f.cold), and inlined
/// functions do.
std::string source_name(std::string_view name, bool pieces) {
  constexpr std::array<std::string_view, 6> kAdded = {"constprop", "isra", "lto_priv", "llvm", "part", "cold"};
  constexpr std::string_view kClone = " [clone ";
  std::string end;
  if (!pieces && name.ends_with(kInlinedMark)) name.remove_suffix(kInlinedMark.size());
  for (;;) {
    const bool in_brackets = name.ends_with(']');
    std::string_view rest = name.substr(0, name.size() - (in_brackets ? 1 : 0));
    const size_t number = rest.find_last_not_of("0123456789");
    if (number != std::string_view::npos && number + 1 < rest.size() && rest[number] == '.') rest = rest.substr(0, number);
    const size_t dot = rest.rfind('.');
    if (dot == std::string_view::npos || dot == 0) break;
    const std::string_view word = rest.substr(dot + 1);
    if (std::find(kAdded.begin(), kAdded.end(), word) == kAdded.end()) break;
    rest = rest.substr(0, dot);
    if (in_brackets && !rest.ends_with(kClone)) break;
    name = rest.substr(0, rest.size() - (in_brackets ? kClone.size() : 0));
    if (pieces && (word == "part" || word == "cold")) end.insert(0, "." + std::string(word));
  }
  return std::string(name) + end;
}

CallSums sums_of(const FunctionTotals& totals) {
  return {totals.all_calls(), totals.calls, totals.undated, totals.self_ns, totals.total_ns, totals.self_instructions, totals.instructions};
}

}  // namespace

CallSums& CallSums::operator+=(const CallSums& other) {
  calls += other.calls;
  starts += other.starts;
  undated += other.undated;
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
  const bool is_undated = (step.flags & kCallUndated) != 0;
  sums += {.undated = is_undated ? 1U : 0U, .self_ns = step.self_ns, .self_instructions = step.self_instructions};
  if (beyond_limit) return;
  const bool started = (step.flags & (kCallNoStart | kCallMiddle)) == 0;
  sums += {.calls = 1, .starts = started ? 1U : 0U, .total_ns = step.total_ns(), .total_instructions = step.instructions};
}

ProfileDiff::ProfileDiff(const DiffSide& a, const DiffSide& b) {
  const std::array<DiffSide, kSides> sides = {a, b};
  Matches matches;
  match_functions(sides, matches);
  find_folded(sides);
  fold_functions(sides, matches);
  match_clones(sides, matches);
  match_paths(sides, matches);
}

void ProfileDiff::match_functions(const std::array<DiffSide, kSides>& sides, Matches& matches) {
  functions_.push_back({{}, {sums_of(sides[0].profile.functions().untraced()), sums_of(sides[1].profile.functions().untraced())}});
  std::map<std::pair<std::string, std::string>, size_t> by_name;
  for (size_t side = 0; side < kSides; ++side) {
    const auto& totals = sides[side].profile.functions().functions();
    matches[side].assign(sides[side].functions.size() + 1, 0);
    for (FunctionId id = 0; id < totals.size() && id < sides[side].functions.size(); ++id) {
      if (totals[id].all_calls() == 0) continue;
      const FunctionInfo& info = sides[side].functions.info(id);
      // Those that only their addresses tell apart are one row.
      const FunctionInfo shown{std::string(without_address(info.name)), info.module};
      const FunctionInfo renamed = sides[side].modules.renamed(shown);
      std::pair key(renamed.name, renamed.module);
      if (!sides[side].modules.has_match(info)) {
        key.first.append(1, '\0').append(std::to_string(side));
        unmatched_.insert(info.module);
      }
      const auto [place, is_new] = by_name.emplace(std::move(key), functions_.size());
      if (is_new) functions_.push_back({{shown, shown}, {}});
      if (side == 1) functions_[place->second].info[1] = shown;
      functions_[place->second].sums[side] += sums_of(totals[id]);
      matches[side][size_t{id} + 1] = place->second;
    }
  }
  match_left(
      sides, matches, [](const FunctionInfo& info) { return info.name; }, false);
}

// Matches what only one side has, if it alone has its key there; with `strict`, also among the functions that both sides have.
void ProfileDiff::match_left(const std::array<DiffSide, kSides>& sides, Matches& matches,
                             const std::function<std::string(const FunctionInfo&)>& key, bool strict) {
  std::array<std::map<std::string, size_t>, kSides> left;  // the index, kNone if there are several
  for (size_t index = 1; index < functions_.size(); ++index) {
    const Function& row = functions_[index];
    const bool is_of_both = row.sums[0].calls != 0 && row.sums[1].calls != 0;
    for (size_t side = 0; side < kSides; ++side) {
      const FunctionInfo& info = row.info[side];
      if (row.sums[side].calls == 0 || (is_of_both && !strict) || !sides[side].modules.has_match(info)) continue;
      const auto [place, is_new] = left[side].emplace(key(info), is_of_both ? kNone : index);
      if (!is_new) place->second = kNone;
    }
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
  for (size_t& match : matches[1]) match = match == kFolded ? kFolded : moved[match];
}

// A function that the compiler cloned, split or inlined in one build only.
void ProfileDiff::match_clones(const std::array<DiffSide, kSides>& sides, Matches& matches) {
  for (const bool pieces : {true, false}) {
    const auto base = [pieces](const FunctionInfo& info) { return source_name(info.name, pieces); };
    match_left(
        sides, matches, [&base](const FunctionInfo& info) { return base(info) + '\0' + info.module; }, true);
    match_left(sides, matches, base, true);
  }
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
      const auto is_other = [&](std::string_view counterpart) {
        return others.contains(counterpart) || other.has_debug_information(counterpart);
      };
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
        const CallSums part{.undated = sums[i].undated, .self_ns = sums[i].self_ns, .self_instructions = sums[i].self_instructions};
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
