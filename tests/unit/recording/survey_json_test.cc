// survey_json(): nlohmann's parser and writer are the second source.
#include "recording/survey_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ptd {
namespace {

/// A text after it was written, and read by nlohmann.
std::string ours(const std::string& text) {
  Survey survey;
  survey.hostname = text;
  return nlohmann::json::parse(survey_json(survey)).at("host").get<std::string>();
}

TEST(SurveyJson, TheDocumentIsWhatAnotherWriterMakesOfItsValues) {
  Survey survey;
  survey.hostname = std::string("a\"b\\c\b\f\n\r\t\x01\x1f\x7f\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") + '\0' + "/z";
  survey.command = {"one", "", "two words"};
  survey.threads = {{1, 2, "x"}, {-1, -1, ""}};
  survey.streams.resize(2);
  survey.images.resize(1);
  survey.other_events = {{"sched:sched_switch", ~uint64_t{0}}, {"a", 0}};
  survey.has_wall_clock = true;
  survey.wall_offset_ns = INT64_MIN;
  survey.time = {TimeNs{5}, TimeNs{7}};
  const std::string text = survey_json(survey);
  EXPECT_EQ(nlohmann::json::parse(text).dump(2, ' ', true), text);
  EXPECT_EQ(survey.hostname, nlohmann::json::parse(text).at("host").get<std::string>());
  EXPECT_EQ(nlohmann::json::parse(survey_json({})).dump(2, ' ', true), survey_json({}));
}

TEST(SurveyJson, BytesThatAreNotUtf8AreReplaced) {
  const std::string replaced = "\xef\xbf\xbd";
  for (const char* bad : {"\x80", "\xbf", "\xc0", "\xc1", "\xf5", "\xff", "\xc3", "\xe2", "\xf0"})
    EXPECT_EQ("a" + replaced + "b", ours("a" + std::string(bad) + "b"));
  // Too long, a surrogate, too large, cut.
  for (const char* bad : {"\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\xe2\x82"}) {
    const std::string got = ours("a" + std::string(bad) + "b");
    EXPECT_EQ(0U, got.find("a" + replaced)) << got;
    EXPECT_EQ(got.size() - 1, got.find('b'));
  }
}

}  // namespace
}  // namespace ptd
