// pt-kernel-pokes: a real kernel patching itself. Every checkpoint of the ground truth, in addresses and instruction bytes.
#include <gtest/gtest.h>

#include <cstdio>

#include "ptdecode/recording.h"
#include "tests/corpus/truth.h"
#include "tests/support/corpus.h"

namespace ptd {
namespace {

class KernelPokes : public testing::TestWithParam<int> {};

TEST_P(KernelPokes, EveryCheckpointOfTheTruth) {
  PTD_NEED_CORPUS();
  std::string why;
  const std::string dir = test::unpacked_kernel_pokes(why);
  ASSERT_FALSE(dir.empty()) << why;
  OpenOptions options;
  options.path = dir + "/recording";
  options.symfs = {dir + "/root"};
  const auto recording = Recording::open(options);
  ASSERT_TRUE(recording.ok()) << recording.error().message;

  const int cpu = GetParam();
  uint32_t stream = 0;
  while (stream < (*recording)->streams().size() && (*recording)->streams()[stream].cpu != cpu) ++stream;
  ASSERT_LT(stream, (*recording)->streams().size()) << "no stream of cpu " << cpu;
  const auto truth = test::read_truth(test::corpus_dir() + "/pt-kernel-pokes/truth.cpu" + std::to_string(cpu) + ".txt");
  ASSERT_FALSE(truth.empty());

  test::TruthChecker checker(truth);
  uint64_t gaps = 0, breakpoints = 0;
  std::string first_gap;
  const auto status =
      (*recording)->decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
        checker.add(batch, decoder.blocks());
        gaps += batch.gaps.size();
        if (first_gap.empty() && !batch.gaps.empty()) {
          char ip[32];
          std::snprintf(ip, sizeof ip, " at %llx", static_cast<unsigned long long>(batch.gaps[0].ip.value));
          first_gap = sentence(batch.gaps[0].reason) + std::string(ip);
        }
        for (const Event& event : batch.events) breakpoints += (event.flags & kEventBreakpoint) != 0;
        return true;
      });
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(checker.difference(), "");
  EXPECT_EQ(checker.checkpoints_passed(), truth.size());
  EXPECT_EQ(checker.instructions(), truth.back().count);
  EXPECT_EQ(gaps, 0U) << "first: " << first_gap;
  EXPECT_EQ(checker.flagged(), 0U) << "instructions in blocks that are marked uncertain";
  EXPECT_GT(breakpoints, 0U) << "the patches were hit while their INT3 stood";
}
INSTANTIATE_TEST_SUITE_P(Cpu, KernelPokes, testing::Values(0, 1));

}  // namespace
}  // namespace ptd
