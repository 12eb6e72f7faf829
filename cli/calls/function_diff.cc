// diff_functions(): see function_diff.h.
#include "cli/calls/function_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/names/name_match.h"
#include "analysis/paths/profile_diff.h"
#include "cli/cache/symbol_cache.h"
#include "cli/options/exit_status.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

constexpr size_t kTextFunctions = 40, kTextPaths = 10;

/// One of the two recordings.
struct Side {
  std::unique_ptr<CallInput> input;
  PathProfile profile;
  CallSums all;  ///< of all calls that are compared
};

/// What is compared.
struct Metric {
  std::string sort;
  bool timed = false;
  [[nodiscard]] bool is_time() const { return timed && (sort == "self" || sort == "total"); }
  [[nodiscard]] const char* name() const {
    if (sort == "calls") return "calls";
    const bool total = sort == "total";
    return is_time() ? (total ? "total" : "self") : (total ? "total insn" : "self insn");
  }
  [[nodiscard]] uint64_t of(const CallSums& sums) const {
    if (sort == "calls") return sums.starts;
    if (sort == "total") return timed ? sums.total_ns : sums.total_instructions;
    return is_time() ? sums.self_ns : sums.self_instructions;
  }
  [[nodiscard]] bool knows(const CallSums& sums) const { return !is_time() || sums.undated == 0; }
  [[nodiscard]] bool knows(const ProfileDiff::Sums& sums) const { return knows(sums[0]) && knows(sums[1]); }
  [[nodiscard]] std::string text(uint64_t value) const { return is_time() ? duration_text(value) : std::to_string(value); }
  [[nodiscard]] std::string text(const CallSums& sums) const { return knows(sums) ? text(of(sums)) : "-"; }
  [[nodiscard]] std::string change_text(const ProfileDiff::Sums& sums) const {
    if (!knows(sums)) return "-";
    const uint64_t a = of(sums[0]), b = of(sums[1]);
    return a == b ? "=" : (a < b ? "+" : "-") + text(a < b ? b - a : a - b);
  }
  /// 0 if it is not known.
  [[nodiscard]] uint64_t change(const ProfileDiff::Sums& sums) const {
    const uint64_t a = of(sums[0]), b = of(sums[1]);
    return !knows(sums) ? 0 : a < b ? b - a : a - b;
  }
  /// "+25.3 %" for each call; "new", "gone"; "inlined" if it is in either: then not each call is counted.
  [[nodiscard]] std::string per_call(const ProfileDiff::Function& function, const ProfileDiff::Sums& sums) const {
    if (sums[0].calls == 0) return "new";
    if (sums[1].calls == 0) return "gone";
    if (function.info[0].name.ends_with(kInlinedMark) || function.info[1].name.ends_with(kInlinedMark)) return "inlined";
    const auto each = [this](const CallSums& side) { return static_cast<double>(of(side)) / static_cast<double>(side.starts); };
    if (sort == "calls" || sums[0].starts == 0 || sums[1].starts == 0 || !knows(sums) || of(sums[0]) == 0) return "-";
    return fmt::format("{:+.1f} %", 100 * (each(sums[1]) / each(sums[0]) - 1));
  }
};

int follow(const CallWords& words, Side& side) {
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words);
  if (!opened) return report_error(opened.error());
  side.input = std::move(*opened);
  return side.input->walk(words, [&side](std::span<const CallStep> steps, const CallTree& tree) {
    for (const CallStep& step : steps) {
      if (side.input->wanted(step, tree)) side.profile.take(step);
    }
    return true;
  });
}

bool has_debug_information(const Recording& recording, std::string_view module) {
  const Timeline& timeline = recording.timeline();
  std::set<std::pair<std::string_view, std::string_view>> asked;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (recording.symbolizer().module_of(section) != module || !asked.emplace(section.path, section.build_id).second) continue;
    bool found = false;
    (void)recording.symbolizer().visit_source(section.path, section.build_id, [&found](const SourceUnit&) {
      found = true;
      return false;
    });
    if (found) return true;
  }
  return false;
}

/// The larger changes first; equal ones in the order of their names or callers.
template <typename Rows>
std::vector<const typename Rows::value_type*> ranked_changes(const Rows& rows, const Metric& metric, const auto& wanted) {
  std::vector<const typename Rows::value_type*> ranked;
  for (const auto& row : rows) {
    if (row.sums[0].calls + row.sums[1].calls != 0 && wanted(row)) ranked.push_back(&row);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const auto* a, const auto* b) { return metric.change(a->sums) > metric.change(b->sums); });
  return ranked;
}

/// Prints the rows of a comparison.
class DiffPrinter {
 public:
  DiffPrinter(const FunctionDiffWords& words, const ProfileDiff& diff, Metric metric)
      : words_(words), diff_(diff), metric_(std::move(metric)) {
    const auto is_wanted = [this](size_t function) { return wants(diff_.functions()[function]); };
    functions_ = ranked_changes(diff.functions(), metric_, [this](const ProfileDiff::Function& row) { return wants(row); });
    std::sort(functions_.begin(), functions_.end(), [this](const auto* a, const auto* b) {
      const auto key = [this](const ProfileDiff::Function& row) {
        return std::tuple(~metric_.change(row.sums), row.info[0].name, row.info[0].module);
      };
      return key(*a) < key(*b);
    });
    paths_ = ranked_changes(diff.paths(), metric_,
                            [&](const ProfileDiff::Path& row) { return is_wanted(row.function) && metric_.change(row.sums) != 0; });
  }
  [[nodiscard]] bool any() const { return !functions_.empty(); }

  void print_text(const std::array<Side, 2>& sides) const {
    Output& out = standard_output();
    for (size_t side = 0; side < 2; ++side) {
      const CallSums& all = sides[side].all;
      const std::string undated = all.undated == 0 ? "" : fmt::format(", {} without times", counted(all.undated, "call"));
      out.write(fmt::format("{}: {}: {}, {} instructions{}{}\n", side == 0 ? 'A' : 'B', shown(words_.calls[side].input.path),
                            counted(all.starts, "call"), all.self_instructions,
                            metric_.timed ? ", " + duration_text(all.self_ns) + " running" : "", metric_.timed ? undated : ""));
    }
    for (size_t side = 0; side < 2; ++side) {
      const std::set<std::string>& folded = diff_.folded()[side];
      if (folded.empty()) continue;
      out.write(fmt::format("only {} has debug information of {}: inlined functions count as part of their callers\n",
                            side == 0 ? 'A' : 'B', shown(fmt::format("{}", fmt::join(folded, ", ")))));
    }
    out.write(unmatched_text(diff_.unmatched()));
    for (size_t side = 0; side < 2; ++side) out.write(untimed_text(side, *sides[side].input));
    const std::string name = metric_.name();
    out.write(fmt::format("\n{:>10} {:>10} {:>12} {:>12} {:>12} {:>10} function\n", "calls A", "calls B", name + " A", name + " B",
                          "change", "per call"));
    const auto changed = static_cast<size_t>(
        std::count_if(functions_.begin(), functions_.end(), [this](const auto* row) { return metric_.change(row->sums) != 0; }));
    const size_t listed = words_.function.empty() ? changed : functions_.size();  // those that did not change come last
    const size_t functions = rows(listed, kTextFunctions);
    for (size_t i = 0; i < functions; ++i) {
      const ProfileDiff::Function& row = *functions_[i];
      out.write(fmt::format("{:>10} {:>10} {:>12} {:>12} {:>12} {:>10} {}\n", row.sums[0].starts, row.sums[1].starts,
                            metric_.text(row.sums[0]), metric_.text(row.sums[1]), metric_.change_text(row.sums),
                            metric_.per_call(row, row.sums), name_text(row)));
    }
    say_more(listed - functions, "more function");
    const auto unknown = static_cast<size_t>(std::count_if(functions_.begin() + static_cast<std::ptrdiff_t>(listed), functions_.end(),
                                                           [this](const auto* row) { return !metric_.knows(row->sums); }));
    if (unknown != 0)
      out.write(fmt::format("{} not compared, because some of their calls have no times; --sort instructions compares them\n",
                            counted(unknown, "other function is", "other functions are")));
    if (const size_t same = functions_.size() - listed - unknown; same != 0)
      out.write(fmt::format("{} did not change\n", counted(same, "other function")));
    if (paths_.empty()) return;
    out.write(fmt::format("\nby call path, the outermost caller first\n{:>12} {:>10} {:>10} {:>10} path\n", "change", "per call", "calls A",
                          "calls B"));
    const size_t paths = rows(paths_.size(), kTextPaths);
    for (size_t i = 0; i < paths; ++i) {
      const ProfileDiff::Path& row = *paths_[i];
      std::string text;
      for (const std::string& each : names(row)) text += (text.empty() ? "" : " > ") + shown(each);
      out.write(fmt::format("{:>12} {:>10} {:>10} {:>10} {}\n", metric_.change_text(row.sums),
                            metric_.per_call(diff_.functions()[row.function], row.sums), row.sums[0].starts, row.sums[1].starts, text));
    }
    say_more(paths_.size() - paths, "more path");
  }

  void print_json() const {
    const auto dump = [](const nlohmann::json& json) {
      standard_output().write(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
    };
    dump({{"schema", "ptdecode-functions-diff-1"},
          {"timed", metric_.timed},
          {"a", words_.calls[0].input.path},
          {"b", words_.calls[1].input.path},
          {"without_inlined_a", diff_.folded()[0]},
          {"without_inlined_b", diff_.folded()[1]},
          {"unmatched", diff_.unmatched()}});
    for (size_t i = 0; i < rows(functions_.size(), 0); ++i) {
      const ProfileDiff::Function& row = *functions_[i];
      nlohmann::json json = {{"function", name_of(row)}, {"module_a", row.info[0].module}, {"module_b", row.info[1].module}};
      if (row.info[1].name != row.info[0].name) json["function_b"] = row.info[1].name;
      json.update(sums_json(row.sums));
      dump(json);
    }
    for (size_t i = 0; i < rows(paths_.size(), 0); ++i) {
      nlohmann::json json = {{"path", names(*paths_[i])}};
      json.update(sums_json(paths_[i]->sums));
      dump(json);
    }
  }

 private:
  [[nodiscard]] size_t rows(size_t all, size_t by_default) const {
    const size_t most = words_.limit.value_or(words_.json ? 0 : by_default);
    return most == 0 ? all : std::min(most, all);
  }
  [[nodiscard]] static std::string name_of(const ProfileDiff::Function& row) {
    return row.info[0].name.empty() ? "[not traced]" : row.info[0].name;
  }
  [[nodiscard]] bool wants(const ProfileDiff::Function& row) const {
    const auto matches = [this](std::string_view name) {
      const bool is_inlined = name.ends_with(kInlinedMark);
      return matches_name(words_.function, name) ||
             (is_inlined && matches_name(words_.function, name.substr(0, name.size() - kInlinedMark.size())));
    };
    return words_.function.empty() || matches(name_of(row)) || matches(row.info[1].name);
  }
  [[nodiscard]] static std::string name_text(const ProfileDiff::Function& row) {
    const auto& [a, b] = row.info;
    const std::string module = a.module == b.module ? a.module : a.module + " -> " + b.module;
    return shown(name_of(row)) + (a.name == b.name ? "" : shown(" -> " + b.name)) + (module.empty() ? "" : shown(" (" + module + ")"));
  }
  /// The names on the path, the outermost first.
  [[nodiscard]] std::vector<std::string> names(const ProfileDiff::Path& path) const {
    std::vector<std::string> names;
    for (const ProfileDiff::Path* at = &path; at != diff_.paths().data(); at = &diff_.paths()[at->parent])
      names.push_back(name_of(diff_.functions()[at->function]));
    std::reverse(names.begin(), names.end());
    return names;
  }
  [[nodiscard]] nlohmann::json sums_json(const ProfileDiff::Sums& sums) const {
    nlohmann::json json;
    for (size_t side = 0; side < 2; ++side) {
      const std::string end = side == 0 ? "_a" : "_b";
      json["calls" + end] = sums[side].starts;
      json["self_instructions" + end] = sums[side].self_instructions;
      json["total_instructions" + end] = sums[side].total_instructions;
      if (!metric_.timed) continue;
      const auto time = [&](uint64_t ns) { return sums[side].undated == 0 ? nlohmann::json(ns) : nlohmann::json(); };
      json["self_ns" + end] = time(sums[side].self_ns);
      json["total_ns" + end] = time(sums[side].total_ns);
    }
    return json;
  }
  static void say_more(size_t count, const char* what) {
    if (count != 0) standard_output().write(fmt::format("and {}; --limit 0 lists all\n", counted(count, what)));
  }

  const FunctionDiffWords& words_;
  const ProfileDiff& diff_;
  const Metric metric_;
  std::vector<const ProfileDiff::Function*> functions_;
  std::vector<const ProfileDiff::Path*> paths_;
};

}  // namespace

int diff_functions(const FunctionDiffWords& words) {
  std::array<Side, 2> sides;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (const int status = follow(words.calls[i], sides[i]); status != kExitOk) return status;
  }
  const bool timed = sides[0].input->timed() && sides[1].input->timed();
  const std::array<ModuleMatch, 2> modules = match_modules(sides[0].input->recording(), sides[1].input->recording());
  const auto has_lines = [](const Side& side) {
    return [&side](std::string_view module) { return has_debug_information(side.input->recording(), module); };
  };
  const ProfileDiff diff({sides[0].profile, sides[0].input->functions(), has_lines(sides[0]), modules[0]},
                         {sides[1].profile, sides[1].input->functions(), has_lines(sides[1]), modules[1]});
  for (const ProfileDiff::Path& path : diff.paths()) {
    for (size_t i = 0; i < sides.size(); ++i) sides[i].all += path.sums[i];
  }
  const DiffPrinter printer(words, diff, Metric{words.sort, timed});
  if (!printer.any() && !words.function.empty())
    return report_error({ErrorCode::no_such_function, fmt::format("--func: '{}' was called in neither recording", words.function), 0});
  if (words.json) {
    printer.print_json();
  } else {
    printer.print_text(sides);
  }
  standard_output().flush();
  int status = kExitOk;
  for (size_t i = 0; i < sides.size(); ++i) {
    const int matched = sides[i].input->say_summary(words.calls[i], sides[i].all.calls != 0);
    status = status != kExitOk ? status : matched;
  }
  return status;
}

}  // namespace ptd::cli
