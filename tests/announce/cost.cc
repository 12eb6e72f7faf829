// What an announcement costs: idle, with a reader of the ring, and with a jitdump. Paired: each round times the same work with and without.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "announce/ptd_announce.h"
#include "capture/announce/announce_listener.h"

namespace {

constexpr int kRounds = 20;
volatile uint64_t g_work = 0;

uint64_t now_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

template <class Body>
double time_of(uint64_t calls, const Body& body) {
  const uint64_t begin = now_ns();
  for (uint64_t i = 0; i < calls; ++i) body(i);
  return static_cast<double>(now_ns() - begin) / static_cast<double>(calls);
}

// The least difference of a round, in ns a call.
template <class With, class Without>
double difference(uint64_t calls, const With& with, const Without& without) {
  double least_with = 1e9, least_without = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    least_without = std::min(least_without, time_of(calls, without));
    least_with = std::min(least_with, time_of(calls, with));
  }
  return least_with - least_without;
}

}  // namespace

int main() {
  constexpr uint64_t kIdleCalls = 1U << 22, kLoads = 300;
  std::vector<char> code(4096, '\x90');
  const uint32_t runtime = ptd_announce_register("cost", nullptr, nullptr);
  ptd_announcement what{};
  what.runtime = runtime;
  what.kind = PTD_ANNOUNCE_LOAD;
  what.phase = PTD_ANNOUNCE_END;
  what.size = code.size();
  what.code = code.data();
  what.name = "function";
  // Both describe the code, so that the difference is the site alone: how compilers fill a structure differs by 100 ns.
  const auto work = [&](uint64_t i) {
    g_work = g_work + i;
    what.address = i << 12;
    __asm__ volatile("" : : "r"(&what) : "memory");
  };
  const auto announce = [&](uint64_t i) {
    work(i);
    ptd_announce_code(&what);
  };
  const double idle = difference(kIdleCalls, announce, work);
  std::printf("idle: %.2f ns a site\n", idle);
  {
    ptd::announce::AnnounceListener listener([](const ptd::announce::Heard&) {});
    listener.look({getpid()});
    double least = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      least = std::min(least, time_of(kLoads, announce));
      while (listener.drain() != 0) listener.release();
    }
    std::printf("ring: %.0f ns a load of 4 KiB\n", least);
    listener.stop();
  }
  char folder[] = "/tmp/announce-cost-XXXXXX";
  if (mkdtemp(folder) == nullptr || ptd_announce_jitdump(folder) != 0) return 1;
  double least = 1e9;
  for (int round = 0; round < kRounds; ++round) least = std::min(least, time_of(kLoads, announce));
  std::printf("jitdump: %.0f ns a load of 4 KiB\n", least);
  (void)unlink((std::string(folder) + "/jit-" + std::to_string(getpid()) + ".dump").c_str());
  (void)rmdir(folder);
  // The limit is far above the figure: a loaded machine is no fault.
  return idle < 50 ? 0 : 1;
}
