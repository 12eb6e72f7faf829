// AddressSet: equals std::set.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "image/fetch_log.h"

namespace ptd {
namespace {

TEST(AddressSet, EqualsASet) {
  std::mt19937_64 random(1);
  for (const uint64_t most : {uint64_t{0}, uint64_t{100}, uint64_t{3000}, ~uint64_t{0}}) {
    AddressSet ours;
    std::set<uint64_t> theirs;
    for (int i = 0; i < 20000; ++i) {
      const uint64_t address = most == ~uint64_t{0} ? random() : random() % (most + 1);
      ours.insert(address);
      theirs.insert(address);
      if (i % 7001 == 0) {
        EXPECT_EQ(std::vector<uint64_t>(theirs.begin(), theirs.end()), ours.sorted());
      }
    }
    EXPECT_EQ(std::vector<uint64_t>(theirs.begin(), theirs.end()), ours.take());
    EXPECT_TRUE(ours.sorted().empty());
    ours.insert(5);
    EXPECT_EQ(std::vector<uint64_t>{5}, ours.sorted());
  }
}

}  // namespace
}  // namespace ptd
