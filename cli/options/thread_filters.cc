// Parses -C, --pid and --tid.
#include "cli/options/thread_filters.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/options.h"

namespace ptd::cli {
namespace {

// How the character at `i` changes the depth of brackets. Those of "operator<" and "->" are none.
int bracket_step(std::string_view text, size_t i) {
  if (text[i] == '(' || text[i] == ')') return text[i] == '(' ? 1 : -1;
  if (text[i] != '<' && text[i] != '>') return 0;
  const size_t before = text.substr(0, i).find_last_not_of("<>-=");
  const std::string_view word = "operator";
  if (before != text.npos && text.substr(0, before + 1).ends_with(word)) return 0;
  if (text[i] == '>' && i > 0 && text[i - 1] == '-') return 0;
  return text[i] == '<' ? 1 : -1;
}

bool brackets_match(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size() && depth >= 0; ++i) depth += bracket_step(text, i);
  return depth == 0;
}

}  // namespace

void add_thread_filters(CLI::App& command, std::string& cpus, std::string& pids, std::string& tids) {
  command.add_option("-C,--cpu", cpus, "these cpus only: 0,2-3");
  command.add_option("--pid", pids, "these processes only");
  command.add_option("--tid", tids, "these threads only");
}

Status parse_thread_filters(const ThreadFilterWords& words, ScriptOptions& options) {
  struct List {
    std::string_view name;
    const std::string& text;
    std::vector<int32_t>& into;
  };
  for (const List list :
       {List{"-C", words.cpus, options.cpus}, List{"--pid", words.pids, options.pids}, List{"--tid", words.tids, options.tids}}) {
    if (list.text.empty()) continue;
    Result<std::vector<int32_t>> numbers = parse_number_list(list.name, list.text);
    if (!numbers) return numbers.error();
    list.into = std::move(*numbers);
  }
  return {};
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  if (!text.empty()) names.emplace_back();
  const bool nested = brackets_match(text);
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (nested) depth += bracket_step(text, i);
    if (text[i] == ',' && depth == 0) {
      names.emplace_back();
    } else {
      if (text.substr(i, 2) == "\\,") ++i;
      names.back() += text[i];
    }
  }
  return names;
}

}  // namespace ptd::cli
