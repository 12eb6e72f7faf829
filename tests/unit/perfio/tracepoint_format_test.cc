// Formats of tracepoints: fields in the layout of the kernel's own text, strings at any position.
#include "perfio/format/tracepoint_format.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ptd::perfio {
namespace {

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Returns a format: [Linux] events.rst, "Event formats"; __rel_loc as declared by include/trace/stages of 5.17 and later.
std::string format(uint64_t id, const std::string& fields) {
  return "name: x\nID: " + std::to_string(id) + "\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n" +
         fields + "\nprint fmt: \"x\"\n";
}

TEST(TracepointFormat, StringsAreFoundByTheirPlaceInThePayloadOrBehindTheField) {
  const std::string data =
      format(7, "\tfield:int count;\toffset:8;\tsize:4;\tsigned:1;\n") +
      format(70,
             "\tfield:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:__rel_loc char[] other;\toffset:12;\tsize:4;\t"
             "signed:0;\n\tfield:__rel_loc u8[] bytes;\toffset:16;\tsize:4;\tsigned:0;\n");
  const TracepointFormats formats(bytes_of(data));
  EXPECT_EQ(formats.find(7).size(), 1U);
  EXPECT_TRUE(formats.find(8).empty());
  const std::vector<TracepointSlot> slots = formats.find(70);
  ASSERT_EQ(slots.size(), 3U);
  std::string payload(20, '\0');
  payload += std::string("sshd\0bash\0", 10);
  const auto put = [&](size_t at, uint32_t value) { std::memcpy(payload.data() + at, &value, sizeof value); };
  put(8, 20 | 5U << 16);  // from the payload's beginning
  put(12, 9 | 5U << 16);  // relative to the end of the field, which is at 16
  put(16, 0x1234);
  EXPECT_EQ(read_slot(slots[0], bytes_of(payload)).text, "sshd");
  EXPECT_EQ(read_slot(slots[1], bytes_of(payload)).text, "bash");
  EXPECT_FALSE(read_slot(slots[1], bytes_of(payload)).number);
  EXPECT_EQ(read_slot(slots[2], bytes_of(payload)).text, "34120000");
  put(12, 10 | 5U << 16);  // beyond the end
  EXPECT_EQ(read_slot(slots[1], bytes_of(payload)).text, "");
}

TEST(TracepointFormat, TheFirstOfAnIdCounts) {
  const std::string data =
      format(7, "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n") + format(7, "\tfield:int b;\toffset:8;\tsize:4;\tsigned:1;\n");
  const auto slots = TracepointFormats(bytes_of(data)).find(7);
  ASSERT_EQ(slots.size(), 1U);
  EXPECT_EQ(slots[0].name, "a");
}

}  // namespace
}  // namespace ptd::perfio
