// HoleTimes: like a search for each hole and cpu, without its cost.
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>
#include <vector>

#include "recording/data/hole_times.h"
#include "tests/support/peak_memory.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

/// The times of each hole, from all cpus of each.
class AllTimes {
 public:
  void add(int32_t cpu, TimeNs time, size_t holes, const HoleTimes::CpuTimes& latest) {
    while (holes_.size() < holes) {
      TimeNs first = latest.empty() ? kTimeMin : kTimeMax;
      for (const auto& [other, last] : latest) first = std::min(first, last);
      holes_.push_back({first, {}});
    }
    for (size_t i = 0; i < holes; ++i) holes_[i].next.emplace(cpu, time);
  }
  [[nodiscard]] std::vector<Interval> windows(const HoleTimes::CpuTimes& latest) const {
    std::vector<Interval> out;
    for (const Hole& hole : holes_) {
      TimeNs last = hole.first;
      for (const auto& [cpu, time] : latest) last = std::max(last, hole.next.contains(cpu) ? hole.next.at(cpu) : kTimeMax);
      out.push_back({hole.first, last});
    }
    return out;
  }

 private:
  struct Hole {
    TimeNs first;
    std::map<int32_t, TimeNs> next;
  };
  std::vector<Hole> holes_;
};

TEST(HoleTimes, LikeASearchOfAllCpus) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    HoleTimes times;
    AllTimes all;
    HoleTimes::CpuTimes latest;
    const auto cpus = static_cast<unsigned>(1 + random() % 6), hole_every = static_cast<unsigned>(1 + random() % 8);
    size_t holes = 0;
    uint64_t now = 1000;
    for (unsigned i = 0; i < 60; ++i) {
      if (random() % hole_every == 0) holes += 1 + random() % 3;
      const auto cpu = static_cast<int32_t>(random() % (1 + i * cpus / 60));
      const TimeNs time{now + random() % 50};  // rings are not in order of time
      now += random() % 20;
      times.add(cpu, time, holes, latest);
      all.add(cpu, time, holes, latest);
      latest[cpu] = std::max(latest[cpu], time);
    }
    ASSERT_EQ(times.windows(), all.windows(latest)) << "round " << round;
  }
}

TEST_F(Fold, HolesAmongRecordsOfManyCpusTakeLittleTimeAndMemory) {
  constexpr size_t kHoles = 200;
  constexpr int32_t kCpus = 20'000;
  perfio::ReadDamage damage;
  SidebandFold::Holes& holes = damage.holes;
  for (uint64_t i = 0; i < kHoles; ++i) holes.push_back({64 * (i + 1), 8});
  fold_->watch_holes(holes);
  test::reset_peak();
  const long before = test::status_mib("VmHWM");
  const std::clock_t begin = std::clock();
  for (uint64_t time = 1; time <= kHoles; ++time) comm(7, 7, "one", false, time);  // one after each hole
  for (int32_t cpu = 0; cpu < kCpus; ++cpu) feed(perfio::LostRecord{0, 1, true}, 1000 + static_cast<uint64_t>(cpu), 7, 7, cpu);
  fold_->on_damage(damage, {});
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 1.5);  // with all cpus of each hole: 3 s
  EXPECT_LT(test::status_mib("VmHWM") - before, 80);                           // 180 MB
  finish();
  std::vector<Interval> windows;
  for (const Finding& finding : data_->timeline.findings()) windows.push_back(finding.time);
  ASSERT_EQ(windows.size(), kHoles);
  EXPECT_EQ(windows[0], (Interval{kTimeMin, TimeNs{1000 + kCpus - 1}})) << "no record before";
  EXPECT_EQ(windows[kHoles - 1], (Interval{TimeNs{kHoles - 1}, TimeNs{1000 + kCpus - 1}}));
}

// Two files with records of other times: what data.0 lost, it lost while or after it was written.
TEST_F(Fold, DamageIsOfTheTimeOfItsFile) {
  perfio::ReadDamage damage;
  damage.files = {"data", "data.0", "data.1"};
  damage.holes = {{100, 8, 1}};
  damage.cuts = {{2, 300}, {1, 300}, {0, 300}};
  fold_->watch_holes(damage.holes);
  const auto record = [this](uint32_t file, uint64_t offset, int32_t cpu, uint64_t time) {
    perfio::Record comm;
    comm.payload = perfio::CommRecord{7, 7, "one", false};
    comm.sample_id.cpu = cpu;
    comm.sample_id.time = time;
    comm.sample_id.has_time = true;
    comm.file = file;
    comm.file_offset_bytes = offset;
    fold_->on_record(comm);
  };
  record(1, 0, 0, 1000);
  record(2, 0, 1, 1100);
  record(1, 50, 2, 1200);
  record(1, 200, 0, 2000);
  record(1, 250, 2, 2100);
  record(2, 200, 1, 9000);
  fold_->on_damage(damage, {{}, {}, {}});
  finish();
  const std::vector<Finding>& findings = data_->timeline.findings();
  ASSERT_EQ(findings.size(), 4U);
  EXPECT_EQ(findings[0].time, (Interval{TimeNs{1000}, TimeNs{2100}}));
  EXPECT_NE(findings[0].what.find("data.0 is damaged at byte 100"), std::string::npos) << findings[0].what;
  EXPECT_EQ(findings[1].time, (Interval{TimeNs{9000}, kTimeMax}));
  EXPECT_EQ(findings[2].time, (Interval{TimeNs{2000}, kTimeMax}));
  EXPECT_NE(findings[2].what.find("data.0 ends early, at byte 300"), std::string::npos) << findings[2].what;
  EXPECT_EQ(findings[3].time, (Interval{kTimeMin, kTimeMax})) << "no record with a time";
}

}  // namespace
}  // namespace ptd
