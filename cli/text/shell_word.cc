// Words of commands to paste: see shell_word.h.
#include "cli/text/shell_word.h"

#include "cli/text/clean_text.h"

namespace ptd::cli {

std::string shell_word(std::string_view name) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-=@,:%";
  std::string text = shown(name);
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace ptd::cli
