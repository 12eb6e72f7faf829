// ptdecode: the command line over the library. The only code that prints.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "analysis/names/nearest_word.h"
#include "cli/cmd/commands.h"
#include "cli/cmd/info.h"
#include "cli/cmd/machine_commands.h"
#include "cli/export/database.h"
#include "cli/fleet/fleet_commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/perf_words.h"
#include "cli/options/usage_text.h"
#include "cli/text/clean_text.h"
#include "cli/text/gzip.h"
#include "cli/text/output.h"
#include "cli/text/shell_word.h"
#include "image/base/environment.h"
#include "image/base/inherited_signals.h"
#include "image/base/read_files.h"
#include "image/base/shrunk_files.h"
#include "image/base/whole_file.h"
#include "ptdecode/ptdecode.h"

namespace {

constexpr const char* kIntro =
    "ptdecode decodes Intel PT and Arm CoreSight traces exactly, including code that changes while it runs.\n\n"
    "  perf record -e intel_pt// --kcore -- ./program    makes ./perf.data\n"
    "  ptdecode                                          describe the recording (-i FILE: another one)\n"
    "  ptdecode script --call-trace | less               callers and callees\n"
    "  ptdecode stat                                     how much was traced, and what was lost\n"
    "  ptdecode demo                                     no recording needed: see a kernel patch itself\n";
constexpr const char* kNext =
    "\nnext: 'ptdecode script | less' lists the flow, 'ptdecode stat' decodes and counts, 'ptdecode --help' lists all commands\n";
constexpr const char* kExits =
    "Exit status: 0 success, 1 a file could not be read, 2 wrong usage or nothing matches a filter (-C, --pid, --tid, --comm, --time, -S, "
    "--func), 3 check has findings, or a comparison found a difference (with --strict also if flow was lost or there are findings, but for "
    "those of check alone; for packets, if bytes are not a valid "
    "packet).\n"
    "'ptdecode COMMAND --help' explains a command, with examples.";

/// That of the library, and the libraries that only the command line uses. These have headers only, or no function that returns their
/// version.
std::string build_info() {
  return fmt::format("{}CLI11 {}\nfmt {}.{}.{}\nSQLite {}\nzlib {}", ptd_build_info(), CLI11_VERSION, FMT_VERSION / 10000,
                     FMT_VERSION / 100 % 100, FMT_VERSION % 100, ptd::cli::sqlite_version(), ptd::cli::version_of_zlib());
}

int output_lost() {
  ptd::cli::say_on_error("ptdecode: cannot write to standard output\n");
  return ptd::cli::kExitFile;
}

/// Returns the exit status after a check of the input files: zero bytes were read where one became shorter meanwhile.
int after_check_of_files(int status) {
  const std::vector<std::string> files = ptd::shrunk_files();
  for (const std::string& file : files) {
    ptd::cli::say_on_error(fmt::format(
        "ptdecode: {}: the file became shorter while it was read: the results are not reliable; run the command again when no program "
        "writes the file\n",
        ptd::cli::shown(file)));
  }
  return files.empty() || status == ptd::cli::kExitInterrupted ? status : ptd::cli::kExitFile;
}

/// Returns the exit status once all output is written: a result that is lost is an error.
int after_output(int status) {
  ptd::cli::standard_output().flush();
  const bool done = status == ptd::cli::kExitOk || status == ptd::cli::kExitFinding;
  return done && ptd::cli::standard_output().error() != 0 ? output_lost() : status;
}

// `ptdecode` alone: lists the recordings in this folder and suggests commands.
int without_command(const CLI::App& app) {
  std::error_code ignored;
  if (!std::filesystem::exists("perf.data", ignored)) {
    ptd::cli::standard_output().write(app.help());
    return ptd::cli::kExitUsage;
  }
  const int status = after_check_of_files(ptd::cli::show_info({}, false));
  ptd::cli::standard_output().write(kNext);
  return after_output(status);
}

/// What to say when memory, or what a thread needs of it, is not to be had.
std::string memory_text() {
  struct rlimit limit {};
  std::string text = "ptdecode: out of memory";
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(": this process may use {} KiB of address space (ulimit -v)", limit.rlim_cur / 1024);
  return text + "; decode a part of the trace with --time\n";
}

/// Address space that is given back when memory runs out: to handle an exception, and to name it, takes memory as well.
constexpr size_t kReserveBytes = 1U << 20;
std::atomic<void*> g_reserve = nullptr;

bool is_shortage(const std::exception_ptr& failure) {
  std::free(g_reserve.exchange(nullptr));
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error& error) {  // a thread that cannot be started
    return error.code() == std::errc::resource_unavailable_try_again || error.code() == std::errc::not_enough_memory;
  } catch (...) {
    return false;
  }
  return std::uncaught_exceptions() != 0;  // on the way out of a failure, threads were left
}

std::terminate_handler g_terminate = std::abort;  // as the library has it

// An exception that leaves a thread ends the program here. Anything but a shortage is a bug, and aborts.
[[noreturn]] void end_of_thread() {
  if (!is_shortage(std::current_exception())) g_terminate(), std::abort();
  ptd::cli::say_on_error(memory_text());
  _exit(ptd::cli::kExitFile);
}

/// Puts the command first: options may precede it ("ptdecode -i FILE stat"), and without a command they are those of `info`. A word after
/// an option that takes a value is the value, also if a command has that name.
void put_command_first(const CLI::App& app, std::vector<std::string>& words, const std::map<std::string, ptd::cli::Command>& commands) {
  static const std::set<std::string> kOwn = {"-h", "--help", "--version"};
  if (!words.front().starts_with('-') || kOwn.contains(words.front())) return;
  const auto takes_value = [](const CLI::App& command, const std::string& word) {
    const CLI::Option* option = word.starts_with('-') ? command.get_option_no_throw(word) : nullptr;
    return option != nullptr && option->get_expected_min() > 0;
  };
  for (auto word = words.begin() + 1; word != words.end() && *word != "--"; ++word) {
    if (!commands.contains(*word) || takes_value(*app.get_subcommand(*word), *std::prev(word))) continue;
    std::rotate(words.begin(), word, word + 1);
    return;
  }
  words.insert(words.begin(), "info");
}

int unknown_command(const std::string& word, const std::map<std::string, ptd::cli::Command>& commands) {
  std::string names;
  std::vector<std::string> known;
  for (const auto& [name, command] : commands) {
    known.push_back(name);
    names += (names.empty() ? "" : ", ") + name;
  }
  std::error_code ignored;
  std::string text = fmt::format("ptdecode: '{}' is not a command", word);
  if (std::filesystem::exists(word, ignored)) {
    text += fmt::format("; to describe a recording: ptdecode info -i {}\n", ptd::cli::shell_word(word));
  } else if (const std::string here = ptd::cli::nearest_of_perf(word); !here.empty()) {
    text += fmt::format("; equivalent of 'perf {}': {}\n", word, here);
  } else if (const std::string nearest = ptd::nearest_word(word, known); !nearest.empty()) {
    text += fmt::format("; did you mean '{}'?\n", nearest);
  } else {
    text += fmt::format("; the commands: {}\n", names);
  }
  ptd::cli::say_on_error(text + "ptdecode: see 'ptdecode --help'\n");
  return ptd::cli::kExitUsage;
}

/// The first option whose value is an empty word, which would mean that nothing is selected, or everything; empty if none is. The words of
/// a program to run may be empty.
std::string empty_option(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option->get_expected_min() == 0) continue;  // words of a program; options that need no value
    const auto& values = option->results();
    if (std::find(values.begin(), values.end(), "") != values.end()) return option->get_name();
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  ptd::note_inherited_signals();
  ptd::cli::occupy_standard_descriptors();
  ptd::remove_temporaries_on_signals();
  const ptd::ReadFilesScope noted;  // no output replaces one of them
  g_terminate = std::set_terminate(end_of_thread);
  g_reserve = std::malloc(kReserveBytes);  // NOLINT: never touched, so only address space
  std::signal(SIGPIPE, SIG_IGN);           // NOLINT: a reader that goes away shows as a failed write
  std::signal(SIGXFSZ, SIG_IGN);           // NOLINT: so does a limit on the size of files
  CLI::App app{kIntro, "ptdecode"};
  app.footer(kExits);
  app.set_version_flag("--version", build_info, "print the versions of ptdecode and its libraries, and the commit");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.formatter(ptd::cli::help_formatter());
  app.get_formatter()->column_width(34);

  const std::map<std::string, ptd::cli::Command> commands = {
      {"info", ptd::cli::add_info(app)},         {"script", ptd::cli::add_script(app)},     {"functions", ptd::cli::add_functions(app)},
      {"timeline", ptd::cli::add_timeline(app)}, {"flame", ptd::cli::add_flame(app)},       {"export", ptd::cli::add_export(app)},
      {"report", ptd::cli::add_report(app)},     {"coverage", ptd::cli::add_coverage(app)}, {"profile", ptd::cli::add_profile(app)},
      {"stat", ptd::cli::add_stat(app)},         {"check", ptd::cli::add_check(app)},       {"image", ptd::cli::add_image(app)},
      {"packets", ptd::cli::add_packets(app)},   {"record", ptd::cli::add_record(app)},     {"sessions", ptd::cli::add_sessions(app)},
      {"snapshot", ptd::cli::add_snapshot(app)}, {"stop", ptd::cli::add_stop(app)},         {"bundle", ptd::cli::add_bundle(app)},
      {"demo", ptd::cli::add_demo(app)},         {"verify", ptd::cli::add_verify(app)},     {"stash", ptd::cli::add_stash(app)},
      {"doctor", ptd::cli::add_doctor(app)},     {"emulator", ptd::cli::add_emulator(app)}, {"replay", ptd::cli::add_replay(app)},
      {"plan", ptd::cli::add_plan(app)},         {"unit", ptd::cli::add_unit(app)},         {"merge", ptd::cli::add_merge(app)},
  };
  if (argc == 1) return without_command(app);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.front() == "help") {  // "ptdecode help COMMAND", as with perf
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (!words.front().starts_with('-') && !commands.contains(words.front())) return unknown_command(words.front(), commands);
  put_command_first(app, words, commands);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int status = app.exit(help, text, text);
    ptd::cli::standard_output().write(text.str());
    return after_output(status);
  } catch (const CLI::ParseError& error) {
    ptd::cli::say_on_error(ptd::cli::usage_text(app, error, words));
    return ptd::cli::kExitUsage;
  }
  if (const std::string empty = empty_option(*app.get_subcommands().front()); !empty.empty()) {
    ptd::cli::say_on_error("ptdecode: " + empty + " has an empty value\n");
    return ptd::cli::kExitUsage;
  }
  if (const std::string empty = ptd::environment::empty_variable(); !empty.empty()) {
    ptd::cli::say_on_error("ptdecode: the environment variable " + empty + " has an empty value: set it to a folder, or unset it\n");
    return ptd::cli::kExitUsage;
  }
  const std::string command = app.get_subcommands().front()->get_name();
  constexpr std::array<std::string_view, 5> kRecorders = {"record", "sessions", "snapshot", "stop", "demo"};  // signals end the recording
  if (std::find(kRecorders.begin(), kRecorders.end(), command) == kRecorders.end()) ptd::cli::exit_on_interrupt(ptd::cli::kExitInterrupted);
  const int status = after_check_of_files(commands.at(command)());
  return after_output(status);
} catch (const std::exception& error) {
  const bool shortage = is_shortage(std::current_exception());
  ptd::cli::say_on_error(shortage ? memory_text() : std::string("ptdecode: ") + error.what() + "\n");
  return ptd::cli::kExitFile;
}
