// What commands that record say about the stash.
#include "cli/report/stash_words.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string_view>

#include "capture/keep/code_saver_thread.h"
#include "capture/keep/save_code.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

void add_stash_options(CLI::App& command, StashWords& words) {
  command.add_flag("--no-stash", words.off, "do not save the programs and libraries that were recorded");
  command
      .add_option("--stash", words.path,
                  "folder for the saved files, each stored once (default: see 'ptdecode stash "
                  "--help')")
      ->type_name("DIR");
  command.add_option("--stash-limit", words.limit, "save at most this much new code: 500M (default 4G)")
      ->type_name("SIZE")
      ->check([](const std::string& text) {
        constexpr std::string_view kNamed = "--stash-limit: ";  // CLI11 names the option, too
        const Result<uint64_t> limit = parse_size("--stash-limit", text);
        return limit ? std::string() : limit.error().message.substr(kNamed.size());
      });
}

namespace {

/// False: nothing is to be kept.
bool options_of(const StashWords& words, bool live, SaveOptions& options) {
  options.stash = words.path.empty() ? stash::own_stash_path() : words.path;
  options.just_recorded = live;
  if (words.off || options.stash.empty() || options.stash == "off") return false;
  if (!words.limit.empty()) options.limits.recording_bytes = *parse_size("--stash-limit", words.limit);  // checked when it was typed
  return true;
}

void tell(const Result<SaveReport>& report, const std::string& stash, bool quiet) {
  if (!report) {
    say_on_error("ptdecode: the recorded code is not saved: " + report.error().message + "\n");
  } else if (!quiet) {
    say_on_error(saved_text(*report, stash, report->new_contents == 0));
  }
}

}  // namespace

void keep_recorded(const std::string& recording, const StashWords& words, bool quiet) {
  SaveOptions options;
  if (options_of(words, false, options)) tell(save_code(recording, options), options.stash, quiet);
}

std::shared_ptr<CodeSaverThread> begin_saving(const std::string& recording, const StashWords& words) {
  SaveOptions options;
  if (recording == "-" || !options_of(words, true, options)) return nullptr;
  Result<std::unique_ptr<CodeSaverThread>> saver = CodeSaverThread::begin(recording, options);
  if (!saver) say_on_error("ptdecode: the recorded code is not saved: " + saver.error().message + "\n");
  return saver ? std::shared_ptr<CodeSaverThread>(std::move(*saver)) : nullptr;
}

void end_saving(CodeSaverThread& saver, bool quiet) { tell(saver.finish(), saver.stash_path(), quiet); }

void keep_snapshot(const std::string& recording, const StashWords& words, bool quiet) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(recording, error)) return;
  SaveOptions options;
  if (!options_of(words, true, options)) return;
  const Result<std::unique_ptr<CodeSaver>> saver = CodeSaver::begin(recording, options);
  const Status looked = saver ? (*saver)->on_recording() : Status(saver.error());
  if (!looked) return say_on_error("ptdecode: the recorded code is not saved: " + looked.error().message + "\n");
  tell((*saver)->finish(), options.stash, quiet);
}

std::string saved_text(const SaveReport& report, const std::string& stash, bool quiet) {
  constexpr size_t kNamed = 5;
  std::string text;
  if (!quiet)
    text = fmt::format("ptdecode: {} file{} saved in {}: {} new, {}\n", report.contents, report.contents == 1 ? "" : "s", stash,
                       report.new_contents, size_text(report.new_bytes));
  for (size_t i = 0; i < report.skipped.size() && i < kNamed; ++i)
    text += fmt::format("ptdecode: not saved: {}: {}\n", shown(report.skipped[i].path), shown(report.skipped[i].why));
  const uint64_t more = report.skipped.size() - std::min(report.skipped.size(), kNamed) + report.unnamed;
  if (more != 0) text += fmt::format("ptdecode: not saved: {} more\n", more);
  return text;
}

}  // namespace ptd::cli
