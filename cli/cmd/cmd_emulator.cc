// `ptdecode emulator`: the emulators and kernels that record --emulate can use.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "capture/emulate/system/kernel_image.h"
#include "capture/emulators/emulator_build.h"
#include "capture/emulators/emulator_fetch.h"
#include "capture/emulators/emulator_query.h"
#include "cli/cmd/machine_commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "image/base/environment.h"

namespace ptd::cli {

namespace {

using emulators::MachineArch;

struct EmulatorWords {
  std::string action = "list", name, machine;
  unsigned jobs = 0;
};

int list() {
  bool works = false;
  for (const char* name :
       {"qemu-x86_64", "qemu-aarch64", emulators::system_emulator(MachineArch::x86_64), emulators::system_emulator(MachineArch::arm64)}) {
    emulators::EmulatorSearch search;
    search.name = name;
    search.path = environment::search_path();
    search.built = emulators::built_emulators();
    const std::vector<emulators::Emulator> found = emulators::find_emulators(search, true);
    if (found.empty()) standard_output().write(fmt::format("{:<8} {} is not installed\n", "missing", name));
    bool used = false;
    for (const emulators::Emulator& emulator : found) {
      const bool good = emulator.fitness == emulators::Fitness::works;
      standard_output().write(fmt::format("{:<8} {}\n", !good ? "unusable" : used ? "works" : "used", shown(emulator.found)));
      used = used || good;
    }
    works = works || used;
  }
  for (const MachineArch arch : {MachineArch::x86_64, MachineArch::arm64}) {
    const Result<emulate::KernelImage> kernel = emulate::find_kernel(emulate::default_kernel_search({}, arch));
    const char* machine = arch == MachineArch::arm64 ? "arm64" : "x86-64";
    standard_output().write(kernel ? fmt::format("{:<8} {} (Linux {}), for {} machines of --emulate=system\n", "used", shown(kernel->path),
                                                 shown(kernel->release), machine)
                                   : fmt::format("{:<8} {}\n", "missing", shown(kernel.error().message)));
  }
  return works ? kExitOk : kExitFinding;
}

// On a terminal one line that is redrawn; else a line for each tenth.
class BuildProgress {
 public:
  void begin(const std::string& text) {
    end_line();
    say_on_error("ptdecode: " + text + "\n");
    tenth_ = 0;
  }
  void show(uint64_t done, uint64_t all) {
    constexpr uint64_t kParts = 10;
    if (terminal_) {
      say_on_error(fmt::format("\r  {} of {}\033[K", done, all));
      drawn_ = true;
    } else if (const uint64_t tenth = done * kParts / all; tenth > tenth_) {
      tenth_ = tenth;
      say_on_error(fmt::format("  {} of {}\n", done, all));
    }
  }
  void end_line() {
    if (drawn_) say_on_error("\n");
    drawn_ = false;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  uint64_t tenth_ = 0;
};

// Runs `work`, whose steps are shown, until it ends or Ctrl-C ends it.
template <class Options, class Work>
auto with_progress(Options& options, Work&& work) {
  BuildProgress progress;
  options.folder = emulators::built_emulators();
  options.on_step = [&](const std::string& text) { progress.begin(text); };
  options.on_progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
  stop_on_interrupt();
  options.stop = interrupted;
  auto made = work(options);
  progress.end_line();
  return made;
}

int report_failure(const Error& error) {
  if (!interrupted()) return report_error(error);
  say_on_error("ptdecode: interrupted; what was unfinished is removed\n");
  return kExitInterrupted;
}

int build(const EmulatorWords& words) {
  emulators::BuildOptions options;
  options.jobs = words.jobs;
  const auto built = with_progress(options, emulators::build_emulator);
  if (!built) return report_failure(built.error());
  standard_output().write(
      fmt::format("{}: qemu-x86_64 and qemu-aarch64 with plugins; record --emulate finds them\n", shown(built->folder)));
  return kExitOk;
}

// What record --emulate=system lacks; with a name that part in any case.
int fetch(const EmulatorWords& words) {
  emulators::FetchOptions options;
  if (!words.name.empty() && words.name != "kernel" && words.name != "qemu-system")
    return report_error({ErrorCode::bad_option, "emulator fetch: '" + words.name + "' is neither kernel nor qemu-system", 0});
  options.machine = words.machine == "arm64" ? MachineArch::arm64 : MachineArch::x86_64;
  emulators::EmulatorSearch search;
  search.name = emulators::system_emulator(options.machine);
  search.path = environment::search_path();
  search.built = emulators::built_emulators();
  options.kernel =
      words.name == "kernel" || (words.name.empty() && !emulate::find_kernel(emulate::default_kernel_search({}, options.machine)));
  options.emulator =
      words.name == "qemu-system" || (words.name.empty() && emulators::choose_emulator(search).fitness != emulators::Fitness::works);
  if (!options.kernel && !options.emulator) {
    standard_output().write("nothing is missing: 'ptdecode emulator list' shows what record --emulate=system uses\n");
    return kExitOk;
  }
  const auto fetched = with_progress(options, emulators::fetch_for_system);
  if (!fetched) return report_failure(fetched.error());
  for (const std::string& folder : *fetched) standard_output().write(fmt::format("{}: record --emulate=system finds it\n", shown(folder)));
  return kExitOk;
}

int remove(const EmulatorWords& words) {
  const Result<size_t> removed = emulators::remove_built(emulators::built_emulators(), words.name);
  if (!removed) return report_error(removed.error());
  standard_output().write(fmt::format("removed {} {}\n", *removed, *removed == 1 ? "build" : "builds"));
  return kExitOk;
}

int run_emulator(const EmulatorWords& words) {
  if (words.action != "remove" && words.action != "fetch" && !words.name.empty())
    return report_error({ErrorCode::contradictory_options, "emulator: only remove and fetch take a name", 0});
  if (words.action != "fetch" && !words.machine.empty())
    return report_error({ErrorCode::contradictory_options, "emulator: only fetch takes --machine", 0});
  if (words.action == "build") return build(words);
  if (words.action == "fetch") return fetch(words);
  return words.action == "remove" ? remove(words) : list();
}

}  // namespace

Command add_emulator(CLI::App& app) {
  auto words = std::make_shared<EmulatorWords>();
  CLI::App& command = *app.add_subcommand("emulator", "Manage the emulators of record --emulate: list, build, fetch, remove");
  command
      .add_option("action", words->action,
                  "list: the ones in PATH and the built ones; build: qemu-user with plugins from the distribution's source package;\n"
                  "fetch: what --emulate=system needs, from the distribution's packages; remove: what was built or fetched")
      ->check(CLI::IsMember({"list", "build", "fetch", "remove"}));
  command.add_option("name", words->name,
                     "remove: one build, as list shows its folder (default: all); fetch: kernel or qemu-system (default: what is missing)");
  command.add_option("--machine", words->machine, "fetch: for programs of x86-64 (default) or arm64")
      ->check(CLI::IsMember({"x86-64", "arm64"}));
  command.add_option("-j,--jobs", words->jobs, "build: compilers at once (default: one per cpu)");
  command.footer(
      "Some distributions build qemu-user without plugins (Debian 13). build downloads the source package of the installed release with "
      "apt, which checks its signature, compiles the user-mode emulators into ptdecode-emulators in $XDG_CACHE_HOME or ~/.cache, and "
      "needs no root rights. fetch downloads and unpacks the release's kernel image (about 400 MB) and qemu-system of version 9.2 or "
      "later to the same folder, also without root rights: Debian 12 has that QEMU in its backports. The exit status of list is 3 if no "
      "emulator can be used.\n"
      "Examples:\n"
      "  ptdecode emulator build && ptdecode record --emulate -- ls\n"
      "  ptdecode emulator fetch && ptdecode record --emulate=system -- ls\n"
      "  ptdecode emulator fetch --machine arm64 && ptdecode record --emulate=system -- ./program-for-aarch64\n"
      "  ptdecode emulator list\n"
      "  ptdecode emulator remove");
  return [words] { return run_emulator(*words); };
}

}  // namespace ptd::cli
