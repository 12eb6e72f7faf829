// AuxRing: see aux_ring.h.
#include "perfio/ring/aux_ring.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "image/base/system_error.h"

namespace ptd::perfio {
namespace {

perf_event_mmap_page& page_of(std::span<std::byte> control) { return *reinterpret_cast<perf_event_mmap_page*>(control.data()); }

uint64_t load(const __u64& word) { return std::atomic_ref(const_cast<__u64&>(word)).load(std::memory_order_acquire); }

}  // namespace

AuxRing::AuxRing(std::span<std::byte> control, std::span<std::byte> area, AuxMode mode, bool mapped)
    : control_(control),
      area_(area),
      mode_(mode),
      mapped_(mapped),
      position_(mode == AuxMode::full ? load(page_of(control).aux_tail) : 0),
      released_(position_) {}

Result<std::unique_ptr<AuxRing>> AuxRing::map(int fd, const EventRing& ring, uint64_t size_bytes, AuxMode mode) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (!std::has_single_bit(size_bytes) || size_bytes < page) {
    return Error{ErrorCode::bad_option, "an AUX area is a power of two of pages, not " + std::to_string(size_bytes) + " bytes", 0};
  }
  perf_event_mmap_page& control = page_of(ring.control_page());
  const uint64_t offset = page + ring.capacity_bytes();
  control.aux_offset = offset;
  control.aux_size = size_bytes;
  const int protection = mode == AuxMode::full ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = mmap(nullptr, static_cast<size_t>(size_bytes), protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) {
    const ErrorCode code = errno == EOPNOTSUPP ? ErrorCode::no_hardware : code_of_errno(errno);
    return Error{code, std::string("AUX area: ") + std::strerror(errno), 0};
  }
  const std::span area(static_cast<std::byte*>(memory), static_cast<size_t>(size_bytes));
  return std::unique_ptr<AuxRing>(new AuxRing(ring.control_page(), area, mode, true));
}

Result<std::unique_ptr<AuxRing>> AuxRing::over(std::span<std::byte> control_page, std::span<std::byte> area, AuxMode mode) {
  if (control_page.size() < sizeof(perf_event_mmap_page) || area.empty()) {
    return Error{ErrorCode::bad_header, "not an AUX area: its control page is cut, or it has no bytes", 0};
  }
  return std::unique_ptr<AuxRing>(new AuxRing(control_page, area, mode, false));
}

AuxRing::~AuxRing() {
  if (mapped_) munmap(area_.data(), area_.size());
}

RingPart AuxRing::pending() const { return pending_part(area_, position_, load(page_of(control_).aux_head)); }

bool AuxRing::release() {
  constexpr uint64_t kPage = 4096;  // trace units need up to a free page
  std::atomic_ref(page_of(control_).aux_tail).store(position_, std::memory_order_seq_cst);
  // After the store: a writer that found no space did so with a head that is visible here.
  const uint64_t waited = head() - std::exchange(released_, position_);
  return waited + kPage + 1 >= area_.size();
}

uint64_t AuxRing::head() const { return load(page_of(control_).aux_head); }

RingPart AuxRing::snapshot() const { return overwritten_part(area_, load(page_of(control_).aux_head)); }

}  // namespace ptd::perfio
