// `ptdecode stash`: the code that was kept of recordings.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "capture/keep/save_code.h"
#include "cli/cmd/machine_commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/report/stash_words.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "image/stash/stash_care.h"
#include "recording/image/stashed_code.h"

namespace ptd::cli {

namespace {

struct StashCommandWords {
  std::string action = "ls", path, recording = "perf.data", older_than, max_size, format = "text";
  bool system = false, contents = false, gone = false, dry_run = false, remove = false, quiet = false;
};

std::string stash_path(const StashCommandWords& words) {
  if (!words.path.empty()) return words.path;
  return words.system ? std::string(stash::kSystemStash) : stash::own_stash_path();
}

/// 0: not known, as of a recording whose entries this user may not read.
std::string date_text(int64_t seconds) {
  if (seconds == 0) return fmt::format("{:<16}", "unknown");
  const std::time_t time = seconds;
  std::tm broken{};
  std::array<char, 32> text{};
  if (::localtime_r(&time, &broken) == nullptr) return "?";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &broken)};
}

nlohmann::json or_null(int64_t seconds) { return seconds == 0 ? nlohmann::json() : nlohmann::json(seconds); }

size_t processes_of(const stash::Entries& entries) {
  std::vector<int32_t> pids;
  for (const stash::Entry& entry : entries.entries) pids.push_back(entry.pid);
  std::sort(pids.begin(), pids.end());
  return static_cast<size_t>(std::unique(pids.begin(), pids.end()) - pids.begin());
}

nlohmann::json json_of(const stash::Listing& listing, const std::string& path) {
  nlohmann::json json = {
      {"schema", "ptdecode-stash-1"}, {"stash", path}, {"bytes", listing.total_bytes}, {"in_the_making", listing.in_the_making}};
  json["recordings"] = nlohmann::json::array();
  for (const stash::RecordingInfo& recording : listing.recordings) {
    nlohmann::json entries = nlohmann::json::array();
    for (const stash::Entry& entry : recording.entries.entries)
      entries.push_back({{"pid", entry.pid},
                         {"generation", entry.generation},
                         {"time_ns", entry.time_ns},
                         {"address", entry.address},
                         {"size", entry.size_bytes},
                         {"offset", entry.file_offset_bytes},
                         {"kind", stash::name(entry.kind)},
                         {"hash", entry.hash},
                         {"build_id", entry.build_id},
                         {"path", entry.path}});
    json["recordings"].push_back({{"identity", recording.identity},
                                  {"path", recording.entries.recording},
                                  {"host", recording.entries.host},
                                  {"made_s", or_null(recording.entries.made_s)},
                                  {"used_s", or_null(recording.used_s)},
                                  {"trouble", recording.trouble},
                                  {"contents", recording.contents},
                                  {"bytes", recording.size_bytes},
                                  {"entries", std::move(entries)}});
  }
  json["contents"] = nlohmann::json::array();
  for (const stash::ContentInfo& content : listing.contents)
    json["contents"].push_back({{"hash", content.hash},
                                {"bytes", content.size_bytes},
                                {"recordings", content.recordings},
                                {"added_s", content.added_s},
                                {"build_ids", content.build_ids},
                                {"paths", content.paths}});
  return json;
}

void print_contents(const stash::Listing& listing) {
  for (const stash::ContentInfo& content : listing.contents) {
    const std::string build_id = content.build_ids.empty() ? "" : " build id " + content.build_ids.front();
    standard_output().write(fmt::format("{} {:>10}  {:<13} {}{}\n", content.hash.substr(0, 16), size_text(content.size_bytes),
                                        counted(content.recordings, "recording"),
                                        content.paths.empty() ? "(no entry names it)" : shown(content.paths.front()), shown(build_id)));
  }
}

void print_recordings(const stash::Listing& listing) {
  for (const stash::RecordingInfo& recording : listing.recordings) {
    const stash::Entries& entries = recording.entries;
    standard_output().write(fmt::format("{}  {:>10}  {:<12} {:<13} {}{}\n", date_text(entries.made_s), size_text(recording.size_bytes),
                                        counted(recording.contents, "file"),
                                        recording.trouble.empty() ? counted(processes_of(entries), "process", "processes") : "unknown",
                                        entries.recording.empty() ? recording.identity : shown(entries.recording),
                                        recording.trouble.empty() ? "" : " (" + shown(recording.trouble) + ")"));
  }
}

int list(const StashCommandWords& words, const stash::Stash& stash) {
  const stash::Listing listing = stash::list(stash);
  if (words.format == "json") {
    standard_output().write(json_of(listing, stash.path()).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
    return kExitOk;
  }
  words.contents ? print_contents(listing) : print_recordings(listing);
  standard_output().write(fmt::format("{}: {} of {}, {}{}\n", stash.path(), counted(listing.contents.size(), "file"),
                                      counted(listing.recordings.size(), "recording"), size_text(listing.total_bytes),
                                      listing.in_the_making == 0 ? "" : fmt::format("; {} being written", listing.in_the_making)));
  return kExitOk;
}

int collect(const StashCommandWords& words, stash::Stash& stash) {
  stash::GcOptions options;
  options.gone = words.gone;
  options.dry_run = words.dry_run;
  options.identify = [](const std::string& path) { return recording_identity(path); };
  options.owner_of = recording_of;
  if (!words.older_than.empty()) {
    const Result<int64_t> age = parse_age_s(words.older_than);
    if (!age) return report_error(age.error());
    options.unused_s = *age;
  }
  if (!words.max_size.empty()) {
    const Result<uint64_t> size = parse_size("--max-size", words.max_size);
    if (!size) return report_error(size.error());
    options.most_bytes = *size;
  }
  const Result<stash::GcReport> report = stash::gc(stash, options);
  if (!report) return report_error(report.error());
  const std::string would = words.dry_run ? "would be " : "";
  for (const std::string& path : report->forgotten) standard_output().write(fmt::format("{}forgotten: {}\n", would, shown(path)));
  for (const std::string& path : report->spared)
    standard_output().write(
        fmt::format("recording moved or deleted, but the stash has the only copy of some of its code (--older-than removes it): "
                    "{}\n",
                    shown(path)));
  for (const std::string& trouble : report->troubles) say_on_error("ptdecode: " + shown(trouble) + "\n");
  for (const std::string& path : report->adopted)
    standard_output().write(fmt::format("{}completed: {} (its recorder was killed)\n", would, shown(path)));
  standard_output().write(fmt::format("{}: {}, {} {}freed{}\n", stash.path(), counted(report->contents, "file"),
                                      size_text(report->freed_bytes), would,
                                      report->leftovers == 0 ? "" : fmt::format("; {} removed", counted(report->leftovers, "leftover"))));
  return kExitOk;
}

int verify(const StashCommandWords& words, stash::Stash& stash) {
  const stash::VerifyReport report = stash::verify(stash, words.remove);
  for (const stash::Problem& problem : report.problems)
    standard_output().write(fmt::format("{}: {}{}\n", shown(problem.path), shown(problem.what), problem.removed ? " (removed)" : ""));
  standard_output().write(fmt::format("{}: {}, {}, hashed; {} with {}: {}\n", stash.path(), counted(report.contents, "file"),
                                      size_text(report.bytes), counted(report.recordings, "recording"),
                                      fmt::format("{} entr{}", report.entries, report.entries == 1 ? "y" : "ies"),
                                      report.problems.empty() ? "whole" : counted(report.problems.size(), "problem")));
  return report.problems.empty() ? kExitOk : kExitFinding;
}

int add(const StashCommandWords& words) {
  SaveOptions options;
  options.stash = stash_path(words);
  const Result<SaveReport> report = save_code(words.recording, options);
  if (!report) return report_error(report.error());
  if (!words.quiet || !report->skipped.empty()) say_on_error(saved_text(*report, options.stash, words.quiet));
  return kExitOk;
}

bool is_absent(const std::string& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found;
}

/// On a machine where nothing was recorded yet there is no stash, and looking at it makes none.
bool nothing_yet(const std::string& path) {
  std::error_code error;
  return is_absent(path) ||
         (std::filesystem::is_directory(std::filesystem::symlink_status(path, error)) && std::filesystem::is_empty(path, error) && !error);
}

int tell_nothing(const StashCommandWords& words, const std::string& path) {
  const bool json = words.action == "ls" && words.format == "json";
  standard_output().write(json ? json_of({}, path).dump(2) + "\n" : path + ": empty\n");
  return kExitOk;
}

int run_stash(const StashCommandWords& words) {
  if (words.action == "add") return add(words);
  if (!words.path.empty() && is_absent(words.path))
    return report_error({ErrorCode::not_found, words.path + " does not exist; 'ptdecode record' and 'ptdecode stash add' make a stash", 0});
  if (const std::string path = stash_path(words); !path.empty() && nothing_yet(path)) return tell_nothing(words, path);
  using Access = stash::Stash::Access;
  const Result<std::unique_ptr<stash::Stash>> stash =
      stash::Stash::open(stash_path(words), words.action == "ls" ? Access::read : Access::write);
  if (!stash) return report_error(stash.error());
  if (words.action == "gc") return collect(words, **stash);
  return words.action == "verify" ? verify(words, **stash) : list(words, **stash);
}

}  // namespace

Command add_stash(CLI::App& app) {
  auto words = std::make_shared<StashCommandWords>();
  CLI::App& command = *app.add_subcommand("stash",
                                          "Manage the saved code of recordings, used when the original files change: ls, add, "
                                          "gc, verify");
  command.add_option("action", words->action, "ls: list; add: the files that -i maps; gc: remove unused files; verify: hash everything")
      ->check(CLI::IsMember({"ls", "add", "gc", "verify"}));
  command
      .add_option("--stash", words->path,
                  "the stash (default: $PTDECODE_STASH, else ptdecode in $XDG_CACHE_HOME or ~/.cache; for root /var/cache/ptdecode)")
      ->type_name("DIR");
  command.add_flag("--system", words->system, "the machine's stash: /var/cache/ptdecode");
  command.add_option("-i,--input", words->recording, "add: the recording, made on this machine (default ./perf.data)");
  command.add_flag("--contents", words->contents, "ls: list files instead of recordings");
  add_format_option(command, words->format, "ls: text, or json for programs");
  command.add_option("--older-than", words->older_than, "gc: remove recordings that were not opened for this long: 30d, 12h, 2w")
      ->type_name("AGE");
  command.add_option("--max-size", words->max_size, "gc: remove the least recently opened recordings until this size is left: 2G, 500M")
      ->type_name("SIZE");
  command.add_flag("--gone", words->gone,
                   "gc: remove recordings whose file is gone (and not renamed to .old), except those with deleted files or memory");
  command.add_flag("-n,--dry-run", words->dry_run, "gc: only report what would be removed");
  command.add_flag("--remove", words->remove, "verify: remove damaged files, so that the next recording adds them again");
  command.add_flag("-q,--quiet", words->quiet, "add: no summary");
  command.footer(
      "gc without options removes files that no recording refers to. The exit status of verify is 3 if anything is damaged.\n"
      "Examples:\n"
      "  ptdecode stash add -i perf.data           after perf record: save the programs and libraries that ran\n"
      "  ptdecode stash gc --gone --older-than 30d --max-size 4G\n"
      "  ptdecode stash verify && ptdecode stash ls --json | jq '.recordings[].path'");
  return [words] { return run_stash(*words); };
}

}  // namespace ptd::cli
