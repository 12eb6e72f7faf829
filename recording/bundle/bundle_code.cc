// Sparse blobs of code.
#include "recording/bundle/bundle_code.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "image/fetch_log.h"
#include "image/timeline_access.h"

namespace ptd {
namespace {

/// Of address space, not of memory: what all blobs may span.
constexpr uint64_t kMaxBlobBytes = 64ULL << 30;
constexpr uint64_t kMaxLine = ~uint64_t{0} >> kCodeLineBits;

uintptr_t address(const std::byte* at) { return reinterpret_cast<uintptr_t>(at); }

struct Run {
  uint64_t offset_bytes = 0, size_bytes = 0;
};

/// The deleter of the memory of a bundle's blobs, which also says what is stored in it: everything else reads as zeros.
struct SparseMemory {
  uintptr_t first = 0;
  uint64_t size_bytes = 0;
  std::vector<Run> runs;  ///< in order
  void operator()(std::byte* at) const {
    if (at != nullptr) ::munmap(at, size_bytes);
  }
};

Error damaged(const char* what) { return Error{ErrorCode::bad_format, what, 0}; }

}  // namespace

void BundleCodeWriter::merge(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range range : ranges) {
    if (!merged.empty() && range.first <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  ranges = std::move(merged);
}

void BundleCodeWriter::add_source(const CodeBytes& code) {
  if (code.bytes.empty()) return;
  const uintptr_t first = address(code.bytes.data());
  blobs_.push_back({first, first + code.bytes.size()});
  if (const auto* sparse = std::get_deleter<SparseMemory>(code.owner)) sparse_.try_emplace(sparse->first, code.owner);
}

void BundleCodeWriter::merge_sources() { merge(blobs_); }

CodePlace BundleCodeWriter::place(Bytes bytes) const {
  if (bytes.empty()) return {};
  const auto after = std::upper_bound(blobs_.begin(), blobs_.end(), address(bytes.data()),
                                      [](uintptr_t at, const Range& blob) { return at < blob.first; });
  if (after == blobs_.begin()) return {};
  return {static_cast<uint64_t>(after - blobs_.begin()), address(bytes.data()) - std::prev(after)->first, bytes.size()};
}

void BundleCodeWriter::keep(Bytes bytes) {
  constexpr size_t kMergeAt = size_t{1} << 20;
  if (bytes.empty()) return;
  kept_.push_back({address(bytes.data()), address(bytes.data()) + bytes.size()});
  if (kept_.size() % kMergeAt == 0) merge(kept_);
}

uint64_t BundleCodeWriter::source_bytes() const {
  uint64_t total = 0;
  for (const Range& blob : blobs_) total += blob.end - blob.first;
  return total;
}

uint64_t BundleCodeWriter::kept_of(const std::vector<Bytes>& pieces) const {
  std::vector<Range> ranges;
  for (const Bytes piece : pieces) {
    if (!piece.empty()) ranges.push_back({address(piece.data()), address(piece.data()) + piece.size()});
  }
  merge(ranges);
  uint64_t total = 0;
  auto kept = kept_.begin();
  for (const Range& range : ranges) {
    kept = std::partition_point(kept, kept_.end(), [&](const Range& k) { return k.end <= range.first; });
    for (auto at = kept; at != kept_.end() && at->first < range.end; ++at)
      total += std::min(at->end, range.end) - std::max(at->first, range.first);
  }
  return total;
}

// Returns the stored parts of sparse_, and what is outside of it.
std::vector<BundleCodeWriter::Range> BundleCodeWriter::stored_runs() const {
  std::vector<Range> stored;
  uintptr_t at = 0;
  for (const auto& [first, owner] : sparse_) {
    const SparseMemory& memory = *std::get_deleter<SparseMemory>(owner);
    stored.push_back({at, first});
    for (const Run& run : memory.runs) stored.push_back({first + run.offset_bytes, first + run.offset_bytes + run.size_bytes});
    at = first + memory.size_bytes;
  }
  stored.push_back({at, ~uintptr_t{0}});
  return stored;
}

// A small bundle can claim gigabytes of code, which must not be read to find that they are zeros.
void BundleCodeWriter::leave_out_absent() {
  const std::vector<Range> stored = stored_runs();
  std::vector<Range> rest;
  auto at = stored.begin();
  for (const Range& range : kept_) {
    while (at->end <= range.first) ++at;
    for (auto run = at; run != stored.end() && run->first < range.end; ++run) {
      if (run->first < run->end) rest.push_back({std::max(run->first, range.first), std::min(run->end, range.end)});
    }
  }
  merge(rest);  // stored runs may touch
  kept_ = std::move(rest);
}

// Zeros are what a reader gives where nothing is stored: sparse files and blobs of bundles can claim any number of them.
void BundleCodeWriter::leave_out_zeros() {
  constexpr size_t kBlockBytes = size_t{1} << 16;
  std::vector<Range> rest;
  for (const Range& range : kept_) {
    for (uintptr_t at = range.first, end = at; at < range.end; at = end) {
      end = at + std::min<uintptr_t>(kBlockBytes, range.end - at);
      const auto* bytes = reinterpret_cast<const std::byte*>(at);
      if (end - at == kBlockBytes && *bytes == std::byte{} && std::memcmp(bytes, bytes + 1, kBlockBytes - 1) == 0) continue;
      if (!rest.empty() && rest.back().end == at) {
        rest.back().end = end;
      } else {
        rest.push_back({at, end});
      }
    }
  }
  kept_ = std::move(rest);
}

void BundleCodeWriter::write(ByteWriter& out) {
  merge(kept_);
  leave_out_absent();
  leave_out_zeros();
  kept_bytes_ = 0;
  out.number(blobs_.size());
  auto range = kept_.begin();
  for (const Range& blob : blobs_) {
    const auto end = std::find_if(range, kept_.end(), [&](const Range& r) { return r.first >= blob.end; });
    out.number(blob.end - blob.first);
    out.number(static_cast<uint64_t>(end - range));
    uintptr_t at = blob.first;
    for (; range != end; ++range) {
      out.number(range->first - at);
      out.number(range->end - range->first);
      kept_bytes_ += range->end - range->first;
      at = range->end;
    }
  }
  for (const Range& kept : kept_) out.raw({reinterpret_cast<const std::byte*>(kept.first), kept.end - kept.first});
}

Status BundleCodeReader::read(ByteReader in) {
  std::vector<uint64_t> sizes(in.count(sizeof(uint64_t) + sizeof(Blob)));
  std::vector<Run> runs;  // in all blobs
  uint64_t total = 0;
  for (size_t i = 0; i < sizes.size() && in.ok(); ++i) {
    sizes[i] = in.number_to(kMaxBlobBytes - total);
    const uint64_t first = total;
    total += sizes[i];
    uint64_t at = 0;
    for (uint64_t left = in.count(sizeof(Run)); left > 0 && in.ok(); --left) {
      at += in.number_to(sizes[i] - at);
      const uint64_t size = in.number_to(sizes[i] - at);
      runs.push_back({first + at, size});
      at += size;
    }
  }
  if (!in.ok()) return damaged("the list of code is inconsistent");
  // One mapping for all: a run-time compiler's functions are thousands of small blobs.
  void* mapped = total == 0 ? nullptr : ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return damaged("its code covers more addresses than can be mapped");
  auto* const at = static_cast<std::byte*>(mapped);
  for (const Run& run : runs) {
    const Bytes bytes = in.raw(run.size_bytes);
    if (!bytes.empty()) std::memcpy(at + run.offset_bytes, bytes.data(), bytes.size());
  }
  const std::shared_ptr<const std::byte> memory(at, SparseMemory{address(at), total, std::move(runs)});
  uint64_t start = 0;
  for (const uint64_t size : sizes) {
    blobs_.push_back({std::shared_ptr<const std::byte>(memory, memory.get() + start), size});
    start += size;
  }
  return in.done() ? Status() : damaged("the list of code and the bytes differ in length");
}

bool BundleCodeReader::find(CodePlace place, CodeBytes& code) const {
  code = {};
  if (place.blob == 0) return place.size_bytes == 0;
  if (place.blob > blobs_.size()) return false;
  const Blob& blob = blobs_[place.blob - 1];
  if (place.offset_bytes > blob.size_bytes || place.size_bytes > blob.size_bytes - place.offset_bytes) return false;
  code.owner = blob.memory;
  code.bytes = Bytes{blob.memory.get() + place.offset_bytes, place.size_bytes};
  return true;
}

void write_lines(const CodeLines& lines, ByteWriter& out) {
  out.number(lines.size());
  for (const auto& [space, numbers] : lines) {
    out.number(space);
    out.number(numbers.runs().size());
    uint64_t at = 0;
    for (const auto& [first, last] : numbers.runs()) {
      out.number(first - at);
      out.number(last - first + 1);
      at = last + 1;
    }
  }
}

Result<std::shared_ptr<const CodeLimits>> read_lines(ByteReader in, const Timeline& timeline) {
  auto limits = std::make_shared<CodeLimits>();
  uint64_t next_space = 0;
  for (uint64_t spaces = in.count(sizeof(std::vector<uint64_t>)); spaces > 0 && in.ok(); --spaces) {
    const uint64_t number = in.number_to(UINT32_MAX);
    const SpaceId space{static_cast<uint32_t>(number)};
    const bool is_none = space == kNoSpace, of_host = !is_none && machine_of(space) == 0;
    if (of_host && !TimelineAccess::has_space(timeline, space)) return damaged("a list of addresses is of a space that does not exist");
    if (number < next_space) return damaged("its lists of addresses are out of order");
    next_space = number + 1;
    uint64_t at = 0;
    for (uint64_t runs = in.count(2 * sizeof(uint64_t)); runs > 0 && in.ok(); --runs) {
      const uint64_t first = at + in.number_to(kMaxLine - at);
      const uint64_t count = in.number_to(kMaxLine - first + 1);
      if (count == 0) break;
      if (!is_none) limits->add(space, first << kCodeLineBits, ((first + (count - 1)) << kCodeLineBits) + (kCodeLineBytes - 1));
      at = std::min(first + count, kMaxLine);
    }
  }
  if (!in.done()) return damaged("its lists of addresses are inconsistent");
  return std::shared_ptr<const CodeLimits>(std::move(limits));
}

}  // namespace ptd
