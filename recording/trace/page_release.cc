// PageRelease: frees the pages of mapped trace that were decoded.
#include "recording/trace/page_release.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace ptd {
namespace {

constexpr uint64_t kStretchBytes = 16ULL << 20;

bool holds(Bytes whole, Bytes part) { return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size(); }

void release_pages(Bytes bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t low = (begin + page - 1) / page * page, high = (begin + bytes.size()) / page * page;
  if (low < high) (void)::madvise(reinterpret_cast<void*>(low), high - low, MADV_DONTNEED);
}

}  // namespace

void PageRelease::release(size_t mapping, uint64_t first_offset, uint64_t last_offset) const {
  if (mapping >= mappings_.size()) return;
  const Bytes bytes = mappings_[mapping];
  const uint64_t last = std::min<uint64_t>(last_offset, bytes.size()), first = std::min(first_offset, last);
  release_pages(bytes.subspan(first, last - first));
}

void PageRelease::release(const AuxStream& stream, uint64_t first_offset, uint64_t last_offset) const {
  if (mappings_.empty()) return;
  const std::vector<AuxChunk>& chunks = stream.chunks();
  auto chunk =
      std::upper_bound(chunks.begin(), chunks.end(), first_offset, [](uint64_t at, const AuxChunk& one) { return at < one.end(); });
  for (; chunk != chunks.end() && chunk->offset_bytes < last_offset; ++chunk) {
    const uint64_t from = std::max(first_offset, chunk->offset_bytes), to = std::min(last_offset, chunk->end());
    const Bytes bytes = chunk->bytes.subspan(from - chunk->offset_bytes, to - from);
    if (std::none_of(mappings_.begin(), mappings_.end(), [&](Bytes mapping) { return holds(mapping, bytes); })) continue;
    release_pages(bytes);
  }
}

void PassedPages::at(const PageRelease& pages, const AuxStream& stream, uint64_t offset_bytes) {
  const uint64_t here = offset_bytes / kStretchBytes;
  const uint64_t before = stretch_.exchange(here, std::memory_order_relaxed);
  if (before != here) pages.release(stream, before * kStretchBytes, (before + 1) * kStretchBytes);
}

void PassedRecords::at(const PageRelease& pages, size_t mapping, uint64_t offset_bytes) {
  uint64_t& passed = stretches_[mapping];
  const uint64_t here = offset_bytes / kStretchBytes;
  if (here <= passed) return;
  pages.release(mapping, passed * kStretchBytes, here * kStretchBytes);
  passed = here;
}

}  // namespace ptd
