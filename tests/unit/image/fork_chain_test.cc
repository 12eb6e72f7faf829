// Long chains of forks: each space shows what its ancestors had mapped at the fork, at a cost in proportion to the mappings.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "image/timeline_data.h"
#include "timeline_support.h"

namespace ptd::timeline_test {
namespace {

constexpr uint64_t kBase = 0x400000, kUnit = 16;

/// Address spaces as plain lists of what was mapped and unmapped.
class Model {
 public:
  struct Change {
    uint64_t first = 0, last = 0;
    Interval live;
    int content = 0;  // 0: unmapped
  };
  struct Space {
    uint32_t parent = 0;
    TimeNs forked;
    std::vector<Change> changes;
  };
  std::vector<Space> spaces{1};

  /// Returns the content at the address; 0: none. A change hides all earlier ones of its space, also after its end.
  [[nodiscard]] int at(uint32_t space, uint64_t address, TimeNs t) const {
    while (space != 0) {
      const Change* latest = nullptr;
      for (const Change& change : spaces[space].changes) {
        const bool here = change.first <= address && address <= change.last && change.live.first <= t;
        if (here && (latest == nullptr || latest->live.first <= change.live.first)) latest = &change;
      }
      if (latest != nullptr && latest->live.contains(t)) return latest->content;
      t = spaces[space].forked;
      space = spaces[space].parent;
    }
    return 0;
  }
};

class Forks {
 public:
  explicit Forks(unsigned seed) : random_(seed) {}

  [[nodiscard]] uint64_t pick(uint64_t most) { return random_() % (most + 1); }
  void add_space(bool chain) {
    const auto id = static_cast<uint32_t>(model.spaces.size());
    Model::Space& space = model.spaces.emplace_back();
    if (id == 1) {
      (void)builder.add_space();
      return;
    }
    space.parent = chain ? id - 1 : static_cast<uint32_t>(1 + pick(id - 2));
    space.forked = TimeNs{pick(100)};
    (void)builder.fork_space(SpaceId{space.parent}, space.forked);
  }
  void change(uint32_t id) {
    Model::Change change;
    change.first = kBase + pick(30) * kUnit;
    change.last = change.first + (1 + pick(5)) * kUnit - 1;
    change.live = {TimeNs{pick(100)}, kTimeMax};
    const uint64_t size = change.last - change.first + 1;
    if (pick(3) == 0) {
      builder.remove(SpaceId{id}, Ip{change.first}, size, change.live.first);
    } else {
      change.content = static_cast<int>(1 + pick(250));
      if (pick(2) == 0) change.live.last = TimeNs{change.live.first.value + pick(40)};
      builder.add_section(section(SpaceId{id}, change.first, filled(size, change.content), change.live));
    }
    model.spaces[id].changes.push_back(change);
  }

  Model model;
  TimelineBuilder builder;

 private:
  std::mt19937 random_;
};

TEST(ForkChain, EachSpaceShowsWhatItsAncestorsHadMapped) {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    Forks forks(seed);
    for (uint32_t id = 1; id <= 120; ++id) {
      forks.add_space(id % 3 != 0 || seed % 2 == 0);
      for (int i = 0; i < 3; ++i) forks.change(id);
    }
    const Timeline timeline = forks.builder.build();
    CodeView view(timeline);
    size_t mapped = 0;
    for (uint32_t id = 1; id <= 120; ++id) {
      for (uint64_t address = kBase - kUnit; address < kBase + 40 * kUnit; address += kUnit / 2) {
        const TimeNs t{forks.pick(150)};
        const int content = forks.model.at(id, address, t);
        const Timeline::SectionAt found = timeline.section_during(SpaceId{id}, Ip{address}, t);
        ASSERT_EQ(found.id == kNoSection ? 0 : static_cast<int>(timeline.section(found.id).code.bytes[0]), content) << id << " " << address;
        const PlainCode plain = view.plain(SpaceId{id}, Ip{address}, {t, t});
        ASSERT_TRUE(plain.bytes.empty() || static_cast<int>(plain.bytes[0]) == content) << id << " " << address;
        for (uint64_t i = 0; i < plain.bytes.size(); i += kUnit / 2)
          ASSERT_EQ(static_cast<int>(plain.bytes[i]), forks.model.at(id, address + i, t)) << id << " " << address;
        std::array<CodeCandidate, 4> got;
        const FetchResult result = view.fetch(SpaceId{id}, Ip{address}, {t, t}, {}, got, 1);
        ASSERT_EQ(result.count, content == 0 ? 0U : 1U) << id << " " << address;
        ASSERT_EQ(result.section, found.id);
        if (content == 0) continue;
        ASSERT_EQ(static_cast<int>(got[0].bytes[0]), content);
        const std::vector<SectionId> ever = timeline.sections_at(SpaceId{id}, Ip{address});
        ASSERT_NE(std::find(ever.begin(), ever.end(), found.id), ever.end());
        for (const TimeNs edge : {got[0].certain.first, std::min(got[0].certain.last, TimeNs{300})})
          ASSERT_EQ(forks.model.at(id, address, edge), content) << id << " " << address;
        ++mapped;
      }
    }
    EXPECT_GT(mapped, 2000U);  // of 9840
  }
}

TEST(ForkChain, AnEditChangesInheritedCode) {
  TimelineBuilder builder;
  SpaceId space = builder.add_space();
  builder.add_section(section(space, kBase, filled(0x100, 7)));
  for (uint64_t i = 1; i <= 40; ++i) space = builder.fork_space(space, TimeNs{i});
  builder.add_edit(edit(space, kBase + 4, bytes({7, 7}), bytes({8, 9}), at(100)));
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  const auto code = [&](uint64_t t) {
    std::array<CodeCandidate, 4> got;
    const FetchResult result = view.fetch(space, Ip{kBase + 2}, at(t), {}, got, 6);
    return result.count == 1 ? to_hex(got[0].bytes.first(6)) : "";
  };
  EXPECT_EQ(code(50), "070707070707");
  EXPECT_EQ(code(150), "070708090707");
  EXPECT_TRUE(timeline.findings().empty());
}

// Each child maps one page more. A copy of the mappings at every few forks would make this the square of their number.
TEST(ForkChain, TheCostGrowsWithTheMappings) {
  const auto size_of = [](uint64_t count, bool wide) {
    TimelineBuilder builder;
    SpaceId space = builder.add_space();
    for (uint64_t i = 0; i < 20; ++i) space = builder.fork_space(space, TimeNs{i});
    if (wide) {
      for (uint64_t i = 0; i < count; ++i) builder.add_section(section(space, kBase + i * 0x1000, filled(1, 1), {TimeNs{i}, kTimeMax}));
      for (uint64_t i = 0; i < count; ++i) {
        SpaceId child = builder.fork_space(space, TimeNs{i});
        for (int generation = 0; generation < 20; ++generation) child = builder.fork_space(child, TimeNs{i});
      }
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        space = builder.fork_space(space, TimeNs{100 + i});
        builder.add_section(section(space, kBase + i * 0x1000, filled(1, 1), {TimeNs{100 + i}, kTimeMax}));
      }
    }
    const Timeline timeline = builder.build();
    size_t size = timeline.data().snapshots.node_count();
    for (const SpaceData& data : timeline.data().spaces) size += data.sections.size();
    return size;
  };
  for (const bool wide : {false, true}) EXPECT_LE(size_of(8000, wide), 5 * size_of(2000, wide)) << wide;
}

}  // namespace
}  // namespace ptd::timeline_test
