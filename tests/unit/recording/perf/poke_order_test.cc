// PokeOrder: a poke that is moved past a record of its cpu is found, and its window holds its true time.
#include "recording/image/poke_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ptd {
namespace {

struct Sent {
  int32_t cpu;
  PokeOrder::Record record;
};

std::vector<PokeOrder::Doubt> doubts_of(std::vector<Sent> sent) {
  std::stable_sort(sent.begin(), sent.end(), [](const Sent& a, const Sent& b) { return a.record.time < b.record.time; });
  PokeOrder order;
  for (const Sent& each : sent) order.add(static_cast<uint64_t>(each.cpu), each.cpu, each.record);
  return order.finish();
}

/// Records of three cpus, ring by ring in the file, as perf writes them.
std::vector<Sent> recording(std::mt19937& random) {
  std::vector<Sent> sent;
  uint64_t offset = 0;
  for (int32_t cpu = 0; cpu < 3; ++cpu) {
    uint64_t time = 1000;
    for (int i = 0; i < 60; ++i) sent.push_back({cpu, {TimeNs{time += 2000 + random() % 1000}, offset += 48, random() % 3 == 0}});
  }
  return sent;
}

TEST(PokeOrder, AGoodRecordingHasNoDoubts) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) EXPECT_TRUE(doubts_of(recording(random)).empty());
}

TEST(PokeOrder, ARingFromTheLastRecordToTheFirstHasNoDoubts) {
  std::mt19937 random(3);
  std::vector<Sent> sent = recording(random);
  for (Sent& each : sent) each.record.offset_bytes = 1'000'000 - each.record.offset_bytes;
  EXPECT_TRUE(doubts_of(sent).empty());
}

TEST(PokeOrder, ARecordOfAnInterruptIsNoDoubt) {
  EXPECT_TRUE(doubts_of({{0, {TimeNs{1000}, 48, false}},
                         {0, {TimeNs{5000}, 144, true}},
                         {0, {TimeNs{5400}, 96, false, false, true}},
                         {0, {TimeNs{9000}, 192, false}}})
                  .empty());
  EXPECT_EQ(1U, doubts_of({{0, {TimeNs{1000}, 48, false}},
                           {0, {TimeNs{5000}, 144, true}},
                           {0, {TimeNs{8400}, 96, false, false, true}},
                           {0, {TimeNs{9000}, 192, false}}})
                    .size());
}

TEST(PokeOrder, ARecordOfCreatedCodeMayComeLateButNotEarly) {
  const auto doubts = [](uint64_t time) {
    return doubts_of({{0, {TimeNs{1000}, 48, false}},
                      {0, {TimeNs{time}, 144, true, true}},
                      {0, {TimeNs{5000}, 96, false}},
                      {0, {TimeNs{9000}, 192, false}}})
        .size();
  };
  EXPECT_EQ(doubts(2000), 0U);  // written after the record of 5000
  EXPECT_EQ(doubts(9500), 1U);
}

TEST(PokeOrder, AMovedPokeIsFound) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Sent> sent = recording(random);
    const size_t ring = random() % 3 * 60, at = ring + random() % 60;
    const size_t past = std::clamp<size_t>(at + random() % 9 - 4, ring, ring + 59);
    if (past == at || !sent[at].record.is_poke || sent[past].record.time == sent[at].record.time) continue;
    const TimeNs was = sent[at].record.time;
    sent[at].record.time = TimeNs{sent[past].record.time.value + (past > at ? 1500 : -1500)};
    const std::vector<PokeOrder::Doubt> doubts = doubts_of(sent);
    const auto named =
        std::find_if(doubts.begin(), doubts.end(), [&](const auto& doubt) { return doubt.offset_bytes == sent[at].record.offset_bytes; });
    ASSERT_NE(doubts.end(), named) << round;
    EXPECT_TRUE(named->window.contains(was) && named->window.contains(sent[at].record.time)) << round;
    EXPECT_EQ(sent[at].cpu, named->cpu);
  }
}

}  // namespace
}  // namespace ptd
