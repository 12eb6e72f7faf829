// Option values: tables of {text, meaning} and of texts that must be refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/options/fields.h"
#include "cli/options/itrace.h"
#include "cli/options/options.h"
#include "cli/options/thread_filters.h"
#include "recording/image/image_files.h"

namespace ptd::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(NameLists, CommasInsideANameDoNotSplitIt) {
  EXPECT_THAT(split_names("main,a::f(int, std::map<int, long>),g"), ElementsAre("main", "a::f(int, std::map<int, long>)", "g"));
  EXPECT_THAT(split_names("f<int, long>,operator<(A, B),operator->,operator>>,b"),
              ElementsAre("f<int, long>", "operator<(A, B)", "operator->", "operator>>", "b"));
  EXPECT_THAT(split_names("(sd-pam),kworker/0:1"), ElementsAre("(sd-pam)", "kworker/0:1"));
  EXPECT_THAT(split_names("a(b,c\\,d"), ElementsAre("a(b", "c,d"));  // the bracket matches none
}

TEST(Itrace, EveryInstruction) {
  const auto options = parse_itrace("i1i");
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->instructions);
  EXPECT_TRUE(options->every_instruction());
  EXPECT_FALSE(options->any_branch());
  EXPECT_FALSE(options->errors);
}

TEST(Itrace, Periods) {
  struct Case {
    const char* text;
    PeriodUnit unit;
    uint64_t period;
  };
  for (const Case& c : {Case{"i", PeriodUnit::ns, 100'000}, Case{"i10us", PeriodUnit::ns, 10'000}, Case{"i2ms", PeriodUnit::ns, 2'000'000},
                        Case{"i500ns", PeriodUnit::ns, 500}, Case{"i500", PeriodUnit::ns, 500}, Case{"i7t", PeriodUnit::ticks, 7},
                        Case{"i1000i", PeriodUnit::instructions, 1000}, Case{"i0ns", PeriodUnit::ns, 0}}) {
    const auto options = parse_itrace(c.text);
    ASSERT_TRUE(options.ok()) << c.text;
    EXPECT_EQ(options->unit, c.unit) << c.text;
    EXPECT_EQ(options->period, c.period) << c.text;
  }
  EXPECT_TRUE(parse_itrace("i0ns")->every_instruction());
  EXPECT_FALSE(parse_itrace("i2i")->every_instruction());
}

TEST(Itrace, Letters) {
  const auto options = parse_itrace("crxwpIoe");
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->calls && options->returns && options->transactions && options->ptwrite && options->power);
  EXPECT_TRUE(options->interrupts && options->pebs && options->errors);
  EXPECT_FALSE(options->instructions || options->branches);
  EXPECT_TRUE(parse_itrace("b")->branches);
  EXPECT_FALSE(parse_itrace("bc")->branches || parse_itrace("rb")->branches);  // `perf script --itrace=bc` lists what --itrace=c lists
}

TEST(Itrace, LettersBehindAPeriodAreLetters) {
  const auto options = parse_itrace("i100usbe-o");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->period, 100'000U);
  EXPECT_TRUE(options->branches);
  EXPECT_TRUE(options->errors);
  EXPECT_FALSE(options->overflow_errors);
  EXPECT_TRUE(options->lost_errors);
}

TEST(Itrace, EmptyMeansEverything) {
  const auto options = parse_itrace("");
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->instructions && options->branches && options->errors && options->power);
}

TEST(Itrace, CallChainsAreIgnoredByName) {
  const auto options = parse_itrace("bg32l64");
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->notes, ElementsAre(HasSubstr("'g' (call chains)"), HasSubstr("'l' (last-branch stacks)")));
}

TEST(Itrace, RefusedLettersNameTheNearestEquivalent) {
  EXPECT_THAT(parse_itrace("bd").error().message, HasSubstr("ptdecode packets"));
  EXPECT_THAT(parse_itrace("s100").error().message, HasSubstr("--time"));
  EXPECT_THAT(parse_itrace("?").error().message, HasSubstr("unknown letter"));
  for (const char* text : {"d", "q", "s", "A", "Z", "f", "?", "i5x", "i99999999999999999999i", "e+", "i20000000000000ms"}) {
    const auto options = parse_itrace(text);
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.error().kind(), ErrorKind::usage) << text;
  }
}

TEST(FieldNames, ReplaceAndChange) {
  Fields ip;
  ip.add(Field::ip);
  EXPECT_EQ(*parse_fields("ip", default_fields()), ip);
  EXPECT_EQ(*parse_fields("hw:ip", default_fields()), ip);
  const auto changed = parse_fields("+insn,-comm", default_fields());
  ASSERT_TRUE(changed.ok());
  EXPECT_TRUE(changed->has(Field::insn));
  EXPECT_FALSE(changed->has(Field::comm));
  EXPECT_TRUE(changed->has(Field::sym));
}

TEST(FieldNames, Refused) {
  EXPECT_THAT(parse_fields("ipp", {}).error().message, HasSubstr("comm,tid"));
  EXPECT_THAT(parse_fields("brstackoff", {}).error().message, HasSubstr("--itrace=b"));
  for (const char* text : {"", "ip,+sym", "+ip,sym", "+", "zz:ip", "ip,,sym"})
    EXPECT_FALSE(parse_fields(text, default_fields()).ok()) << text;
}

TEST(Values, Cpu) {
  EXPECT_EQ(*parse_tsc_ctc("250/2"), (std::pair<uint32_t, uint32_t>{250, 2}));
  for (const char* text : {"", "zz", "1", "1/", "/1", "1/0", "0/1", "-1/2", " 1/2", "1/2 ", "1/2/3", "4294967296/1", "1/0x10"})
    EXPECT_FALSE(parse_tsc_ctc(text).ok()) << text;
  EXPECT_EQ(*parse_cpu("6/94/3"), (pt::CpuId{6, 94, 3}));
  EXPECT_EQ(*parse_cpu("6/143"), (pt::CpuId{6, 143, 0}));
  for (const char* text : {"", "6", "6/", "6/94/", "6/94/3/1", "6/256", "a/b", "-6/94"}) EXPECT_FALSE(parse_cpu(text).ok()) << text;
}

TEST(Values, Image) {
  const auto image = parse_image("/a/b@c,off=0x1000,size=39@0x401000");
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->path, "/a/b@c");
  EXPECT_EQ(image->file_offset_bytes, 0x1000U);
  EXPECT_EQ(image->size_bytes, 39U);
  EXPECT_EQ(image->load_address, 0x401000U);
  EXPECT_EQ(parse_image("f@400000")->load_address, 0x400000U);
  EXPECT_FALSE(parse_image("f")->load_address);
  for (const char* text : {"", "f,off=1", "f,", "f,@0", "f,off=1,@0", "@0", "f@", "f@xyz", "f,of=1@0", "f,off=@0", "f,size=-1@0"})
    EXPECT_FALSE(parse_image(text).ok()) << text;
}

TEST(Values, Times) {
  EXPECT_EQ(*parse_seconds_ns("17.865267613"), 17'865'267'613U);
  EXPECT_EQ(*parse_seconds_ns("17.8"), 17'800'000'000U);
  EXPECT_EQ(*parse_seconds_ns("17"), 17'000'000'000U);
  EXPECT_EQ(*parse_time_range("1,2"), (Interval{TimeNs{1'000'000'000}, TimeNs{2'000'000'000}}));
  EXPECT_EQ(*parse_time_range("1,"), (Interval{TimeNs{1'000'000'000}, kTimeMax}));
  EXPECT_EQ(*parse_time_range(",2"), (Interval{kTimeMin, TimeNs{2'000'000'000}}));
  for (const char* text : {"", ",", "1", "2,1", "a,b", "1.1234567890,2", "1,2,3", "18446744074,"})
    EXPECT_FALSE(parse_time_range(text).ok()) << text;
}

TEST(Values, DurationsListsAndDrops) {
  EXPECT_EQ(*parse_duration_ns("50us"), 50'000U);
  EXPECT_EQ(*parse_duration_ns("1s"), 1'000'000'000U);
  EXPECT_EQ(*parse_duration_ns("0"), 0U);
  EXPECT_THAT(parse_duration_ns("7").error().message, HasSubstr("'7' has no unit: give ns, us, ms or s"));
  EXPECT_EQ(*parse_duration_ns("1.5ms"), 1'500'000U);
  EXPECT_EQ(*parse_duration_ns("0.000000001s"), 1U);
  for (const char* text : {"", "us", "1h", "0.5", "99999999999s"}) EXPECT_FALSE(parse_duration_ns(text).ok()) << text;
  EXPECT_THAT(*parse_number_list("-C", "1,3-5"), ElementsAre(1, 3, 4, 5));
  for (const char* text : {"", "a", "5-3", "1-", "0-99999999", "1,,2", "4294967296"}) {
    EXPECT_FALSE(parse_number_list("-C", text).ok()) << text;
  }
  EXPECT_EQ(parse_drop_poke("10,3")->every, 10U);
  EXPECT_EQ(parse_drop_poke("10,3")->seed, 3U);
  for (const char* text : {"", "0", "x", "1,2,3"}) EXPECT_FALSE(parse_drop_poke(text).ok()) << text;
}

}  // namespace
}  // namespace ptd::cli
