// Timeline: old bytes are checked against the timeline, lost records are inserted, copies are dated; and a model of every byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <random>
#include <vector>

#include "ptdecode/timeline.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/image/timeline_support.h"

namespace ptd {
namespace {

using namespace timeline_test;  // NOLINT: helpers of this folder

DatedCopy copy_of(uint64_t ip, CodeBytes code, Interval taken) {
  DatedCopy copy;
  copy.ip = Ip{ip};
  copy.code = std::move(code);
  copy.taken = taken;
  return copy;
}

std::vector<FindingKind> kinds(const Timeline& timeline) {
  std::vector<FindingKind> out;
  for (const Finding& finding : timeline.findings()) out.push_back(finding.kind);
  return out;
}

TEST(TimelineHeal, OldBytesProveALostRecord) {
  TimelineBuilder builder;
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0xeb, 0x10}, 100));
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0xeb, 0x20}, 300));  // between them eb 10 went back to 66 90
  const Timeline timeline = builder.build();
  ASSERT_EQ(kinds(timeline), (std::vector{FindingKind::poke_old_bytes_mismatch, FindingKind::poke_healed}));
  EXPECT_EQ(timeline.findings()[0].expected, bytes({0x66, 0x90}));
  EXPECT_EQ(timeline.findings()[0].found, bytes({0xeb, 0x10}));
  EXPECT_EQ(timeline.findings()[1].time, during(100, 300));
  CodeView view(timeline);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(200), 2).hex(), "eb10 6690");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(301), 2).hex(), "eb20");
  EXPECT_TRUE(any(fetch(view, kKernelSpace, kKernelIp, at(200), 2).candidates[1].flags, CodeFlag::healed));
}

TEST(TimelineHeal, ACertainContentHasTheSameFlagsThroughout) {
  TimelineBuilder builder;
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0x66, 0x10}, 100));
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0x66, 0x20}, 300));  // version 2 is healed, version 3 is this one
  CodeView view(builder.build());
  const Got healed = fetch(view, kKernelSpace, kKernelIp, at(200), 1, {{0, 2}}),
            after = fetch(view, kKernelSpace, kKernelIp, at(350), 1, {{0, 2}});
  ASSERT_EQ(healed.hex() + " " + after.hex(), "66 66");
  EXPECT_TRUE(any(healed.candidates[0].flags, CodeFlag::healed));
  EXPECT_FALSE(any(after.candidates[0].flags, CodeFlag::healed));
  EXPECT_FALSE(healed.candidates[0].certain.contains(at(350)) || after.candidates[0].certain.contains(at(200)));
}

// At 250 it is healed, at 350 it is not: that its bytes are the same throughout does not say which.
TEST(TimelineHeal, AContentOfHealedAndOtherVersionsIsCertainAtNoMoment) {
  TimelineBuilder builder;
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0x66, 0x10}, 100));
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0x66, 0x20}, 300));
  builder.add_edit(poke(kKernelIp, {0x66, 0x20}, {0x66, 0x30}, 400));
  CodeView view(builder.build());
  for (const Interval when : {during(250, 350), during(250, 450)}) {
    const Got both = fetch(view, kKernelSpace, kKernelIp, when, 1, {{0, 2}});
    ASSERT_EQ(both.hex(), "66");
    EXPECT_FALSE(any(both.candidates[0].flags, CodeFlag::healed));
    EXPECT_TRUE(both.candidates[0].certain.empty());
  }
}

TEST(TimelineHeal, CreationAndRemoval) {
  TimelineBuilder builder;
  builder.add_edit(poke(kKernelIp, {}, {1, 2, 3}, 100));
  builder.add_edit(poke(kKernelIp, {1, 2, 3}, {}, 200));
  builder.add_edit(poke(kKernelIp, {4, 5, 6}, {}, 400));  // its creation was lost
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(99)).result.status, FetchStatus::not_mapped);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(150)).hex(), "010203");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(300)).hex(), "040506");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(401)).result.status, FetchStatus::not_mapped);
  EXPECT_EQ(kinds(timeline), (std::vector{FindingKind::poke_old_bytes_mismatch, FindingKind::poke_healed}));
}

TEST(TimelineHeal, RepetitionsAndRecordsThatChangeNothingCollapse) {
  TimelineBuilder builder;
  for (int i = 0; i < 3; ++i) builder.add_edit(poke(kKernelIp, {1, 2}, {3, 4}, 100));
  builder.add_edit(poke(kKernelIp, {3, 4}, {3, 4}, 200));
  const Timeline timeline = builder.build();
  EXPECT_TRUE(timeline.findings().empty());
  EXPECT_EQ(timeline.site(0).versions, 2U);
}

// Its time tells nothing of the record, or that it is newer, as where it is the first copy of a module that was loaded meanwhile: then it
// is no finding.
TEST(TimelineHeal, BaseCopyNewerThanARecord) {
  for (const Interval taken : {during(50, 150), at(150)}) {
    TimelineBuilder builder;
    builder.add_copy(copy_of(kKernelIp, owned(bytes({3, 4, 9, 9})), taken));
    builder.add_edit(poke(kKernelIp, {1, 2}, {3, 4}, 100));
    builder.add_edit(poke(kKernelIp, {3, 4}, {5, 6}, 200));
    const Timeline timeline = builder.build();
    EXPECT_EQ(kinds(timeline), taken == at(150) ? std::vector<FindingKind>() : std::vector{FindingKind::base_copy_redated});
    CodeView view(timeline);
    EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(50), 4).hex(), "01020909");
    EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(250), 4).hex(), "05060909");
  }
}

TEST(TimelineHeal, LaterCopyProvesALostRecordWithAndWithoutASite) {
  TimelineBuilder builder;
  builder.add_copy(copy_of(kKernelIp, owned(bytes({1, 2, 0, 0, 0x66, 0x90, 0, 0})), at(10)));
  builder.add_copy(copy_of(kKernelIp, owned(bytes({7, 8, 0, 0, 0xeb, 0x33, 0, 0})), at(900)));
  builder.add_edit(poke(kKernelIp, {1, 2}, {3, 4}, 100));
  const Timeline timeline = builder.build();
  EXPECT_EQ(kinds(timeline), (std::vector{FindingKind::poke_lost_by_copy, FindingKind::poke_lost_by_copy}));
  CodeView view(timeline);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(500), 2).hex(), "0304 0708");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 4, at(500), 2).hex(), "6690 eb33");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(901), 8).hex(), "07080000eb330000");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(9), 8).hex(), "0102000066900000");
}

TEST(TimelineHeal, CopyInTheMiddleOfAPokeIsNoProof) {
  TimelineBuilder builder;
  builder.add_copy(copy_of(kKernelIp, owned(bytes({0xcc, 0x10, 0, 0})), at(90)));
  builder.add_edit(poke(kKernelIp, {0x66, 0x90}, {0xeb, 0x10}, 100));
  const Timeline timeline = builder.build();
  EXPECT_EQ(kinds(timeline), std::vector{FindingKind::base_copy_redated});
  CodeView view(timeline);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(50), 4).hex(), "66900000");
}

// Two ranges of one kcore. The code of the second returned to its first state, so its bytes alone fit both ends.
TEST(TimelineHeal, CopiesTakenTogetherAreDatedTogether) {
  TimelineBuilder builder;
  builder.add_copy(copy_of(kKernelIp, owned(bytes({1})), {}));
  builder.add_copy(copy_of(kKernelIp + 0x1000, owned(bytes({3})), {}));
  builder.add_edit(poke(kKernelIp, {1}, {2}, 100));
  builder.add_edit(poke(kKernelIp + 0x1000, {3}, {4}, 200));
  builder.add_edit(poke(kKernelIp + 0x1000, {4}, {3}, 300));
  const Timeline timeline = builder.build();
  EXPECT_TRUE(timeline.findings().empty());
  CodeView view(timeline);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 0x1000, at(150), 1).hex(), "03");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 0x1000, at(250), 1).hex(), "04");
}

// The loss shows at the first site (2 -> 1 is lost). At the second, 1 -> 2 is lost: the copy is older than its remaining records.
TEST(TimelineHeal, ALostFirstRecordDoesNotMakeTheCopyNewer) {
  TimelineBuilder builder;
  builder.add_copy(copy_of(kKernelIp, owned(bytes({1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0})), {}));
  builder.add_edit(poke(kKernelIp, {1}, {2}, 100));
  builder.add_edit(poke(kKernelIp, {1}, {2}, 300));
  builder.add_edit(poke(kKernelIp + 4, {2}, {1}, 400));
  builder.add_edit(poke(kKernelIp + 8, {5}, {6}, 500));
  builder.add_edit(poke(kKernelIp + 12, {5}, {6}, 600));
  const Timeline timeline = builder.build();
  EXPECT_EQ(kinds(timeline), (std::vector{FindingKind::poke_old_bytes_mismatch, FindingKind::poke_healed,
                                          FindingKind::poke_old_bytes_mismatch, FindingKind::poke_healed}));
  CodeView view(timeline);
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(200), 1).hex(), "02 01");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 4, at(50), 1).hex(), "01 02");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 4, at(450), 1).hex(), "01");
}

TEST(TimelineHeal, SuspectOnlyInsideLostWindows) {
  TimelineBuilder builder;
  builder.add_section(section(kKernelSpace, kKernelIp, filled(32, 0x90)));
  builder.add_lost_window(during(100, 200));
  CodeView view(builder.build());
  EXPECT_FALSE(any(fetch(view, kKernelSpace, kKernelIp, at(99)).candidates[0].flags, CodeFlag::suspect));
  EXPECT_TRUE(any(fetch(view, kKernelSpace, kKernelIp, at(100)).candidates[0].flags, CodeFlag::suspect));
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(300)).candidates[0].certain, (Interval{TimeNs{201}, kTimeMax}));
}

// With one window, a change and its reversal are within the window. With two, the content between them is in doubt. After the last record
// one is enough.
TEST(TimelineHeal, TwoLossesLeaveWhatStoodBetweenInDoubt) {
  for (const bool second : {false, true}) {
    TimelineBuilder builder;
    builder.add_edit(poke(kKernelIp, {1}, {2}, 100));
    builder.add_edit(poke(kKernelIp, {2}, {3}, 500));
    builder.add_lost_window(during(200, 210));
    if (second) builder.add_lost_window(during(300, 310));
    CodeView view(builder.build());
    const auto in_doubt = [&](uint64_t t) {
      return any(fetch(view, kKernelSpace, kKernelIp, at(t), 1).candidates[0].flags, CodeFlag::suspect);
    };
    EXPECT_FALSE(in_doubt(150));
    EXPECT_TRUE(in_doubt(205));
    EXPECT_EQ(in_doubt(250), second);
    EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(250), 1).hex(), "02");
    EXPECT_FALSE(in_doubt(350));
    EXPECT_FALSE(in_doubt(600));
  }
}

TEST(TimelineHeal, ALossAfterTheLastRecordLeavesTheSiteInDoubt) {
  TimelineBuilder builder;
  builder.add_edit(poke(kKernelIp, {1}, {2}, 100));
  builder.add_lost_window(during(200, 210));
  CodeView view(builder.build());
  const auto in_doubt = [&](uint64_t t) {
    return any(fetch(view, kKernelSpace, kKernelIp, at(t), 1).candidates[0].flags, CodeFlag::suspect);
  };
  EXPECT_FALSE(in_doubt(150));
  EXPECT_TRUE(in_doubt(250));
  EXPECT_TRUE(in_doubt(1'000'000));
}

// A site that seems to have been copied after a loss may have lost a record instead: then the copied content is also possible before it.
TEST(TimelineHeal, ALossExplainsACopyThatSeemsNewer) {
  for (const bool lost : {false, true}) {
    TimelineBuilder builder;
    DatedCopy copy = copy_of(kKernelIp, filled(128, 0x01), {});
    builder.add_copy(std::move(copy));
    for (int i = 0; i < 5; ++i) builder.add_edit(poke(kKernelIp + 8 * i, {1}, {2}, 100 + 10 * i));
    builder.add_edit(poke(kKernelIp + 64, {2}, {1}, 300));  // in the copy: 01
    if (lost) builder.add_lost_window(during(200, 250));
    CodeView view(builder.build());
    EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 64, at(180), 1).hex(), lost ? "01 02" : "02");
    EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 64, at(90), 1).hex(), lost ? "01 02" : "02");
    EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 64, at(310), 1).hex(), "01");
  }
}

TEST(TimelineHeal, FloorsRuleOutAndClamp) {
  TimelineBuilder builder;
  builder.add_edit(poke(kKernelIp, {1}, {2}, 100));
  builder.add_edit(poke(kKernelIp, {2}, {3}, 200));
  CodeView view(builder.build());
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, during(50, 250), 1).hex(), "01 02 03");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, during(50, 250), 1, {{0, 1}}).hex(), "02 03");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(50), 1, {{0, 2}}).hex(), "03");
}

TEST(TimelineHeal, ForkSeesWhatWasMappedThen) {
  TimelineBuilder builder;
  const SpaceId parent = builder.add_space();
  builder.add_section(section(parent, 0x1000, filled(64, 0xaa), {TimeNs{10}, kTimeMax}));
  const SpaceId child = builder.fork_space(parent, TimeNs{50});
  builder.add_section(section(parent, 0x1000, filled(64, 0xbb), {TimeNs{60}, kTimeMax}));
  builder.remove(child, Ip{0x1020}, 32, TimeNs{70});
  builder.add_edit(edit(child, 0x1004, bytes({0xaa}), bytes({0xcc}), at(80)));
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  EXPECT_TRUE(timeline.findings().empty());
  EXPECT_EQ(fetch(view, child, 0x1000, at(65)).first_bytes(), "aa");
  EXPECT_EQ(fetch(view, parent, 0x1000, at(65)).first_bytes(), "bb");
  EXPECT_EQ(fetch(view, child, 0x1030, at(71)).result.status, FetchStatus::not_mapped);
  EXPECT_EQ(fetch(view, child, 0x1003, at(81), 3).hex(), "aaccaa");
  EXPECT_EQ(fetch(view, parent, 0x1004, at(81)).first_bytes(), "bb");
}

// Between the first and the last time of a change, a child has either content.
TEST(TimelineHeal, AForkWithinTheTimeOfAChange) {
  TimelineBuilder builder;
  const SpaceId parent = builder.add_space();
  builder.add_section(section(parent, 0x1000, filled(64, 0xaa), {TimeNs{10}, kTimeMax}));
  builder.add_edit(edit(parent, 0x1004, bytes({0xaa, 0xaa}), bytes({0xaa, 0xbb}), during(40, 60)));
  const SpaceId before = builder.fork_space(parent, TimeNs{39}), child = builder.fork_space(parent, TimeNs{50}),
                after = builder.fork_space(parent, TimeNs{61});
  const SpaceId grandchild = builder.fork_space(child, TimeNs{70});
  const SpaceId edited = builder.fork_space(parent, TimeNs{50}), proven = builder.fork_space(parent, TimeNs{50});
  builder.add_edit(edit(edited, 0x1005, {}, bytes({0xcc}), at(80)));
  builder.add_edit(edit(proven, 0x1005, bytes({0xaa}), bytes({0xcc}), at(80)));
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  const auto flags = [&](SpaceId space, uint64_t ip, uint64_t when) { return fetch(view, space, ip, at(when), 1).candidates.at(0).flags; };
  EXPECT_TRUE(timeline.findings().empty());
  EXPECT_EQ(fetch(view, before, 0x1005, at(90)).first_bytes(), "aa");
  EXPECT_EQ(fetch(view, after, 0x1005, at(90)).first_bytes(), "bb");
  for (const SpaceId space : {before, after, parent}) EXPECT_EQ(flags(space, 0x1005, 90), CodeFlag::none);
  for (const SpaceId space : {child, grandchild}) {
    EXPECT_EQ(flags(space, 0x1005, 75), CodeFlag::assumed);
    EXPECT_EQ(flags(space, 0x1004, 75), CodeFlag::none);
  }
  EXPECT_EQ(flags(edited, 0x1005, 75), CodeFlag::assumed);
  EXPECT_EQ(flags(edited, 0x1005, 90), CodeFlag::none);
  EXPECT_EQ(fetch(view, proven, 0x1005, at(75)).first_bytes(), "aa");
  EXPECT_EQ(flags(proven, 0x1005, 75), CodeFlag::none);
}

// A mapping that is assumed, and a proof later: the same bytes, certain at some times only.
TEST(TimelineHeal, TheSameBytesAssumedAndCertain) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  const CodeBytes code = filled(16, 0xaa);
  const auto map = [&](uint64_t time, bool assumed) {
    Section mapped = section(space, 0x1000, code, {TimeNs{time}, kTimeMax});
    mapped.assumed = assumed;
    builder.add_section(std::move(mapped));
  };
  map(10, false);
  map(30, true);
  map(50, false);
  builder.add_edit(edit(space, 0x1004, bytes({0xaa}), bytes({0xbb}), at(90)));
  CodeView view(builder.build());
  for (const uint64_t ip : {0x1004U, 0x1008U}) {
    EXPECT_EQ(fetch(view, space, ip, at(20), 1).candidates.at(0).flags, CodeFlag::none);
    EXPECT_EQ(fetch(view, space, ip, at(40), 1).candidates.at(0).flags, CodeFlag::assumed);
    EXPECT_EQ(fetch(view, space, ip, at(60), 1).candidates.at(0).flags, CodeFlag::none);
    const Got both = fetch(view, space, ip, during(20, 40), 1);
    ASSERT_EQ(both.candidates.size(), 1U);
    EXPECT_EQ(both.candidates[0].flags, CodeFlag::assumed);
    EXPECT_TRUE(both.candidates[0].certain.empty());
  }
}

TEST(TimelineHeal, FrozenKeepsTheFirstVersion) {
  TimelineBuilder builder;
  builder.freeze_at_first_version();
  builder.add_section(section(kKernelSpace, kKernelIp, filled(32, 0x90)));
  builder.add_edit(poke(kKernelIp, {0x90}, {0x91}, 100));
  CodeView view(builder.build());
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(500)).first_bytes(), "90");
}

// A byte-by-time model: random pokes on a page, in order, and every fetch at every time is compared with it. Then records are dropped: if a
// later record of the same address remains to prove the loss, the true bytes remain among the candidates.
class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {
    std::vector<std::byte> page(kSize);
    for (std::byte& byte : page) byte = static_cast<std::byte>(random_());
    history_.push_back(page);
    base_ = owned(page);
    for (uint64_t t = 1; t <= kMoments; ++t) {
      const size_t offset = random_() % 40 * 12 + random_() % 3;  // sites may touch and overlap
      const size_t size = std::min<size_t>(1 + random_() % 12, kSize - offset);
      Edit change = edit(kKernelSpace, kKernelIp + offset, {}, {}, at(10 * t));
      const auto from = page.begin() + static_cast<ptrdiff_t>(offset);
      change.old_bytes.assign(from, from + static_cast<ptrdiff_t>(size));
      for (size_t i = 0; i < size; ++i) change.new_bytes.push_back(static_cast<std::byte>(random_() % 4));
      std::copy(change.new_bytes.begin(), change.new_bytes.end(), from);
      edits_.push_back(change);
      history_.push_back(page);
    }
  }

  static constexpr size_t kSize = 512;
  static constexpr uint64_t kMoments = 300;
  std::mt19937_64 random_;
  CodeBytes base_;
  std::vector<Edit> edits_;
  std::vector<std::vector<std::byte>> history_;  // [k]: between edits k - 1 and k
};

TEST(TimelineModel, EveryByteAtEveryMoment) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Model model(seed);
    TimelineBuilder builder;
    builder.add_copy(copy_of(kKernelIp, model.base_, at(1)));
    std::vector<Edit> shuffled = model.edits_;
    std::shuffle(shuffled.begin(), shuffled.end(), model.random_);
    for (const Edit& edit : shuffled) builder.add_edit(edit);
    const Timeline timeline = builder.build();
    ASSERT_TRUE(timeline.findings().empty());
    CodeView view(timeline);
    for (uint64_t k = 0; k <= Model::kMoments; ++k) {
      for (size_t offset = 0; offset + 15 <= Model::kSize; offset += 5) {
        const Bytes want = Bytes{model.history_[k]}.subspan(offset, 15);
        const Got got = fetch(view, kKernelSpace, kKernelIp + offset, at(10 * k + 5));
        ASSERT_EQ(got.hex(), to_hex(want)) << "seed " << seed << " after " << k << " offset " << offset;
        const Interval certain = got.candidates[0].certain;
        ASSERT_TRUE(certain.contains(TimeNs{10 * k + 5}));
        for (uint64_t j = 0; j <= Model::kMoments; ++j) {  // certain content is true throughout
          if (!certain.contains(TimeNs{10 * j + 5})) continue;
          ASSERT_TRUE(std::ranges::equal(Bytes{model.history_[j]}.subspan(offset, 15), want));
        }
      }
      // At the time of an edit: exactly the contents before and after.
      if (k == 0) continue;
      const Edit& change = model.edits_[k - 1];
      const size_t offset = change.ip.value - kKernelIp;
      if (offset + 15 > Model::kSize) continue;
      std::string want = to_hex(Bytes{model.history_[k - 1]}.subspan(offset, 15));
      const std::string then = to_hex(Bytes{model.history_[k]}.subspan(offset, 15));
      if (then != want) want += " " + then;
      ASSERT_EQ(fetch(view, kKernelSpace, change.ip.value, change.time).hex(), want);
    }
  }
}

// Static keys: fixed addresses, whole instructions, two or three contents each; a tenth of the records is dropped.
TEST(TimelineModel, DroppedRecordsStayAmongTheCandidates) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    struct Place {
      int now = 0;
      std::vector<std::pair<uint64_t, int>> truth;  // time from which it is valid
      std::vector<uint64_t> lost;
      uint64_t last_kept = 0;
      bool cancels = false;
    };
    std::vector<Place> places(30);
    TimelineBuilder builder;
    std::vector<std::byte> page(30 * 8, std::byte{0x90});
    for (size_t i = 0; i < places.size(); ++i) std::fill_n(page.begin() + static_cast<ptrdiff_t>(8 * i), 5, std::byte{0});
    builder.add_copy(copy_of(kKernelIp, owned(page), at(1)));
    for (uint64_t t = 10; t < 6000; t += 10) {
      const size_t i = random() % places.size();
      Place& place = places[i];
      const int next = place.now + 1;  // never the same content again, so that no two losses cancel each other
      const std::vector<std::byte> old_bytes(5, static_cast<std::byte>(place.now)), new_bytes(5, static_cast<std::byte>(next));
      if (random() % 10 != 0) {
        builder.add_edit(edit(kKernelSpace, kKernelIp + 8 * i, old_bytes, new_bytes, at(t)));
        place.last_kept = t;
      } else {
        place.lost.push_back(t);
      }
      place.now = next;
      place.truth.emplace_back(t, next);
    }
    CodeView view(builder.build());
    for (size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      for (uint64_t t = 5; t < place.last_kept; t += 10) {
        int truth = 0;
        bool hidden = false;  // two consecutive losses: the content between them left no evidence
        for (const auto& [from, value] : place.truth) {
          if (from < t) truth = value;
        }
        for (size_t k = 0; k + 1 < place.truth.size(); ++k) {
          const auto lost = [&](uint64_t when) { return std::find(place.lost.begin(), place.lost.end(), when) != place.lost.end(); };
          if (place.truth[k].second == truth) hidden = lost(place.truth[k].first) && lost(place.truth[k + 1].first);
        }
        if (hidden) continue;
        const Got got = fetch(view, kKernelSpace, kKernelIp + 8 * i, at(t), 5);
        const std::string want = to_hex(std::vector<std::byte>(5, static_cast<std::byte>(truth)));
        EXPECT_NE(got.hex().find(want), std::string::npos) << "seed " << seed << " place " << i << " time " << t << ": " << got.hex();
      }
    }
  }
}

// Two copies whose words differ after a recorded patch that covers a part of one: the rest is reported, and the search ends.
TEST(TimelineHeal, PatchCoversAPartOfAWordThatDiffers) {
  TimelineBuilder builder;
  builder.set_word_bytes(4);
  builder.add_copy(copy_of(kKernelIp, owned(bytes({1, 2, 3, 4, 5, 6, 7, 8})), at(10)));
  builder.add_copy(copy_of(kKernelIp, owned(bytes({1, 2, 3, 9, 5, 0, 7, 8})), at(90)));
  builder.add_edit(poke(kKernelIp, {1, 2}, {1, 2}, 50));
  CodeView view(builder.build());
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(5), 8).hex(), "0102030405060708");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(95), 8).hex(), "0102030905000708");
}

// Each record contradicts the one before: the cost of a site must not grow with the square of its records.
TEST(TimelineHeal, ManyRecordsThatContradictEachOtherTakeLittleTime) {
  constexpr uint64_t kFew = 60'000, kMany = 4 * kFew;
  for (const uint64_t addresses : {1, 3}) {
    const auto seconds_of = [addresses](uint64_t records) {
      TimelineBuilder builder;
      for (uint64_t i = 0; i < records; ++i) {
        const auto target = static_cast<int>(i % 4);
        builder.add_edit(poke(kKernelIp + i % addresses, {0x0f, 0x1f, 0x44, 0, 0}, {0xe8, target, 0, 0, 0}, 1000 + i));
      }
      const std::clock_t begin = std::clock();
      const Timeline timeline = builder.build();
      EXPECT_EQ(timeline.findings().size(), 65'536U) << addresses;
      return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    const double few = seconds_of(kFew);
    EXPECT_LT(seconds_of(kMany), 8 * few) << addresses;  // with a search for each: 13 times as long
  }
}

}  // namespace
}  // namespace ptd
