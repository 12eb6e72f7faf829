// Advice to the system on reading a mapping.
#include "perfio/scattered_read.h"

#include <sys/mman.h>

#include <algorithm>

namespace ptd::perfio {
namespace {

// Advice that does not fit (memory of a test, no mapping) is refused by the system and changes nothing.
void advise(Bytes bytes, int advice) { (void)::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), advice); }

}  // namespace

ScatteredRead::ScatteredRead(Bytes mapping) : mapping_(mapping) {
  if (mapping_.size() >= kScatteredBytes) advise(mapping_, MADV_RANDOM);
}

ScatteredRead::~ScatteredRead() {
  if (mapping_.size() >= kScatteredBytes) advise(mapping_, MADV_NORMAL);
}

uint64_t read_window(Bytes mapping, uint64_t offset_bytes) {
  constexpr uint64_t kWindow = 256U << 10, kPage = 4096;
  if (mapping.size() < kScatteredBytes || offset_bytes >= mapping.size()) return ~uint64_t{0};
  const uint64_t first = offset_bytes / kPage * kPage, end = std::min<uint64_t>(first + kWindow, mapping.size());
  advise(mapping.subspan(first, end - first), MADV_WILLNEED);
  return end;
}

}  // namespace ptd::perfio
