// `ptdecode coverage`: which lines of source ran, and how often.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>

#include "analysis/names/name_match.h"
#include "cli/cache/source_cache.h"
#include "cli/cache/symbol_cache.h"
#include "cli/calls/call_input.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/whole_file.h"
#include "cli/report/missing_report.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "image/base/read_files.h"
#include "ptdecode/bundle.h"

namespace ptd::cli {

namespace {

struct CoverageWords {
  CallWords calls;
  std::string output, format = "text";
  std::vector<std::string> sources, dsos;
  bool keep_absent = false;
};

/// Name and line: the compiler gives every lambda, and every static C++ function, only its short name.
using FunctionKey = std::pair<std::string, uint32_t>;
/// A file of source. A line's count is that of its instruction that ran most often, added up over the functions and inlined copies that
/// contain code of the line.
struct CoveredFile {
  std::map<uint32_t, uint64_t> lines;
  std::map<FunctionKey, uint64_t> functions;  ///< how often each was entered
  [[nodiscard]] size_t lines_hit() const {
    return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.second != 0; }));
  }
  [[nodiscard]] size_t functions_hit() const {
    return static_cast<size_t>(
        std::count_if(functions.begin(), functions.end(), [](const auto& function) { return function.second != 0; }));
  }
};
using Coverage = std::map<std::string, CoveredFile, std::less<>>;

bool wanted_source(const CoverageWords& words, std::string_view file) {
  return words.sources.empty() ||
         std::any_of(words.sources.begin(), words.sources.end(), [&](const std::string& prefix) { return file.starts_with(prefix); });
}

/// How often the code of a file was executed, and how often branches led to its addresses.
struct FileUse {
  explicit FileUse(const FileCounts& file) : counts(file.runs) {
    for (const CodeBranch& branch : file.branches) branches.emplace(branch.to, &branch);
  }
  /// Returns how often the function `number` of the unit was entered. A first instruction that faults is not executed, and its function is
  /// entered. A direct jump from inside of the function to its first instruction (a loop, or Go's code after it has grown the stack) does
  /// not enter it; an indirect one is a tail call.
  [[nodiscard]] uint64_t entries(const SourceUnit& unit, uint32_t number) const {
    const SourceFunction& function = unit.functions[number];
    if (function.part) return 0;
    uint64_t arrived = 0, from_inside = 0;
    for (auto [at, end] = branches.equal_range(function.entry); at != end; ++at) {
      const CodeBranch& branch = *at->second;
      arrived += branch.count;
      const bool may_loop = branch.is_jump && (!branch.is_indirect || function.inlined);
      if (may_loop && unit.contains(number, branch.from)) from_inside += branch.count;
    }
    const uint64_t executed = counts.highest(function.entry, function.entry + 1);
    const uint64_t all = function.inlined ? executed : std::max(executed, arrived);
    return all - std::min(all, from_inside);
  }
  AddressCounts counts;
  std::multimap<uint64_t, const CodeBranch*> branches;  ///< by target
};

/// Returns whether a statement is the declaration of a function at the start of a part of it, which is executed after the function was
/// entered.
bool declares_part(const SourceUnit& unit, const SourceStatement& statement) {
  if (statement.scope >= unit.functions.size()) return false;
  const SourceFunction& function = unit.functions[statement.scope];
  return function.part && function.line == statement.line && function.file == statement.file;
}

void add_unit(const CoverageWords& words, const SourceUnit& unit, const FileUse& use, Coverage& coverage) {
  using Copy = std::tuple<std::string_view, uint32_t, uint32_t>;  // file, line, and the function or inlined call that holds the code
  std::map<Copy, uint64_t> copies;
  std::map<std::string_view, std::string> normal;  // "/src/elf/../include/list.h" is the file of "/src/csu/../include/list.h"
  const auto path_of = [&](std::string_view file) -> const std::string& {
    const auto [at, is_new] = normal.try_emplace(file);
    if (is_new) at->second = std::filesystem::path(file).lexically_normal().string();
    return at->second;
  };
  std::vector<uint64_t> executed(unit.functions.size());  // of each function, its most executed statement
  const SourceStatement* before = nullptr;
  uint64_t began = 0;  // how often the statement `before` ran: what continues a statement that did not run is other code
  for (const SourceStatement& statement : unit.statements) {
    const bool both = before != nullptr && before->first == statement.first && before->line == statement.line &&
                      before->scope == statement.scope && before->file == statement.file && before->end < statement.end;
    const uint64_t times = both && began == 0 ? 0 : use.counts.highest(statement.first, statement.end);
    before = &statement;
    began = times;
    if (statement.scope < executed.size()) executed[statement.scope] = std::max(executed[statement.scope], times);
    const std::string& path = path_of(statement.file);
    if (!wanted_source(words, path) || declares_part(unit, statement)) continue;
    uint64_t& count = copies[{path, statement.line, statement.scope}];
    count = std::max(count, times);
  }
  for (const auto& [copy, count] : copies) coverage[std::string(std::get<0>(copy))].lines[std::get<1>(copy)] += count;
  for (uint32_t i = 0; i < unit.functions.size(); ++i) {
    const SourceFunction& function = unit.functions[i];
    if (function.name.empty() || function.line == 0 || !wanted_source(words, path_of(function.file))) continue;
    const auto file = coverage.find(path_of(function.file));
    if (file == coverage.end()) continue;
    // The optimizer may have moved the first instruction of an inlined copy to where it is not always executed.
    const uint64_t entries = use.entries(unit, i);
    file->second.functions[{std::string(function.name), function.line}] += entries == 0 && function.inlined ? executed[i] : entries;
  }
}

/// A name in a line of lcov's: it ends no line, and else is as the compiler wrote it, for genhtml opens the file by it.
std::string in_one_line(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text;
}

/// The name of a function in a tracefile, where each has another name: "operator():17" if there are several.
std::string tracefile_name(const CoveredFile& file, const FunctionKey& key) {
  const auto first = file.functions.lower_bound({key.first, 0});
  const auto next = std::next(first);
  const bool several = next != file.functions.end() && next->first.first == key.first;
  return in_one_line(key.first) + (several ? fmt::format(":{}", key.second) : "");
}

std::string lcov_text(const Coverage& coverage) {
  std::string text = "TN:\n";
  for (const auto& [path, file] : coverage) {
    text += fmt::format("SF:{}\n", in_one_line(path));
    for (const auto& [key, count] : file.functions) text += fmt::format("FN:{},{}\n", key.second, tracefile_name(file, key));
    for (const auto& [key, count] : file.functions) text += fmt::format("FNDA:{},{}\n", count, tracefile_name(file, key));
    text += fmt::format("FNF:{}\nFNH:{}\n", file.functions.size(), file.functions_hit());
    for (const auto& [line, count] : file.lines) text += fmt::format("DA:{},{}\n", line, count);
    text += fmt::format("LF:{}\nLH:{}\nend_of_record\n", file.lines.size(), file.lines_hit());
  }
  return text;
}

/// Leaves out files of source that are not on this machine, at which genhtml stops. If none is, all stay: the tracefile is for elsewhere.
/// Returns what to say.
std::string leave_out_absent(Coverage& coverage) {
  std::vector<std::string> absent;
  for (const auto& [path, file] : coverage) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) absent.push_back(path);
  }
  if (absent.empty()) return {};
  const std::string files = counted(absent.size(), "file of source is", "files of source are") + " not on this machine (" +
                            shown(absent.front()) + (absent.size() > 1 ? ", ..." : "") + ")";
  if (absent.size() == coverage.size()) return "ptdecode: " + files + ", and genhtml stops at such files; --source PREFIX chooses files\n";
  for (const std::string& path : absent) coverage.erase(path);
  return "ptdecode: " + files + " and omitted, because genhtml stops at such files; --keep-absent keeps them\n";
}

// `all_files`: also files of which no line ran.
std::string summary_text(const Coverage& coverage, bool all_files) {
  std::string text = "     lines       hit      %  functions       hit  source\n";
  size_t lines = 0, lines_hit = 0, functions = 0, functions_hit = 0, not_hit = 0;
  const auto row = [&](size_t all, size_t hit, size_t all_functions, size_t hit_functions, std::string_view name) {
    const double percent = all == 0 ? 0 : 100 * static_cast<double>(hit) / static_cast<double>(all);
    text += fmt::format("{:>10} {:>9} {:>6.1f} {:>10} {:>9}  {}\n", all, hit, percent, all_functions, hit_functions, name);
  };
  for (const auto& [path, file] : coverage) {
    if (all_files || file.lines_hit() != 0) {
      row(file.lines.size(), file.lines_hit(), file.functions.size(), file.functions_hit(), shown(path));
    } else {
      ++not_hit;
    }
    lines += file.lines.size(), lines_hit += file.lines_hit();
    functions += file.functions.size(), functions_hit += file.functions_hit();
  }
  row(lines, lines_hit, functions, functions_hit, "all");
  if (not_hit != 0) text += counted(not_hit, "file") + " of which no line ran not listed; --source / lists all\n";
  return text;
}

bool wanted_dso(const CoverageWords& words, const std::string& path) {
  return words.dsos.empty() ||
         std::any_of(words.dsos.begin(), words.dsos.end(), [&](const std::string& name) { return names_file(name, path); });
}

int run_coverage(const CoverageWords& words) {
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  if (const Status fit = check_output(words.output); !fit) return report_error(fit.error());  // before the work
  CodeCounts counts;
  const int status = input.count(words.calls, counts);
  if (status != kExitOk && status != kExitInterrupted) return status;
  Coverage coverage;
  std::string without;
  bool any_told = false;
  for (const FileCounts& file : counts.files) {
    if (!wanted_dso(words, file.path)) continue;
    const FileUse use(file);
    const bool told = input.recording().symbolizer().visit_source(file.path, file.build_id, [&](const SourceUnit& unit) {
      add_unit(words, unit, use, coverage);
      return true;
    });
    any_told = any_told || told;
    if (told && file.relocatable && file.build_id.empty()) say_on_error(unproven_text(file.path));
    if (!told) without += (without.empty() ? "" : ", ") + file.path;
  }
  if (const int nothing = counts.files.empty() ? input.say_summary(words.calls, false) : kExitOk; nothing != kExitOk) return nothing;
  if (coverage.empty()) {
    if (!counts.files.empty()) (void)input.say_summary(words.calls, true);
    if (looks_like_bundle(words.calls.input.path)) return report_error(no_source_lines("coverage"));
    const std::string advice = "; compile with -g, or name debug files with --debug-dir";
    if (any_told && !words.sources.empty()) {
      const std::string unknown = without.empty() ? "" : ", and there is no debug information in " + shown(without) + advice;
      return report_error(
          {ErrorCode::not_recorded,
           "coverage: no source file of the code that ran matches --source ('ptdecode coverage --source /' lists them)" + unknown, 0});
    }
    for (const std::string& dso : without.empty() ? words.dsos : std::vector<std::string>()) {
      if (const std::string missing = missing_file_text(input.recording(), dso); !missing.empty())
        return report_error({ErrorCode::not_recorded, "coverage: --dso: " + missing, 0});
    }
    const std::string why = counts.files.empty() ? "no code of a file ran"
                            : without.empty()    ? "no code that ran matches --dso"
                                                 : "no debug information in " + shown(without);
    return report_error({ErrorCode::not_recorded, "coverage: " + why + advice, 0});
  }
  for (const auto& [path, file] : coverage) note_read_file(path);  // the sources are needed to read the result
  const bool lcov = words.format == "lcov" || !words.output.empty();
  if (const std::string absent = lcov && !words.keep_absent ? leave_out_absent(coverage) : ""; !absent.empty()) say_on_error(absent);
  const bool kept = keeps_earlier_file(words.output, status);
  const int written =
      kept ? kExitOk : write_result(words.output, lcov ? lcov_text(coverage) : summary_text(coverage, !words.sources.empty()));
  if (!words.calls.input.quiet && !without.empty()) say_on_error("ptdecode: no debug information in " + shown(without) + "\n");
  (void)input.say_summary(words.calls, true);
  if (written != kExitOk || status != kExitOk) return written != kExitOk ? written : status;
  return strict_status(words.calls.input.strict, input.gaps(), input.recording());
}

}  // namespace

Command add_coverage(CLI::App& app) {
  auto words = std::make_shared<CoverageWords>();
  CLI::App& command =
      *app.add_subcommand("coverage", "Count how often each source line ran, using debug information; writes lcov's tracefile");
  add_call_options(command, words->calls);
  command.add_option("-o,--output", words->output, "the file to write, in lcov's format");
  command.add_option("--format", words->format, "on standard output: text (one line per source file), or lcov")
      ->check(CLI::IsMember({"text", "lcov"}));
  command.add_option("--source", words->sources, "only source files whose path starts with this (repeatable)")->allow_extra_args(false);
  command.add_flag("--keep-absent", words->keep_absent, "lcov: also source files that are not on this machine (genhtml stops at them)");
  command
      .add_option("--dso", words->dsos,
                  "only the code of this program or library, given by its name, its path or the end of its path: b/prog (repeatable)")
      ->allow_extra_args(false);
  command.footer(
      "The program needs no instrumentation, only -g: the trace shows what ran. A line's count is that of its most executed statement "
      "(is_stmt of the line table), added up over the functions that contain statements of the line: instances of a template and inlined "
      "copies count separately. Other code with its number, which optimizers move and insert, does not count. clang, and GCC without "
      "optimization, mark only the first part of a line as a statement: what directly follows with the same line (of clang, also after "
      "code of line 0) counts, too, if the statement ran. Of a loop within one line, the count is that of the part that ran most often "
      "(the condition); gcov may add up parts. Limitation: in code that GCC optimized, a loop within one line of a Fortran array, or "
      "without column numbers, may count once. A statement that the optimizer left without code after an inlined copy does not count "
      "with the code that follows. Limitation: where the optimizer copied a statement within a function (unrolled, peeled or split "
      "loops, paths that it separated), the count is that of the copy that ran most often, not the sum: the line table does not tell "
      "copies of a statement from statements that share a line and column (those of a macro), or from a statement whose code is in "
      "several places. So the count may be too low. If the copies of a line follow each other, clang marks only the first: if that did "
      "not run, the others do not count. Without optimization (-O0) there are no copies.\n"
      "A function's count (FNDA) is the number of times that it was entered, added up over its own code and its inlined copies. gcov "
      "counts the same without optimization. A direct jump within a function to its first instruction (a loop) does not enter it, and "
      "neither does the code that GCC split off the function (NAME.part.N, or inlined back). Limitation: the optimizer can merge parts "
      "of an inlined copy with other code, or copy its first instruction, and its count is then too low, but not 0 if a statement of the "
      "copy ran. If functions of a source file share a name (lambdas: operator()), the line is added to it. A function is entered, too, "
      "where its first instruction faulted; that instruction was not executed, so its line is not counted. Limitation: debug information "
      "in .dwo files (-gsplit-dwarf) is not read, so only lines are counted.\n"
      "The kernel and its modules are included if their debug files are found (--debug-dir, --symfs). Without a recorded build id, a "
      "module's file (.ko or .ko.debug, not compressed) is used if its functions have the addresses that the kernel reports. This does "
      "not prove that the lines within the functions are the same.\n"
      "Examples:\n"
      "  ptdecode coverage --source /src/db                       a line for each file\n"
      "  ptdecode coverage -o run.info && genhtml -o html run.info");
  return [words] { return run_coverage(*words); };
}

}  // namespace ptd::cli
