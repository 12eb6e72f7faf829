// JsonValue: what trace.json files hold. Source: RFC 8259; LLDB's `trace schema intel-pt`, in which large numbers are texts.
#include "recording/json_value.h"

#include <gtest/gtest.h>

namespace ptd {
namespace {

TEST(JsonValue, Members) {
  const auto root =
      JsonValue::parse(R"({"a": "text", "n": 7, "n": 8, "l": [{"x": 1}, 2, [3]], "o": {"a": "inner"}, "t": true, "f": 1.5, "z": null})");
  ASSERT_TRUE(root);
  EXPECT_TRUE(root->is_object());
  EXPECT_EQ(root->text("a"), "text");
  EXPECT_EQ(root->number("n"), 8U);  // the last one
  ASSERT_EQ(root->list("l").size(), 3U);
  EXPECT_EQ(root->list("l")[0].number("x"), 1U);
  EXPECT_FALSE(root->list("l")[1].is_object());
  ASSERT_NE(root->member("o"), nullptr);
  EXPECT_EQ(root->member("o")->text("a"), "inner");
  EXPECT_NE(root->member("z"), nullptr);
  for (const char* name : {"t", "f", "z", "l", "o", "missing"}) {
    EXPECT_FALSE(root->number(name)) << name;
    EXPECT_EQ(root->text(name), "") << name;
  }
  EXPECT_EQ(root->member("missing"), nullptr);
  EXPECT_TRUE(root->list("a").empty());
}

TEST(JsonValue, Numbers) {
  const auto root = JsonValue::parse(
      R"({"d": "18446744073709551615", "h": "0xffffffff81000000", "m": -1, "u": 18446744073709551615, "e": "0x", "s": "12 "})");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->number("d"), 18446744073709551615U);
  EXPECT_EQ(root->number("h"), 0xffffffff81000000U);
  EXPECT_EQ(root->number("m"), 18446744073709551615U);
  EXPECT_EQ(root->number("u"), 18446744073709551615U);
  EXPECT_FALSE(root->number("e"));
  EXPECT_FALSE(root->number("s"));
}

TEST(JsonValue, RefusesWhatIsNoJsonOrTooDeep) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "{} {}", "\"\xff\""}) EXPECT_FALSE(JsonValue::parse(text)) << text;
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(JsonValue::parse(nested(64)));
  EXPECT_FALSE(JsonValue::parse(nested(65)));
  EXPECT_FALSE(JsonValue::parse(std::string(1 << 20, '[')));
}

}  // namespace
}  // namespace ptd
