// Formatter frames, assembled by the rules of [CoreSight] "Formatter": disassembled, they are what the sources wrote.
#include "ptdecode/arm/frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/coresight/support/made_frames.h"

namespace ptd::test {
namespace {

using Written = std::map<uint8_t, std::vector<uint8_t>>;
using Bounds = std::vector<std::map<uint8_t, size_t>>;  ///< bytes of each source before each place where the trace is not continuous

Written taken_apart(const std::vector<uint8_t>& buffer, arm::FrameFormat format, arm::FrameCounts* counts = nullptr,
                    Bounds* breaks = nullptr) {
  Written written;
  const arm::FrameCounts found = arm::split_frames(
      std::as_bytes(std::span(buffer)), format,
      [&](const arm::FrameRun& run) {
        for (const std::byte value : run.bytes) written[run.id].push_back(static_cast<uint8_t>(value));
      },
      [&](uint64_t) {
        if (breaks == nullptr) return;
        breaks->emplace_back();
        for (const auto& [id, bytes] : written) breaks->back()[id] = bytes.size();
      });
  if (counts != nullptr) *counts = found;
  return written;
}

/// Returns the output of some sources in pieces, in order.
std::vector<std::pair<uint8_t, std::vector<uint8_t>>> pieces_of(std::mt19937& random) {
  std::vector<std::pair<uint8_t, std::vector<uint8_t>>> pieces;
  for (unsigned i = 0; i < 40; ++i) {
    const auto id = static_cast<uint8_t>(random() % 3 == 0 ? 0x6f : 1 + random() % 5);
    std::vector<uint8_t> bytes(random() % 4 == 0 ? random() % 60 : 1 + random() % 4);
    for (uint8_t& value : bytes) value = static_cast<uint8_t>(random() % 5 == 0 ? 0xff : random());
    pieces.emplace_back(id, bytes);
  }
  return pieces;
}

TEST(Frames, AreWhatTheSourcesWrote) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pieces = pieces_of(random);
    Written expected;
    for (const auto& [id, bytes] : pieces) expected[id].insert(expected[id].end(), bytes.begin(), bytes.end());
    std::erase_if(expected, [](const auto& entry) { return entry.second.empty(); });
    const std::vector<uint8_t> frames = frames_of(pieces, [&] { return random() % 2 == 0; });
    ASSERT_EQ(frames.size() % 16, 0U);
    EXPECT_EQ(taken_apart(frames, arm::FrameFormat::aligned), expected) << seed;
    // A trace port: syncs of a word between frames, of a halfword inside them; bytes before the first sync belong to no frame.
    std::vector<uint8_t> port(random() % 40, 0x55);
    const size_t lead = port.size();
    const auto sync = [&] { port.insert(port.end(), {0xff, 0xff, 0xff, 0x7f}); };
    sync();
    for (size_t at = 0; at < frames.size(); at += 2) {
      if (at % 16 == 0 && random() % 3 == 0) sync();
      if (random() % 9 == 0) port.insert(port.end(), {0xff, 0x7f});
      port.insert(port.end(), {frames[at], frames[at + 1]});
    }
    arm::FrameCounts counts;
    EXPECT_EQ(taken_apart(port, arm::FrameFormat::synced, &counts), expected) << seed;
    EXPECT_EQ(counts.skipped_bytes, lead) << seed;
  }
}

// A trace port that lacks bytes somewhere, or has too many: what is given of each source is the beginning and the end of what it wrote, and
// the trace is not continuous between them. A loss of whole frames does not show, nor does one after the last sync.
TEST(Frames, WhereBytesAreMissingTheTraceIsNotContinuous) {
  unsigned damaged = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto pieces = pieces_of(random);
    Written all;
    for (const auto& [id, bytes] : pieces) all[id].insert(all[id].end(), bytes.begin(), bytes.end());
    const std::vector<uint8_t> frames = frames_of(pieces, [&] { return random() % 2 == 0; });
    std::vector<uint8_t> port;
    std::vector<size_t> syncs;
    for (size_t at = 0; at < frames.size(); ++at) {
      if (at == 0 || (at % 16 == 0 && random() % 3 == 0)) {
        syncs.push_back(port.size());
        port.insert(port.end(), {0xff, 0xff, 0xff, 0x7f});
      }
      port.push_back(frames[at]);
    }
    const size_t count = 1 + random() % 15, at = 4 + random() % std::max<size_t>(syncs.back(), 1);
    const bool hits_sync = std::ranges::any_of(syncs, [&](size_t sync) { return at < sync + 4 && sync < at + count; });
    if (hits_sync || at > syncs.back()) continue;
    const auto place = port.begin() + static_cast<std::ptrdiff_t>(at);
    if (random() % 2 == 0) {
      port.erase(place, place + static_cast<std::ptrdiff_t>(count));
    } else {
      port.insert(place, count, static_cast<uint8_t>(random() % 255));
    }
    Bounds breaks;
    arm::FrameCounts counts;
    const Written given = taken_apart(port, arm::FrameFormat::synced, &counts, &breaks);
    ASSERT_FALSE(breaks.empty()) << seed;
    ++damaged;
    EXPECT_GT(counts.skipped_bytes, 0U) << seed;
    for (const auto& [id, bytes] : given) {
      const size_t before = breaks.front()[id], after = bytes.size() - breaks.back()[id];
      ASSERT_EQ(before + after, bytes.size()) << seed << ": nothing is given between the losses";
      const std::vector<uint8_t>& whole = all[id];
      ASSERT_GE(whole.size(), bytes.size()) << seed;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(before), whole.begin()))
          << seed << " id " << unsigned{id};
      EXPECT_TRUE(
          std::equal(bytes.end() - static_cast<std::ptrdiff_t>(after), bytes.end(), whole.end() - static_cast<std::ptrdiff_t>(after)))
          << seed << " id " << unsigned{id};
    }
  }
  EXPECT_GT(damaged, 1000U);
}

}  // namespace
}  // namespace ptd::test
