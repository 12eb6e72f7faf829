// RanCode: which parts of a complete jitdump differ from the mapped files, and what they belong to.
#include "recording/image/ran_code.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "ptdecode/timeline_builder.h"

namespace ptd {
namespace {

constexpr Ip kText{0x400000};

CodeBytes code_of(std::string_view text) {
  auto owner = std::make_shared<const std::string>(text);
  return {owner, std::as_bytes(std::span(*owner))};
}

class RanCodeTest : public ::testing::Test {
 protected:
  RanCodeTest() : space_(builder_.add_space()) {}
  void map(TimeNs from, std::string_view path, std::string_view bytes) {
    Section section;
    section.space = space_;
    section.ip = kText;
    section.size_bytes = 4096;
    section.live = {from, kTimeMax};
    section.path = std::string(path);
    section.build_id = "1234";
    section.file_offset_bytes = 0x1000;
    if (!bytes.empty()) section.code = code_of(bytes);
    builder_.add_section(std::move(section));
  }
  /// Returns the sections that a dump adds.
  struct Code {
    uint64_t offset, time;
    std::string_view bytes;
  };
  std::vector<Section> add(SpaceId space, const std::vector<Code>& codes) {
    const Timeline mappings = builder_.sections();
    RanCode ran(mappings, space);
    std::vector<Section> added;
    for (const Code& code : codes) {
      code_.push_back(code_of(code.bytes));
      ran.add(kText + code.offset, code_.back(), TimeNs{code.time}, [&](Section section) { added.push_back(std::move(section)); });
    }
    return added;
  }
  static std::string text(const Section& section) {
    return {reinterpret_cast<const char*>(section.code.bytes.data()), section.code.bytes.size()};
  }
  TimelineBuilder builder_;
  SpaceId space_;
  std::vector<CodeBytes> code_;
};

TEST_F(RanCodeTest, TheBytesOfTheMappedFileStayTheFiles) {
  map(TimeNs{100}, "/bin/prog", "abcdefgh");
  EXPECT_TRUE(add(space_, {{0, 200, "abcd"}, {2, 300, "cdef"}, {0, 400, "abcdefgh"}}).empty());
}

// Before, other code may have run there: of a file that was missing only later, what ran is not listed.
TEST_F(RanCodeTest, CodeOfAnAbsentFileIsTheFilesAndCountsFromItsTime) {
  map(TimeNs{100}, "/bin/prog", "");
  const auto added = add(space_, {{4, 200, "ef"}, {2, 300, "cdefgh"}, {4, 400, "ef"}});
  ASSERT_EQ(added.size(), 3U);
  EXPECT_EQ(text(added[0]), "ef");
  EXPECT_EQ(text(added[1]), "cd");
  EXPECT_EQ(text(added[2]), "gh");
  EXPECT_EQ(added[0].live.first, TimeNs{200});
  EXPECT_EQ(added[1].live.first, TimeNs{300});
  for (const Section& section : added) {
    EXPECT_EQ(section.path, "/bin/prog");
    EXPECT_EQ(section.build_id, "1234");
    EXPECT_EQ(section.file_offset_bytes, 0x1000 + (section.ip - kText));
  }
}

TEST_F(RanCodeTest, ChangedCodeCountsFromItsTimeAndSoDoesItsRestoration) {
  map(TimeNs{100}, "/bin/prog", "abcdefgh");
  const auto added = add(space_, {{0, 200, "abXYef"}, {0, 300, "abcdef"}, {0, 400, "abcdef"}});
  ASSERT_EQ(added.size(), 2U);
  EXPECT_EQ(text(added[0]), "XY");
  EXPECT_EQ(added[0].live.first, TimeNs{200});
  EXPECT_EQ(text(added[1]), "cd");
  EXPECT_EQ(added[1].live.first, TimeNs{300});
  EXPECT_EQ(added[0].ip, kText + 2);
  EXPECT_EQ(added[0].path, "/bin/prog");
}

TEST_F(RanCodeTest, CodeOfAnAbsentFileThatChangesHasTwoVersions) {
  map(TimeNs{100}, "/bin/prog", "");
  const auto added = add(space_, {{0, 200, "ab"}, {0, 300, "cd"}});
  ASSERT_EQ(added.size(), 2U);
  EXPECT_EQ(added[0].live.first, TimeNs{200});
  EXPECT_EQ(added[1].live.first, TimeNs{300});
}

TEST_F(RanCodeTest, AMappingOverCodeEndsIt) {
  map(TimeNs{100}, "/bin/one", "abcd");
  map(TimeNs{300}, "/bin/two", "abcd");
  const auto added = add(space_, {{0, 200, "XYcd"}, {0, 400, "abcd"}, {0, 500, "XYcd"}});
  ASSERT_EQ(added.size(), 2U);
  EXPECT_EQ(added[0].path, "/bin/one");
  EXPECT_EQ(added[1].path, "/bin/two");
  EXPECT_EQ(added[1].live.first, TimeNs{500});
}

TEST_F(RanCodeTest, AChildHasTheFilesOfItsParent) {
  map(TimeNs{100}, "/bin/prog", "abcd");
  const SpaceId child = builder_.fork_space(space_, TimeNs{200});
  const auto added = add(child, {{0, 201, "abcd"}, {2, 300, "XY"}});
  ASSERT_EQ(added.size(), 1U);
  EXPECT_EQ(added[0].path, "/bin/prog");
  EXPECT_EQ(added[0].live.first, TimeNs{300});
}

TEST_F(RanCodeTest, CodeInNoFileCountsFromItsTime) {
  const auto added = add(space_, {{0, 200, "abcd"}, {4090, 300, "abcdefghijkl"}});
  ASSERT_EQ(added.size(), 3U);  // a section for each page
  EXPECT_EQ(added[0].live.first, TimeNs{200});
  EXPECT_EQ(added[0].path, "");
  EXPECT_EQ(text(added[1]) + text(added[2]), "abcdefghijkl");
}

}  // namespace
}  // namespace ptd
