// See usage_text.h.
#include "cli/options/usage_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <regex>

#include "analysis/names/nearest_word.h"
#include "cli/options/perf_words.h"
#include "cli/text/terminal.h"

namespace ptd::cli {

namespace {

/// Whether the option may have a value, which then follows "=".
bool has_optional_value(const CLI::Option& option) {
  const std::string name = option.get_name(false, true);  // "--name{DEFAULT}"
  return name.find('{') != std::string::npos && !name.ends_with("{false}");
}

/// Replaces CLI11's forms of a type and its check: " TEXT:{a,b}" by " a|b", " UINT:INT in [0 - 15]" by " 0..15", " FILE:FILE" by " FILE".
std::string plain_type(const std::string& text) {
  static const std::regex one_of(R"( \w*:\{([^}]*)\})"), range(R"( U?INT:U?INT in \[(\S+) - (\S+)\])"),
      check(R"((\S):[A-Z]\S*( in \[\S+ - \S+\])?)");
  if (std::smatch match; std::regex_search(text, match, one_of)) {
    std::string words = match[1];
    std::replace(words.begin(), words.end(), ',', '|');
    return match.prefix().str() + " " + words + match.suffix().str();
  }
  return std::regex_replace(std::regex_replace(text, range, " $1..$2"), check, "$1");
}

/// Divides each line of `text` at its spaces, so that it ends at column `columns`. It begins at column `first`, the lines that continue it
/// at `next`. A line that begins with a space, as an example does, stays as it is.
std::string wrapped(const std::string& text, size_t columns, size_t first, size_t next) {
  std::string out;
  size_t column = first;
  bool is_example = text.starts_with(' ');
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at + 1), text.size());
    const std::string word = text.substr(at, end - at);  // with the space or newline before it
    at = end;
    if (word.starts_with('\n')) {
      is_example = word.size() == 1 && end < text.size() && text[end] == ' ';
      column = first + word.size() - 1;
      out += '\n' + std::string(first, ' ') + word.substr(1);
    } else if (!is_example && word.starts_with(' ') && column + word.size() > columns) {
      column = next + word.size() - 1;
      out += '\n' + std::string(next, ' ') + word.substr(1);
    } else {
      column += word.size();
      out += word;
    }
  }
  return out;
}

/// Wraps help to the width of the terminal, within limits: long lines are hard to read.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    for (size_t from = name.find('{'); from != std::string::npos; from = name.find('{')) name.erase(from, name.find('}', from) + 1 - from);
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = plain_type(CLI::Formatter::make_option_opts(option));
    return has_optional_value(*option) ? "[=" + value.substr(std::min(value.find_first_not_of(" :"), value.size())) + "]" : value;
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* command) const override {
    return wrapped(CLI::Formatter::make_description(command), columns_, 0, 0);
  }
  std::string make_footer(const CLI::App* command) const override {
    return wrapped(CLI::Formatter::make_footer(command), columns_, 0, kHanging);
  }

 private:
  static constexpr size_t kHanging = 2;  // columns by which the second line of a paragraph is indented
  static constexpr size_t kLeast = 60, kMost = 110, kDefault = 100;
  [[nodiscard]] std::string entry(const std::string& names, const std::string& description) const {
    std::string line = "  " + names;
    if (description.empty()) return line + '\n';
    const size_t column = get_column_width();
    line += line.size() < column ? std::string(column - line.size(), ' ') : '\n' + std::string(column, ' ');
    return line + wrapped(description, columns_, column, column) + '\n';
  }
  const size_t columns_ = terminal_columns() == 0 ? kDefault : std::clamp(terminal_columns(), kLeast, kMost);
};

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return names;
}

bool has_option(const CLI::App& command, const std::string& name) {
  const std::vector<const CLI::Option*> options = command.get_options();
  return std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) { return option->check_name(name); });
}

/// Other commands that have the option.
std::string owners(const CLI::App& app, const CLI::App& command, const std::string& option) {
  std::string text;
  for (const CLI::App* other : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (other != &command && has_option(*other, option)) text += (text.empty() ? "'ptdecode " : ", '") + other->get_name() + "'";
  }
  return text;
}

std::string about_option(const CLI::App& app, const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string said = fmt::format("'{}' has no option {}", command.get_name(), name);
  if (const std::string here = nearest_of_perf(word); !here.empty()) return said + fmt::format("; equivalent of perf's {}: {}", name, here);
  if (name.starts_with("--")) {
    const std::string nearest = nearest_word(std::string_view(name).substr(2), long_names(command));
    if (!nearest.empty()) return said + fmt::format("; did you mean --{}?", nearest);
  }
  if (const std::string others = owners(app, command, name); !others.empty()) return said + fmt::format("; it is an option of {}", others);
  return said;
}

std::string about_word(const CLI::App& command, const std::string& word) {
  std::error_code ignored;
  const std::string said = fmt::format("'{}' takes no argument '{}'", command.get_name(), word);
  if (std::filesystem::exists(word, ignored)) return said + fmt::format("; to name a recording: -i {}", word);
  if (has_option(command, "--func")) return said + fmt::format("; to name a function: --func {}", word);
  if (has_option(command, "--symbols")) return said + fmt::format("; to name a function: -S {}", word);
  return said;
}

/// A value that does not belong to the option before it. "" if there is none.
std::string about_value(const CLI::App& command, const std::vector<std::string>& words) {
  for (size_t i = 1; i < words.size() && words[i - 1] != "--"; ++i) {
    const std::string& option = words[i - 1];
    const bool may_have = std::ranges::any_of(
        command.get_options(), [&](const CLI::Option* each) { return each->check_name(option) && has_optional_value(*each); });
    if (may_have && !words[i].starts_with('-')) return fmt::format("the value of {} follows '=': {}={}", option, option, words[i]);
  }
  return {};
}

/// The first word that the parser did not take.
std::string about_extras(const CLI::App& app, const CLI::App& command, const std::vector<std::string>& words) {
  if (std::string value = about_value(command, words); !value.empty()) return value;
  const std::vector<std::string> left = app.remaining(true);
  for (const std::string& word : words) {
    if (std::find(left.begin(), left.end(), word) == left.end()) continue;
    return word.starts_with('-') ? about_option(app, command, word) : about_word(command, word);
  }
  return {};
}

std::string message_of(const CLI::App& app, const CLI::App* command, const CLI::ParseError& error, const std::vector<std::string>& words) {
  std::string extras;
  if (command != nullptr && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) extras = about_extras(app, *command, words);
  if (!extras.empty()) return extras;
  std::string message = error.what();
  const std::string output = "--output is required";
  if (command != nullptr && message.starts_with(output)) message += fmt::format(": ptdecode {} -o FILE", command->get_name());
  if (const size_t missing = message.find(": 1 required "); missing != std::string::npos && message.ends_with(" missing"))
    message = message.substr(0, missing) + " needs a value";
  return message;
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

std::string usage_text(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  const CLI::App* command = parsed.empty() ? nullptr : parsed.front();
  return fmt::format("ptdecode: {}\nptdecode: see 'ptdecode {}--help'\n", message_of(app, command, error, words),
                     command == nullptr ? "" : command->get_name() + " ");
}

}  // namespace ptd::cli
