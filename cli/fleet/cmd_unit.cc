// `ptdecode unit`: decodes one unit of a plan, or lists the units.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/table/flow/unit_pass.h"
#include "cli/fleet/fleet_commands.h"
#include "cli/fleet/plan_input.h"
#include "cli/fleet/table_lines.h"
#include "cli/fleet/table_sums.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "recording/bundle/plan.h"

namespace ptd::cli {

namespace {

struct UnitWords {
  std::string plan, output, format = "text";
  std::optional<uint32_t> unit;
  std::vector<std::string> traces;
  bool quiet = false;
};

nlohmann::ordered_json unit_json(const Recording& plan, uint32_t number) {
  const PlanUnit& unit = units_of(plan)[number];
  nlohmann::ordered_json json = {{"unit", number},
                                 {"stream", unit.stream},
                                 {"cpu", plan.streams()[unit.stream].cpu},
                                 {"tid", plan.streams()[unit.stream].tid},
                                 {"first_offset_bytes", unit.first_offset}};
  const bool open = unit.last_offset == Recording::kStreamEnd;
  json["end_offset_bytes"] = open ? unit.end_offset : unit.last_offset;
  nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
  for (const FileRange& range : ranges_of(plan, unit)) {
    ranges.push_back(
        {{"file", trace_files_of(plan)[range.file].path}, {"offset_bytes", range.offset_bytes}, {"size_bytes", range.size_bytes}});
  }
  json["ranges"] = std::move(ranges);
  return json;
}

int list(const UnitWords& words, const Recording& plan) {
  const auto count = static_cast<uint32_t>(units_of(plan).size());
  if (words.format == "text")
    standard_output().write(fmt::format("{:>6} {:>6} {:>16} {:>16} {:>14}\n", "unit", "stream", "from", "to", "bytes to read"));
  for (uint32_t i = 0; i < count; ++i) {
    const nlohmann::ordered_json json = unit_json(plan, i);
    if (words.format == "json") {
      standard_output().write(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
      continue;
    }
    uint64_t bytes = 0;
    for (const auto& range : json["ranges"]) bytes += range["size_bytes"].get<uint64_t>();
    standard_output().write(fmt::format("{:>6} {:>6} {:>16} {:>16} {:>14}\n", i, json["stream"].get<uint32_t>(),
                                        json["first_offset_bytes"].get<uint64_t>(), json["end_offset_bytes"].get<uint64_t>(), bytes));
  }
  return kExitOk;
}

/// Decodes the unit once, and writes its tables and steps.
Status decode(const UnitWords& words, const Recording& plan, uint32_t number) {
  std::vector<UnitTable> wanted;
  for (const std::string_view name : kUnitTables) wanted.emplace_back(name, unit_request(name));
  const auto tables = open_unit_tables(plan, number, wanted, unit_file(words.output, number, "steps"), true);
  if (!tables) return tables.error();
  for (size_t i = 0; i < tables->size(); ++i) {
    if (Status status = write_lines(*(*tables)[i], unit_file(words.output, number, std::string(kUnitTables[i]) + ".jsonl")); !status)
      return status;
  }
  return {};
}

int run_unit(const UnitWords& words) {
  const Result<std::unique_ptr<Recording>> plan = open_plan(words.plan, words.traces, !words.unit);
  if (!plan) return report_error(plan.error());
  if (!words.unit) return list(words, **plan);
  const uint32_t number = *words.unit;
  if (number >= units_of(**plan).size())
    return report_error(
        {ErrorCode::invalid_argument, fmt::format("{} has no unit {}; it has {}", words.plan, number, units_of(**plan).size()), 0});
  if (words.output.empty()) return report_error({ErrorCode::contradictory_options, "name the folder for the results with -o DIR", 0});
  const PlanUnit& unit = units_of(**plan)[number];
  if (const Status status = check_unit(**plan, unit); !status) return report_error(status.error());
  const ResultFolder folder(words.output);
  if (const Status status = decode(words, **plan, number); !status) return report_error(status.error());
  // Written last: if this file exists, the unit is complete.
  const Status summed = write_table_sums(words.output, plan_id(**plan), number);
  return summed ? kExitOk : report_error(summed.error());
}

}  // namespace

Command add_unit(CLI::App& app) {
  auto words = std::make_shared<UnitWords>();
  CLI::App& command = *app.add_subcommand("unit", "Decode one unit of a plan, or list its units");
  command.add_option("plan", words->plan, "the plan, from 'ptdecode plan'")->required();
  command.add_option("unit", words->unit, "number of the unit, from 0; none: list the units");
  command.add_option("-o,--output", words->output, "the folder for the results")->type_name("DIR");
  command.add_option("--trace", words->traces, "where a trace file of the plan is; for several files repeat it, in the order of the plan")
      ->type_name("FILE");
  add_format_option(command, words->format, "of the list of units: text, or json with the byte ranges of each");
  command.footer(
      "Writes unit-NUMBER.edges.jsonl, .block_counts.jsonl, .gaps.jsonl and .events.jsonl (TABLES.md). 'ptdecode merge' uses "
      "unit-NUMBER.steps and .steps.all to follow calls across units. The last file is unit-NUMBER.sums.json, with the sizes and hashes "
      "of the tables. Each file appears when it is complete. Running the command again gives the same files.\n"
      "The trace file may be sparse: only the ranges of the unit are read (--json lists them).");
  return [words] { return run_unit(*words); };
}

}  // namespace ptd::cli
