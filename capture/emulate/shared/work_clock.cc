// WorkClock: a counter in shared memory.
#include "capture/emulate/shared/work_clock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

namespace ptd::emulate {

bool WorkClock::create(const std::string& folder) {
  std::ofstream file(folder + "/" + kWorkClockFile, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&kFirstWorkTick), sizeof kFirstWorkTick);
  return file.good();
}

bool WorkClock::open(const std::string& folder) {
  const int file = ::open((folder + "/" + kWorkClockFile).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  void* memory = mmap(nullptr, sizeof *ticks_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return false;
  ticks_ = static_cast<std::atomic<uint64_t>*>(memory);
  return true;
}

void WorkClock::pass(const Block& block, unsigned insns) {
  uint64_t ticks = 0, ip = block.ip;
  for (unsigned i = 0; i < insns; ++i) {
    ticks += work_ticks(ip);
    ip += block.lengths[i];
  }
  pass(ticks);
}

}  // namespace ptd::emulate
