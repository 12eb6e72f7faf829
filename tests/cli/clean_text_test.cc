// Names as they are shown: no control characters, nothing that reorders a line or shows nothing.
#include "cli/text/clean_text.h"

#include <gtest/gtest.h>

#include "cli/text/shell_word.h"

namespace ptd::cli {
namespace {

TEST(CleanText, VisibleCharactersStay) {
  for (const char* name : {"main", "größe", "日本語", "Ωmega::λ", "😀", "\xc2\xac", "\xc2\xae", "\u200a", "\u2010", "\u2027", "\u202f",
                           "\u205f", "\u2070", "\ufe10"})
    EXPECT_EQ(shown(name), name);
}

TEST(CleanText, HiddenCharactersAreBytes) {
  EXPECT_EQ(shown("ma\u00adin"), "ma\\xc2\\xadin");
  EXPECT_EQ(shown("ma\u200bin"), "ma\\xe2\\x80\\x8bin");
  EXPECT_EQ(shown("\ufeffmain"), "\\xef\\xbb\\xbfmain");
  for (const char* name : {"\u034f", "\u061c", "\u115f", "\u200d", "\u200e", "\u2028", "\u202e", "\u2060", "\u2069", "\u3164", "\ufe0f",
                           "\uffa0", "\U000e0001"})
    EXPECT_EQ(shown(name).find_first_not_of("\\x0123456789abcdef"), std::string::npos) << shown(name);
}

TEST(CleanText, WordsOfCommandsAreQuotedWhereAShellInterpretsThem) {
  EXPECT_EQ(shell_word("/usr/lib/libc-2.36.so"), "/usr/lib/libc-2.36.so");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b;$(id)`id`"), "'a b;$(id)`id`'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("a\n\x1b[31m"), "'a\\x0a\\x1b[31m'");
}

TEST(CleanText, DamagedUtf8IsBytes) {
  EXPECT_EQ(shown("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(shown("\xc0\x80"), "\\xc0\\x80");
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(shown("a\xf0\x9f\x98z"), "a\\xf0\\x9f\\x98z");
  EXPECT_EQ(shown("\x1b[31m\x7f\xc2\x85"), "\\x1b[31m\\x7f\\xc2\\x85");
}

}  // namespace
}  // namespace ptd::cli
