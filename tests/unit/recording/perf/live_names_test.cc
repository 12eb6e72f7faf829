// LiveNames: names of code, each until other code replaces its bytes; how many ranges that takes.
#include "recording/image/names/live_names.h"

#include <gtest/gtest.h>

#include "recording/data/open_request.h"

namespace ptd {
namespace {

struct Built {
  LiveNames names;
  void add(uint64_t first, uint64_t size_bytes, uint64_t from, const char* name, NamedPlace place = NamedPlace::code) {
    names.add({is_kernel_half(Ip{first}) ? kKernelSpace : SpaceId{1}, Ip{first}, size_bytes, {TimeNs{from}, kTimeMax}, name, "[jit]"},
              false, place);
  }
  RecordingData finish() {
    const OpenRequest request;
    ImageBuild image(request);
    names.add_to(image);
    RecordingData data;
    image.finish(data);
    return data;
  }
};

std::string name_at(const RecordingData& data, uint64_t ip, uint64_t when) {
  const auto symbol = data.symbolizer->find(SpaceId{1}, Ip{ip}, TimeNs{when}, nullptr);
  return symbol ? std::string(symbol->name) + "+" + std::to_string(symbol->offset_bytes) : "";
}

TEST(LiveNames, TheMiddleTheStartAndTheEnd) {
  Built built;
  built.add(100, 50, 1, "f");
  built.add(120, 5, 2, "g");
  built.add(130, 5, 3, "");
  built.add(95, 10, 4, "h");
  built.add(140, 20, 5, "");
  const RecordingData data = built.finish();
  EXPECT_EQ(name_at(data, 122, 1), "f+22");
  EXPECT_EQ(name_at(data, 122, 2), "g+2");
  EXPECT_EQ(name_at(data, 125, 2), "f+25");
  EXPECT_EQ(name_at(data, 132, 2), "f+32");
  EXPECT_EQ(name_at(data, 132, 3), "");
  EXPECT_EQ(name_at(data, 135, 3), "f+35");
  EXPECT_EQ(name_at(data, 104, 4), "h+9");
  EXPECT_EQ(name_at(data, 105, 4), "f+0") << "its start was replaced";
  EXPECT_EQ(name_at(data, 135, 4), "f+30");
  EXPECT_EQ(name_at(data, 145, 4), "f+40");
  EXPECT_EQ(name_at(data, 145, 5), "");
}

TEST(LiveNames, TheSameMomentAndTheEndsOfTime) {
  Built built;
  built.add(100, 10, 0, "f");
  built.add(100, 10, 0, "g");
  built.add(~uint64_t{15}, 16, 0, "end");
  built.add(~uint64_t{7}, 8, 0, "");
  const RecordingData data = built.finish();
  EXPECT_EQ(name_at(data, 100, 0), "g+0");
  EXPECT_EQ(name_at(data, ~uint64_t{15}, 5), "end+0");
  EXPECT_EQ(name_at(data, ~uint64_t{3}, 5), "");
}

TEST(LiveNames, WhereNothingWasANameCountsFromThen) {
  Built built;
  built.add(100, 20, 10, "f");
  built.add(100, 10, 20, "", NamedPlace::nothing);
  built.add(110, 5, 25, "", NamedPlace::nothing);
  built.add(102, 2, 30, "g");
  built.add(106, 8, 40, "h");  // in two removed places
  built.add(112, 4, 50, "i");  // over code
  built.add(100, 20, 60, "", NamedPlace::nothing);
  built.add(100, 4, 70, "");  // code without a name
  built.add(100, 8, 80, "j");
  built.add(~uint64_t{15}, 16, 10, "", NamedPlace::nothing);
  built.add(~uint64_t{7}, 8, 20, "end");
  const RecordingData data = built.finish();
  EXPECT_EQ(name_at(data, 102, 19), "f+2");
  EXPECT_EQ(name_at(data, 100, 25), "");
  EXPECT_EQ(name_at(data, 102, 20), "g+0");
  EXPECT_EQ(name_at(data, 106, 24), "");
  EXPECT_EQ(name_at(data, 106, 25), "h+0");
  EXPECT_EQ(name_at(data, 112, 49), "h+6");
  EXPECT_EQ(name_at(data, 112, 50), "i+0");
  EXPECT_EQ(name_at(data, 100, 79), "");
  EXPECT_EQ(name_at(data, 104, 80), "j+4");
  EXPECT_EQ(name_at(data, ~uint64_t{7}, 15), "end+0");
}

/// Each of many codes that lie in each other is cut again and again.
TEST(LiveNames, RangesAreAtMostThreeForEachCode) {
  constexpr uint64_t kCodes = 20000;
  Built built;
  for (uint64_t i = 0; i < kCodes; ++i) built.add(i, 3 * kCodes - 2 * i, i + 1, "f");
  for (uint64_t i = 0; i < kCodes; ++i) built.add(0, i + 1, kCodes + i, "g");
  EXPECT_LE(built.finish().symbolizer->pick_all().ranges.size(), 6 * kCodes);
}

}  // namespace
}  // namespace ptd
