// Long chains of forks: each space shows what its ancestors had mapped at the fork, at a cost in proportion to the mappings.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

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

/// Address spaces as arrays of bytes, with every change in order of time.
class EditedForks {
 public:
  static constexpr uint64_t kBytes = 256;
  using Memory = std::array<int, kBytes>;

  explicit EditedForks(unsigned seed) : random_(seed) {
    spaces_.emplace_back(builder_.add_space(), Memory{});
    log_.push_back({{0, spaces_[0].memory}});
  }
  /// One event, 10 ns after the last: a mapping, an edit, an unmapping or a fork.
  void step() {
    now_ += 10;
    const uint64_t what = pick(7);
    const size_t index = pick(2) == 0 ? pick(spaces_.size() - 1) : deepest_;
    if (what < 3) return fork(index);
    const uint64_t first = pick(kBytes - 1), size = std::min(1 + pick(what < 6 ? 7 : 99), kBytes - first);
    Space& space = spaces_[index];
    if (what < 6) {
      edit_bytes(space, first, size);
    } else if (pick(3) == 0) {
      builder_.remove(space.id, Ip{kBase + first}, size, TimeNs{now_});
      std::fill_n(space.memory.begin() + static_cast<ptrdiff_t>(first), size, -1);
    } else {
      const int content = static_cast<int>(1 + pick(250));
      builder_.add_section(section(space.id, kBase + first, filled(size, content), {TimeNs{now_}, kTimeMax}));
      std::fill_n(space.memory.begin() + static_cast<ptrdiff_t>(first), size, content);
    }
    log_[index].push_back({now_, space.memory});
  }
  /// Compares every byte of every space, between the events. Returns how many were mapped.
  size_t compare(size_t depth) {
    const Timeline timeline = builder_.build();
    EXPECT_TRUE(timeline.findings().empty()) << timeline.findings()[0].what;
    EXPECT_GT(spaces_[deepest_].depth, depth);
    CodeView view(timeline);
    size_t mapped = 0;
    for (size_t i = 0; i < spaces_.size(); ++i) {
      for (const auto& [time, memory] : log_[i]) {
        for (uint64_t at = 0; at < kBytes; at += 1 + pick(4)) mapped += compare_at(view, spaces_[i].id, memory, at, TimeNs{time + 5});
      }
    }
    return mapped;
  }

 private:
  struct Space {
    SpaceId id;
    Memory memory{};  // -1: unmapped
    size_t depth = 0;
    Space(SpaceId made, Memory from, size_t generation = 0) : id(made), memory(from), depth(generation) {
      if (generation == 0) memory.fill(-1);
    }
  };
  uint64_t pick(uint64_t most) { return random_() % (most + 1); }
  void fork(size_t index) {
    const Space child(builder_.fork_space(spaces_[index].id, TimeNs{now_}), spaces_[index].memory, spaces_[index].depth + 1);
    if (spaces_[deepest_].depth < child.depth) deepest_ = spaces_.size();
    spaces_.push_back(child);
    log_.push_back({{now_, child.memory}});
  }
  void edit_bytes(Space& space, uint64_t first, uint64_t size) {
    std::vector<std::byte> old_bytes, new_bytes;
    for (uint64_t at = first; at < first + size && space.memory[at] >= 0; ++at) {
      old_bytes.push_back(static_cast<std::byte>(space.memory[at]));
      space.memory[at] = static_cast<int>(1 + pick(250));
      new_bytes.push_back(static_cast<std::byte>(space.memory[at]));
    }
    if (!new_bytes.empty()) builder_.add_edit(edit(space.id, kBase + first, old_bytes, new_bytes, at(now_)));
  }
  static size_t compare_at(CodeView& view, SpaceId space, const Memory& memory, uint64_t at, TimeNs t) {
    uint64_t known = 0;
    while (at + known < kBytes && known < 15 && memory[at + known] >= 0) ++known;
    std::array<CodeCandidate, 4> got;
    const FetchResult result = view.fetch(space, Ip{kBase + at}, {t, t}, {}, got, 15);
    EXPECT_EQ(result.count, known == 0 ? 0U : 1U) << space.value << " " << at << " " << t.value;
    if (known == 0 || result.count != 1) return 0;
    EXPECT_GE(got[0].bytes.size(), known) << space.value << " " << at << " " << t.value;
    for (uint64_t i = 0; i < std::min<uint64_t>(known, got[0].bytes.size()); ++i)
      EXPECT_EQ(static_cast<int>(got[0].bytes[i]), memory[at + i]) << space.value << " " << at + i << " " << t.value;
    return 1;
  }

  std::mt19937 random_;
  TimelineBuilder builder_;
  std::vector<Space> spaces_;
  std::vector<std::vector<std::pair<uint64_t, Memory>>> log_;
  uint64_t now_ = 0;
  size_t deepest_ = 0;  // index
};

TEST(ForkChain, EachSpaceHasTheEditsOfItsAncestors) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    EditedForks forks(seed);
    for (int i = 0; i < 250; ++i) forks.step();
    EXPECT_GT(forks.compare(34), 1000U) << seed;
    if (HasFailure()) return;
  }
}

// The space maps both pages itself; an ancestor had the first one only.
TEST(ForkChain, AnEdgeOfAnAncestorCutsNoMapping) {
  for (int depth = 15; depth <= 19; ++depth) {
    TimelineBuilder builder;
    SpaceId space = builder.add_space();
    builder.add_section(section(space, kBase, filled(0x100, 7)));
    for (int i = 1; i <= depth; ++i) space = builder.fork_space(space, TimeNs{static_cast<uint64_t>(i)});
    builder.add_section(section(space, kBase, filled(0x200, 9), {TimeNs{100}, kTimeMax}));
    const Timeline timeline = builder.build();
    CodeView view(timeline);
    std::array<CodeCandidate, 4> got;
    const FetchResult result = view.fetch(space, Ip{kBase + 0xfe}, at(150), {}, got, 15);
    ASSERT_EQ(result.count, 1U) << depth;
    EXPECT_GE(got[0].bytes.size(), 15U) << depth;
  }
}

// Each space edits other code.
TEST(ForkChain, TheCostOfEditsGrowsWithTheirNumber) {
  const auto nodes_of = [](uint64_t count) {
    TimelineBuilder builder;
    SpaceId space = builder.add_space();
    builder.add_section(section(space, kBase, filled(16 * count, 7)));
    for (uint64_t i = 0; i < count; ++i) {
      builder.add_edit(edit(space, kBase + 16 * i, bytes({7, 7}), bytes({8, 9}), at(100 * i + 50)));
      space = builder.fork_space(space, TimeNs{100 * i + 100});
    }
    const Timeline timeline = builder.build();
    EXPECT_TRUE(timeline.findings().empty());
    CodeView view(timeline);
    std::array<CodeCandidate, 4> got;
    EXPECT_EQ(view.fetch(space, Ip{kBase + 16 * (count / 2)}, at(100 * count + 500), {}, got, 2).count, 1U);
    EXPECT_EQ(static_cast<int>(got[0].bytes[0]), 8);
    return timeline.data().snapshots.node_count();
  };
  EXPECT_LE(nodes_of(8000), 5 * nodes_of(2000));
}

}  // namespace
}  // namespace ptd::timeline_test
