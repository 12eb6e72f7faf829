// CommitPage: see commit_page.h.
#include "capture/live/events/commit_page.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "image/base/system_error.h"

namespace ptd::live {

Result<std::unique_ptr<CommitPage>> CommitPage::create(size_t positions) {
  const size_t bytes = (1 + 2 * (positions + 2)) * sizeof(uint64_t);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("shared memory");
  return std::unique_ptr<CommitPage>(new CommitPage(static_cast<uint64_t*>(memory), positions));
}

CommitPage::~CommitPage() { munmap(words_, (1 + 2 * slot_words()) * sizeof(uint64_t)); }

void CommitPage::publish(const Progress& progress) {
  std::atomic_ref<uint64_t> epoch(words_[0]);
  const uint64_t next = epoch.load(std::memory_order_relaxed) + 1;
  uint64_t* slot = words_ + 1 + (next % 2) * slot_words();
  slot[0] = progress.file_bytes;
  slot[1] = progress.store_bytes;
  std::copy_n(progress.positions.begin(), std::min(positions_, progress.positions.size()), slot + 2);
  epoch.store(next, std::memory_order_release);
}

Progress CommitPage::read() const {
  const uint64_t epoch = std::atomic_ref<uint64_t>(words_[0]).load(std::memory_order_acquire);
  const uint64_t* slot = words_ + 1 + (epoch % 2) * slot_words();
  return {slot[0], slot[1], std::vector<uint64_t>(slot + 2, slot + 2 + positions_)};
}

}  // namespace ptd::live
