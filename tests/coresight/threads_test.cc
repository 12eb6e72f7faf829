// Streams are decoded concurrently: readers are created and destroyed on several threads at once.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "decoder/arm/packet/legacy_packets.h"

namespace ptd {
namespace {

TEST(LegacyReaders, ComeAndGoOnSeveralThreads) {
  std::vector<std::byte> trace(64, std::byte{0});  // A-Sync: zeros, then 80
  trace[5] = std::byte{0x80};
  std::vector<size_t> packets(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < packets.size(); ++t) {
    threads.emplace_back([&, t] {
      arm::TraceConfig config;
      config.protocol = t % 2 == 0 ? arm::Protocol::ptm : arm::Protocol::etmv3;
      for (int round = 0; round < 2000; ++round) {
        arm::LegacyReader reader(trace, config);
        packets[t] += reader.next().empty() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const size_t count : packets) EXPECT_EQ(count, 2000U);
}

}  // namespace
}  // namespace ptd
