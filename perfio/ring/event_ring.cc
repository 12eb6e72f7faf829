// EventRing: see event_ring.h.
#include "perfio/ring/event_ring.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "image/base/system_error.h"
#include "perfio/format/wire.h"
#include "perfio/ring/ring_math.h"

namespace ptd::perfio {
namespace {

perf_event_mmap_page& control_of(std::span<std::byte> memory) { return *reinterpret_cast<perf_event_mmap_page*>(memory.data()); }

// The kernel writes data_head after the records, and reads data_tail before it overwrites them ([perf_event.h] "User-space reading the
// @data_head value should issue an smp_rmb()").
uint64_t load_acquire(const __u64& word) { return std::atomic_ref(const_cast<__u64&>(word)).load(std::memory_order_acquire); }
void store_release(__u64& word, uint64_t value) { std::atomic_ref(word).store(value, std::memory_order_release); }

}  // namespace

Result<std::unique_ptr<EventRing>> EventRing::map(int fd, uint32_t data_pages) {
  if (!std::has_single_bit(data_pages)) return Error{ErrorCode::bad_option, "a ring's number of pages is a power of two", 0};
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = page * (1 + static_cast<size_t>(data_pages));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return system_error("perf event ring");
  const std::span whole(static_cast<std::byte*>(memory), size);
  return std::unique_ptr<EventRing>(new EventRing(whole, whole.subspan(page), true));
}

Result<std::unique_ptr<EventRing>> EventRing::over(std::span<std::byte> memory) {
  const Error bad{ErrorCode::bad_header, "not a perf event ring: the control page does not describe it", 0};
  if (memory.size() < sizeof(perf_event_mmap_page)) return bad;
  const uint64_t offset = control_of(memory).data_offset, size = control_of(memory).data_size;
  if (offset > memory.size() || size > memory.size() - offset || !std::has_single_bit(size)) return bad;
  return std::unique_ptr<EventRing>(new EventRing(memory, memory.subspan(offset, size), false));
}

EventRing::~EventRing() {
  if (mapped_) munmap(memory_.data(), memory_.size());
}

EventRing::EventRing(std::span<std::byte> memory, std::span<std::byte> data, bool mapped)
    : memory_(memory), data_(data), mapped_(mapped), position_(load_acquire(control_of(memory).data_tail)) {}

uint64_t EventRing::pending_bytes() const { return load_acquire(control_of(memory_).data_head) - position_; }

uint64_t EventRing::drain(const std::function<void(Bytes record)>& on_record) { return read_some(on_record, true); }

uint64_t EventRing::read(const std::function<void(Bytes record)>& on_record) { return read_some(on_record, false); }

void EventRing::release() { store_release(control_of(memory_).data_tail, position_); }

void EventRing::seek(uint64_t position) {
  const perf_event_mmap_page& control = control_of(memory_);
  const uint64_t tail = load_acquire(control.data_tail), ahead = position - tail;
  position_ = ahead <= load_acquire(control.data_head) - tail ? position : tail;
}

uint64_t EventRing::read_some(const std::function<void(Bytes record)>& on_record, bool give_back) {
  const uint64_t head = load_acquire(control_of(memory_).data_head), mask = data_.size() - 1;
  uint64_t records = 0;
  while (position_ != head) {
    // Records are multiples of 8 bytes, so a header never straddles the end.
    const size_t at = static_cast<size_t>(position_ & mask);
    const uint64_t size = read_record_header(Bytes(data_).subspan(at)).size_bytes;
    if (size < kRecordHeaderBytes || size % 8 != 0 || size > head - position_ || size > data_.size()) {
      ++damaged_;
      position_ = head;
      break;
    }
    const size_t first = std::min<size_t>(size, data_.size() - at);
    Bytes record = Bytes(data_).subspan(at, first);
    if (first < size) {
      straddling_.assign(record.begin(), record.end());
      straddling_.insert(straddling_.end(), data_.begin(), data_.begin() + static_cast<std::ptrdiff_t>(size - first));
      record = straddling_;
    }
    on_record(record);
    position_ += size;
    ++records;
    if (give_back) release();
  }
  if (give_back) release();
  return records;
}

uint64_t read_backward_ring(Bytes data, uint64_t head, const std::function<void(Bytes record)>& on_record) {
  std::vector<std::byte> straddling;
  uint64_t records = 0;
  for (uint64_t done = 0; data.size() - done >= kRecordHeaderBytes;) {
    const uint64_t at = (head + done) % data.size();
    const RingPart rest = ring_part(data, at, at + data.size() - done);
    if (rest.first.size() < kRecordHeaderBytes) break;
    const uint64_t size = read_record_header(rest.first).size_bytes;
    if (size < kRecordHeaderBytes || size % 8 != 0 || size > rest.size_bytes()) break;
    Bytes record = rest.first.first(std::min<size_t>(size, rest.first.size()));
    if (record.size() < size) {
      straddling.assign(record.begin(), record.end());
      const Bytes more = rest.second.first(static_cast<size_t>(size) - record.size());
      straddling.insert(straddling.end(), more.begin(), more.end());
      record = straddling;
    }
    on_record(record);
    done += size;
    ++records;
  }
  return records;
}

std::optional<TimeConvRecord> EventRing::time_conversion() const {
  const perf_event_mmap_page& control = control_of(memory_);
  TimeConvRecord conversion;
  uint32_t sequence = 0;
  do {  // the kernel makes `lock` odd while it writes
    sequence = std::atomic_ref(const_cast<__u32&>(control.lock)).load(std::memory_order_acquire);
    if (control.cap_user_time_zero == 0) return std::nullopt;
    conversion.time_shift = control.time_shift;
    conversion.time_mult = control.time_mult;
    conversion.time_zero = control.time_zero;
    conversion.time_cycles = control.time_cycles;
    conversion.time_mask = control.time_mask;
    conversion.cap_user_time_zero = true;
    conversion.cap_user_time_short = control.cap_user_time_short != 0;
    std::atomic_thread_fence(std::memory_order_acquire);
  } while ((sequence & 1) != 0 || sequence != control.lock);
  return conversion;
}

}  // namespace ptd::perfio
