// `ptdecode emulator`: the qemu-user programs that record --emulate can use.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "capture/emulators/emulator_build.h"
#include "capture/emulators/emulator_query.h"
#include "cli/cmd/machine_commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "image/base/environment.h"

namespace ptd::cli {

namespace {

struct Words {
  std::string action = "list", name;
  unsigned jobs = 0;
};

int list() {
  bool works = false;
  for (const char* name : {"qemu-x86_64", "qemu-aarch64"}) {
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

int build(const Words& words) {
  BuildProgress progress;
  emulators::BuildOptions options;
  options.folder = emulators::built_emulators();
  options.jobs = words.jobs;
  options.on_step = [&](const std::string& text) { progress.begin(text); };
  options.on_progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
  stop_on_interrupt();
  options.stop = interrupted;
  const Result<emulators::BuiltEmulator> built = emulators::build_emulator(options);
  progress.end_line();
  if (!built && interrupted()) {
    say_on_error("ptdecode: interrupted; the unfinished build is removed\n");
    return kExitInterrupted;
  }
  if (!built) return report_error(built.error());
  standard_output().write(fmt::format("{}: qemu-x86_64 and qemu-aarch64 with plugins; record --emulate finds them\n", shown(built->folder)));
  return kExitOk;
}

int remove(const Words& words) {
  const Result<size_t> removed = emulators::remove_built(emulators::built_emulators(), words.name);
  if (!removed) return report_error(removed.error());
  standard_output().write(fmt::format("removed {} {}\n", *removed, *removed == 1 ? "build" : "builds"));
  return kExitOk;
}

int run(const Words& words) {
  if (words.action != "remove" && !words.name.empty())
    return report_error({ErrorCode::contradictory_options, "emulator: only remove takes the name of a build", 0});
  if (words.action == "build") return build(words);
  return words.action == "remove" ? remove(words) : list();
}

}  // namespace

Command add_emulator(CLI::App& app) {
  auto words = std::make_shared<Words>();
  CLI::App& command = *app.add_subcommand("emulator", "Manage the emulators of record --emulate: list, build, remove");
  command
      .add_option("action", words->action,
                  "list: the ones in PATH and the built ones; build: qemu-user with plugins from the distribution's source package;\n"
                  "remove: what was built")
      ->check(CLI::IsMember({"list", "build", "remove"}));
  command.add_option("name", words->name, "remove: one build, as list shows its folder (default: all)");
  command.add_option("-j,--jobs", words->jobs, "build: compilers at once (default: one per cpu)");
  command.footer(
      "Some distributions build qemu-user without plugins (Debian 13). build downloads the source package of the installed release with apt,\n"
      "which checks its signature, compiles the user-mode emulators into ptdecode-emulators in $XDG_CACHE_HOME or ~/.cache, and needs no root\n"
      "rights. The exit status of list is 3 if no emulator can be used.\n"
      "Examples:\n"
      "  ptdecode emulator build && ptdecode record --emulate -- ls\n"
      "  ptdecode emulator list\n"
      "  ptdecode emulator remove");
  return [words] { return run(*words); };
}

}  // namespace ptd::cli
