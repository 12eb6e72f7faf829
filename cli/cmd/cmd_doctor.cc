// `ptdecode doctor`: what this machine can record, why not more, and what helps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "capture/doctor/doctor.h"
#include "cli/cmd/machine_commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/text/output.h"
#include "image/stash/stash.h"

namespace ptd::cli {

namespace {

std::string list_text(const std::vector<std::pair<bool, const char*>>& abilities, bool wanted) {
  std::string text;
  for (const auto& [able, what] : abilities) {
    if (able == wanted) text += (text.empty() ? "" : ", ") + std::string(what);
  }
  return text.empty() ? "nothing" : text;
}

std::vector<std::pair<bool, const char*>> abilities_of(const doctor::Diagnosis& d) {
  return {{d.user_trace, "trace of your own programs"},     {d.kernel_trace, "trace of the kernel"},
          {d.system_trace, "trace of all processes"},       {d.sideband, "sideband of your own programs"},
          {d.system_sideband, "sideband of all processes"}, {d.emulation, "programs in the emulator"},
          {d.system_emulation, "whole emulated machines"}};
}

void print_json(const doctor::Diagnosis& diagnosis) {
  nlohmann::json json = {{"schema", "ptdecode-doctor-1"},
                         {"trace_unit", diagnosis.trace_unit},
                         {"can",
                          {{"user_trace", diagnosis.user_trace},
                           {"kernel_trace", diagnosis.kernel_trace},
                           {"system_trace", diagnosis.system_trace},
                           {"sideband", diagnosis.sideband},
                           {"system_sideband", diagnosis.system_sideband},
                           {"emulation", diagnosis.emulation},
                           {"system_emulation", diagnosis.system_emulation}}}};
  json["checks"] = nlohmann::json::array();
  for (const doctor::Check& check : diagnosis.checks)
    json["checks"].push_back({{"id", check.id}, {"verdict", name(check.verdict)}, {"found", check.found}, {"fix", check.fix}});
  standard_output().write(json.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
}

void print_text(const doctor::Diagnosis& diagnosis) {
  Output& output = standard_output();
  for (const doctor::Check& check : diagnosis.checks) {
    const char* mark = check.verdict == doctor::Verdict::good ? "ok" : check.verdict == doctor::Verdict::limit ? "limit" : "blocked";
    output.write(fmt::format("{:<7} {:<13} {}\n", mark, check.id, check.found));
    if (!check.fix.empty()) output.write(fmt::format("{:<21} -> {}\n", "", check.fix));
  }
  output.write(
      fmt::format("\ncan record: {}\ncannot: {}\n", list_text(abilities_of(diagnosis), true), list_text(abilities_of(diagnosis), false)));
}

int run_doctor(const std::string& format) {
  doctor::Machine machine = doctor::this_machine();
  machine.stash = stash::own_stash_path();
  const doctor::Diagnosis diagnosis = doctor::diagnose(machine);
  format == "json" ? print_json(diagnosis) : print_text(diagnosis);
  return diagnosis.user_trace ? kExitOk : kExitFinding;
}

}  // namespace

Command add_doctor(CLI::App& app) {
  auto format = std::make_shared<std::string>("text");
  CLI::App& command = *app.add_subcommand("doctor", "Report what this machine can record, what limits it, and how to fix that");
  add_format_option(command, *format, "text, or json for programs");
  command.footer(
      "The exit status is 0 if the processor can trace a program, else 3.\n"
      "Examples:\n"
      "  ptdecode doctor && ptdecode record -e intel_pt//u -- PROGRAM\n"
      "  ptdecode doctor --json | jq -r '.checks[] | select(.verdict != \"good\") | .fix'");
  return [format] { return run_doctor(*format); };
}

}  // namespace ptd::cli
