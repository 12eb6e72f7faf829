// `ptdecode record --emulate=system`.
#include "cli/record/record_system.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "capture/emulate/user_runner.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/record/record_live.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

std::string summary_text(const SystemWords& words, const emulate::SystemResult& result) {
  const emulate::SystemSummary& s = result.summary;
  std::string text =
      fmt::format("ptdecode: {}: {} instructions, {} in the kernel (Linux {}), {} bytes of trace of {}, {}\n", shown(words.options.output),
                  s.instructions, s.kernel_instructions, shown(result.kernel), s.packet_bytes, counted(s.cpus, "cpu"),
                  counted(s.text_pokes, "change of the kernel's code", "changes of the kernel's code"));
  text += fmt::format(
      "ptdecode: the machine booted in {:.1f} s, the program ran for {:.1f} s, and the recording was complete after {:.1f} s more\n",
      result.boot_s, result.run_s, result.end_s);
  if (s.irregular != 0)
    text += fmt::format("ptdecode: the flow was lost {}: the emulator did not report where it continued\n", counted(s.irregular, "time"));
  if (s.unknown_mode != 0)
    text += fmt::format("ptdecode: the trace was off {}: code ran in a segment that the program made (modify_ldt)\n",
                        counted(s.unknown_mode, "time"));
  if (s.clock_reads_wrong != 0)
    text +=
        fmt::format("ptdecode: the trace's clock differed from the machine's at {} of {} readings\n", s.clock_reads_wrong, s.clock_reads);
  if (s.lost_records != 0)
    text += fmt::format("ptdecode: {} of the machine's kernel could not be recorded: a ring was full, or a change of code is not known\n",
                        counted(s.lost_records, "record"));
  for (const std::string& message : result.messages) text += "ptdecode: " + shown(message) + "\n";
  return text;
}

}  // namespace

bool SystemWords::typed(const CLI::App& command) const {
  for (const char* name : {"--kernel", "--cpus", "--memory", "--events", "--boot"}) {
    if (command.get_option(name)->count() != 0) return true;
  }
  return false;
}

void add_system_options(CLI::App& command, SystemWords& words) {
  command.add_option(
      "--kernel", words.options.kernel,
      "--emulate=system: the kernel to boot, a bzImage with its lib/modules, or an arm64 Image where the program is one for aarch64\n"
      "(default: this machine's, else the newest in /boot, else\n"
      "what 'ptdecode emulator fetch' has downloaded)");
  command.add_option("--cpus", words.options.cpus, "--emulate=system: processors of the machine (default 2)")
      ->check(CLI::Range(1U, emulate::kMostGuestCpus));
  command.add_option("--memory", words.memory, "--emulate=system: memory of the machine (default 1G)")->type_name("SIZE");
  command.add_flag("--boot", words.options.boot,
                   "--emulate=system: trace the machine from the kernel's first instruction on, not from the program's exec on");
  command.add_option(
      "--events", words.events,
      "--emulate=system: what the kernel does while the program runs, separated by commas. It changes its own code in the ways of\n"
      "keys, tracepoints, ftrace, kprobes, bpf, fentry and modules, or switches a tracepoint SYSTEM:EVENT; load adds processes. NAME=N\n"
      "makes N changes and records until they are made, NAME alone makes them until the program ends");
}

int record_system(SystemWords& words, const StashWords& stash, bool quiet) {
  emulate::SystemOptions& options = words.options;
  if (options.command.empty())
    return report_error({ErrorCode::contradictory_options, "record: no program is given: ptdecode record --emulate=system -- PROGRAM", 0});
  if (const auto program = emulate::find_program_to_run(options.command); !program.ok()) return refuse_program(program.error());
  const Result<uint64_t> memory = parse_size("--memory", words.memory);
  if (!memory) return report_error(memory.error());
  if (*memory < emulate::kLeastGuestBytes || *memory > emulate::kMostGuestBytes)
    return report_error({ErrorCode::bad_option, "--memory: " + words.memory + " is not from 256M to 64G", 0});
  options.memory_bytes = *memory;
  Result<std::vector<emulate::KernelEvent>> events = emulate::parse_kernel_events(words.events);
  if (!events) return report_error(events.error());
  options.events = std::move(*events);
  standard_output().flush();
  const Result<emulate::SystemResult> result = emulate::emulate_system(options);
  if (!result) return report_error(result.error());
  const emulate::SystemSummary& s = result->summary;
  if (!quiet || s.irregular != 0 || s.unknown_mode != 0 || s.lost_records != 0) say_on_error(summary_text(words, *result));
  keep_recorded(options.output, stash, quiet);
  return result->exit_status;
}

}  // namespace ptd::cli
