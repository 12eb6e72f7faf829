// Runs of code that never changes, which are read by a shortcut, equal those of code that may change; equal blocks share one node.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <tuple>

#include "decoder/arm/waypoint_runs.h"
#include "image/source/code_bytes.h"
#include "ptdecode/code_view.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

constexpr uint64_t kUserIp = 0x10000, kKernelIp = 0xffff800000010000, kWords = 2000;

void add_code(TimelineBuilder& builder, SpaceId space, uint64_t ip, const std::vector<uint32_t>& words, Interval live = {}) {
  std::vector<std::byte> bytes(4 * words.size());
  std::memcpy(bytes.data(), words.data(), bytes.size());
  Section section;
  section.space = space;
  section.ip = Ip{ip};
  section.size_bytes = bytes.size();
  section.live = live;
  section.code = own_bytes(bytes);
  builder.add_section(std::move(section));
}

/// Returns words of all classes, mostly plain ones.
std::vector<uint32_t> random_words(std::mt19937& random) {
  std::vector<uint32_t> words(kWords);
  for (uint32_t& word : words) {
    const auto field = [&random](unsigned low, unsigned width) { return (static_cast<uint32_t>(random()) & ((1U << width) - 1)) << low; };
    switch (random() % 40) {
      case 0:
        word = 0x14000000 | field(0, 26);  // B
        break;
      case 1:
        word = 0x94000000 | field(0, 26);  // BL
        break;
      case 2:
        word = 0x54000000 | field(5, 19) | field(0, 4);  // B.cond
        break;
      case 3:
        word = 0x34000000 | field(24, 1) | field(5, 19);  // CBZ, CBNZ
        break;
      case 4:
        word = 0x36000000 | field(24, 1) | field(5, 14) | field(31, 1);  // TBZ, TBNZ
        break;
      case 5:
        word = 0xd65f03c0;  // RET
        break;
      case 6:
        word = 0xd61f0000 | field(5, 5);  // BR
        break;
      case 7:
        word = 0xd63f0000 | field(5, 5);  // BLR
        break;
      case 8:
        word = 0xd5033fdf;  // ISB
        break;
      case 9:
        word = 0xd503207f;  // WFI
        break;
      case 10:
        word = 0xd4000001;  // SVC
        break;
      case 11:
        word = 0x14000001;  // B to the next one
        break;
      case 12:
        word = random() % 4 == 0 ? 0 : 0xd503201f;  // UDF, NOP
        break;
      default:
        word = random() % 2 == 0 ? 0x91000421 : 0xf9400020;  // ADD, LDR
    }
  }
  return words;
}

struct NeverAsked : arm::CandidateChooser {
  arm::CodeChoice choose(const arm::CodeFork&) override {
    ADD_FAILURE() << "each place has one content";
    return {};
  }
};

auto fields(const arm::WaypointRun& run) {
  return std::tuple(std::tuple(run.ip, run.end, run.space, run.mode, run.target_mode, run.stop, run.instructions, run.block_flags),
                    std::tuple(run.instructions != 0 ? run.node : 0, run.last, run.last_ip, run.target, run.has_bad, run.bad_ip),
                    std::tuple(run.conditional, run.chosen, run.section, run.certain));
}

auto fields(const arm::Step& step) {
  const auto block = [](const Block& b) { return std::tuple(b.node, b.instructions, b.flags); };
  return std::tuple(block(step.blocks[0]), block(step.blocks[1]), step.ip, step.end, step.certain, step.space, step.way, step.mode,
                    step.branch);
}

TEST(Runs, AreTheSameWhereCodeMayChange) {
  std::mt19937 random(3);
  for (const bool waits : {false, true}) {
    TimelineBuilder still, changing;
    const SpaceId user = still.add_space();
    ASSERT_EQ(changing.add_space(), user);
    const SpaceId other = changing.add_space();
    for (const auto& [space, ip] : {std::pair{user, kUserIp}, std::pair{kKernelSpace, kKernelIp}}) {
      const std::vector<uint32_t> words = random_words(random);
      add_code(still, space, ip, words);
      add_code(changing, space, ip, words);
    }
    add_code(changing, other, kUserIp, {0xd503201f}, {TimeNs{1}, TimeNs{2}});
    arm::WaypointRules rules;
    rules.wait = waits;
    arm::RunCache short_way(still.build(), rules), long_way(changing.build(), rules);
    ASSERT_FALSE(short_way.changes());
    ASSERT_TRUE(long_way.changes());
    NeverAsked chooser;
    std::map<std::tuple<uint64_t, uint32_t, uint16_t>, NodeId> nodes;
    const auto check = [&](const arm::WaypointRun& ours, const arm::WaypointRun& theirs) {
      ASSERT_EQ(fields(ours), fields(theirs));
      if (ours.instructions == 0) return;
      const BlockInfo& info = short_way.blocks().info(ours.node);
      ASSERT_EQ(std::tuple(info.ip, info.mode, info.instructions), std::tuple(ours.ip, ours.mode, ours.instructions));
      ASSERT_TRUE(std::ranges::equal(short_way.blocks().bytes(ours.node), long_way.blocks().bytes(ours.node)));
      ASSERT_EQ(nodes.try_emplace({ours.ip.value, info.size_bytes, info.instructions}, ours.node).first->second, ours.node);
    };
    for (int i = 0; i < 30000; ++i) {
      const Ip base{random() % 2 == 0 ? kUserIp : kKernelIp};
      const Ip ip = base + 4 * (random() % (kWords + 20));
      const unsigned how = random() % 4;
      if (how < 2) {
        const uint32_t ours = short_way.find(user, ip, ExecMode::a64, {}, chooser);
        const uint32_t theirs = long_way.find(user, ip, ExecMode::a64, {}, chooser);
        check(short_way.run(ours), long_way.run(theirs));
        ASSERT_EQ(fields(short_way.step(ours)), fields(long_way.step(theirs)));
      } else if (how == 2) {  // often up to the end of a run that was read, or will be
        const Ip stop = ip + 4 * (random() % 12);
        check(short_way.read_to(user, ip, ExecMode::a64, {}, stop, true, chooser),
              long_way.read_to(user, ip, ExecMode::a64, {}, stop, true, chooser));
      } else {
        const uint64_t most = 1 + random() % 12;
        check(short_way.read_some(user, ip, ExecMode::a64, {}, most, chooser),
              long_way.read_some(user, ip, ExecMode::a64, {}, most, chooser));
      }
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(short_way.blocks().size(), nodes.size());
    EXPECT_EQ(long_way.blocks().size(), nodes.size());
    EXPECT_GT(nodes.size(), 10000U);
  }
}

}  // namespace
}  // namespace ptd::test
