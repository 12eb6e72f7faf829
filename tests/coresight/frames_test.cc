// Formatter frames, assembled by the rules of [CoreSight] "Formatter": disassembled, they are what the sources wrote.
#include "ptdecode/arm/frames.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/coresight/support/made_frames.h"

namespace ptd::test {
namespace {

using Written = std::map<uint8_t, std::vector<uint8_t>>;

Written taken_apart(const std::vector<uint8_t>& buffer, arm::FrameFormat format, arm::FrameCounts* counts = nullptr) {
  Written written;
  const arm::FrameCounts found = arm::split_frames(
      std::as_bytes(std::span(buffer)), format,
      [&](const arm::FrameRun& run) {
        for (const std::byte value : run.bytes) written[run.id].push_back(static_cast<uint8_t>(value));
      },
      [](uint64_t) {});
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
    // Bytes were lost: their frame is omitted.
    const size_t lost = lead + 4 + 16 * (random() % 3) + 2;
    if (port.size() > lost + 200) {
      std::vector<uint8_t> damaged(port.begin(), port.begin() + static_cast<std::ptrdiff_t>(lost));
      damaged.insert(damaged.end(), port.begin() + static_cast<std::ptrdiff_t>(lost) + 2, port.end());
      (void)taken_apart(damaged, arm::FrameFormat::synced, &counts);
      EXPECT_LE(counts.frames, frames.size() / 16);
    }
  }
}

}  // namespace
}  // namespace ptd::test
