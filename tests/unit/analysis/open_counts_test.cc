// OpenCounts: the same counters as a std::map.
#include "analysis/base/open_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ptdecode/function_table.h"

namespace ptd {
namespace {

TEST(OpenCounts, CountsAsAMapDoes) {
  std::mt19937 random(1);
  for (const uint32_t functions : {3U, 100U, 100'000U}) {
    OpenCounts counts;
    std::map<FunctionId, uint32_t> truth;
    for (int i = 0; i < 50'000; ++i) {
      const auto number = static_cast<FunctionId>(random() % functions);
      const FunctionId function = number == 0 ? kNoFunction : number << (random() % 12);
      uint32_t& count = counts[function];
      ASSERT_EQ(count, truth[function]);
      if (random() % 2 == 0) {
        ++count, ++truth[function];
      } else if (count != 0) {
        --count, --truth[function];
      }
    }
    for (const auto& [function, count] : truth) EXPECT_EQ(counts[function], count);
    counts.clear();
    for (const auto& [function, count] : truth) ASSERT_EQ(counts[function], 0U);
  }
}

}  // namespace
}  // namespace ptd
