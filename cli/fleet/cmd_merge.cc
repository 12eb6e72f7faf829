// `ptdecode merge`: the results of all units of a plan as those of one recording.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "analysis/walk/recorded_steps.h"
#include "cli/fleet/fleet_commands.h"
#include "cli/fleet/plan_input.h"
#include "cli/fleet/table_lines.h"
#include "cli/fleet/table_sums.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "recording/bundle/plan.h"

namespace ptd::cli {

namespace {

struct MergeWords {
  std::string plan, results, output;
};

/// Returns the files of a kind of all units, in order; the error names those that are missing.
Result<std::vector<std::string>> files_of(const MergeWords& words, const Recording& plan, const std::string& name) {
  std::vector<std::string> files, missing;
  std::error_code error;
  for (uint32_t i = 0; i < units_of(plan).size(); ++i) {
    files.push_back(unit_file(words.results, i, name));
    if (!std::filesystem::exists(files.back(), error)) missing.push_back(std::to_string(i));
  }
  if (missing.empty()) return files;
  constexpr size_t kNamed = 8;
  const size_t count = missing.size();
  if (count > kNamed) missing.resize(kNamed);
  return Error{ErrorCode::missing_part,
               fmt::format("{}: {} of {} units are missing there: {}{}; decode them with 'ptdecode unit {} NUMBER -o {}'", words.results,
                           count, files.size(), fmt::join(missing, ", "), count > kNamed ? ", ..." : "", words.plan, words.results),
               0};
}

Status merge(const MergeWords& words, const Recording& plan) {
  const auto steps = files_of(words, plan, "steps");
  if (!steps) return steps.error();
  const auto collected = collect_steps(plan, *steps);
  if (!collected) return collected.error();
  if (const auto sums = files_of(words, plan, "sums.json"); !sums) return sums.error();
  for (uint32_t unit = 0; unit < units_of(plan).size(); ++unit) {
    if (Status status = check_table_sums(words.results, plan_id(plan), unit); !status) return status;
  }
  const ResultFolder folder(words.output);
  const auto out = [&words](std::string_view table) { return words.output + "/" + std::string(table) + ".jsonl"; };
  for (const std::string_view table : kUnitTables) {
    const auto files = files_of(words, plan, std::string(table) + ".jsonl");
    if (!files) return files.error();
    if (Status status = merge_lines(table, *files, out(table)); !status) return status;
  }
  TableRequest request;
  request.steps = std::make_shared<StepFiles>(*collected);
  for (const std::string_view table : {"calls", "functions"}) {
    if (Status status = write_lines(plan, table, request, out(table)); !status) return status;
  }
  return write_lines(plan, "findings", {}, out("findings"));
}

int run_merge(const MergeWords& words) {
  const Result<std::unique_ptr<Recording>> plan = open_plan(words.plan, {}, true);
  if (!plan) return report_error(plan.error());
  const Status status = merge(words, **plan);
  return status ? kExitOk : report_error(status.error());
}

}  // namespace

Command add_merge(CLI::App& app) {
  auto words = std::make_shared<MergeWords>();
  CLI::App& command = *app.add_subcommand("merge", "Put the results of all units of a plan together");
  command.add_option("plan", words->plan, "the plan")->required();
  command.add_option("results", words->results, "the folder with the results of 'ptdecode unit'")->required();
  command.add_option("-o,--output", words->output, "the folder for the tables")->type_name("DIR")->required();
  command.footer(
      "Writes edges, block_counts, gaps, events, calls, functions and findings, one object per line (TABLES.md): the same rows as the "
      "tables of the whole recording, decoded on one machine. Calls that begin in one unit and end in another are one row. The trace is "
      "not read.");
  return [words] { return run_merge(*words); };
}

}  // namespace ptd::cli
