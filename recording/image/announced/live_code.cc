// LiveCode: see live_code.h.
#include "recording/image/announced/live_code.h"

#include <algorithm>
#include <utility>

namespace ptd {

void LiveFunctions::copy_code(LiveFunction& function, uint64_t writer) {
  copied_bytes_ += function.size_bytes;
  const Bytes old = function.bytes();
  auto copy = too_many_copies() ? nullptr : std::make_shared<std::vector<std::byte>>(old.begin(), old.end());
  function.code = std::move(copy);
  function.offset_bytes = 0;
  function.writer = writer;
}

const LiveFunction* LiveCode::find(uint64_t address, uint64_t size_bytes) const {
  const auto range = ranges_.at_or_before(address);
  return range && range->first == address && range->end - address == size_bytes ? &functions_->at(range->content) : nullptr;
}

bool LiveCode::overlaps(uint64_t address, uint64_t size_bytes) const {
  const auto range = ranges_.at_or_before(address + (size_bytes - 1));
  return range && range->end > address;
}

std::optional<SharedRanges::Range> LiveCode::first_in(uint64_t address) const {
  const auto range = ranges_.at_or_before(address);
  return range && range->end > address ? range : ranges_.after(address);
}

void LiveCode::put(uint64_t address, LiveFunction function) {
  const uint64_t end = address + function.size_bytes;
  ranges_.insert({address, end, functions_->add(std::move(function))});
}

void LiveCode::cut(uint64_t address, uint64_t size_bytes) {
  const uint64_t end = address + size_bytes;
  each(address, size_bytes, [&](uint64_t first, const LiveFunction& old) {
    const uint64_t last = first + old.size_bytes;
    const auto keep = [&, first = first](uint64_t from, uint64_t to) {
      LiveFunction part = old;
      part.size_bytes = to - from;
      part.offset_bytes += from - first;
      if (from != first) part.lines = nullptr;  // they have offsets from the start
      put(from, std::move(part));
    };
    ranges_.erase(first);
    if (first < address) keep(first, address);
    if (last > end) keep(end, last);
  });
}

void LiveCode::set(uint64_t address, LiveFunction function) {
  cut(address, function.size_bytes);
  put(address, std::move(function));
}

void LiveCode::patch(uint64_t address, Bytes bytes) {
  each(address, bytes.size(), [&](uint64_t first, const LiveFunction& old) {
    if (!old.code) return;
    const uint64_t begin = std::max(first, address), end = std::min(first + old.size_bytes, address + bytes.size());
    const auto write = [&](const LiveFunction& function) {
      const Bytes part = bytes.subspan(begin - address, end - begin);
      std::ranges::copy(part, function.code->begin() + static_cast<std::ptrdiff_t>(function.offset_bytes + (begin - first)));
    };
    if (old.writer == writer_) return write(old);
    LiveFunction changed = old;
    functions_->copy_code(changed, writer_);
    if (changed.code) write(changed);
    put(first, std::move(changed));
  });
}

void LiveCode::forget(uint64_t address, uint64_t size_bytes) {
  each(address, size_bytes, [&](uint64_t first, LiveFunction function) {
    function.code = nullptr;
    function.offset_bytes = function.writer = 0;
    put(first, std::move(function));
  });
}

void LiveCode::doubt(uint64_t address, uint64_t size_bytes) {
  each(address, size_bytes, [&](uint64_t first, LiveFunction function) {
    function.assumed = true;
    put(first, std::move(function));
  });
}

}  // namespace ptd
