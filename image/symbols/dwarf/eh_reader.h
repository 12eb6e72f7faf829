// EhReader: reads the values of .eh_frame and .gcc_except_table. Private to the module.
#pragma once

#include <dwarf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ptd {

/// Reads values, little-endian; failed() after one past the end.
class EhReader {
 public:
  EhReader(const uint8_t* at, const uint8_t* end, bool wide) : at_(at), end_(end), wide_(wide) {}
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const uint8_t* at() const { return at_; }
  [[nodiscard]] bool done() const { return failed_ || at_ == end_; }
  uint8_t byte() { return static_cast<uint8_t>(number(1, false)); }
  uint64_t number(size_t size, bool is_signed) {
    if (failed_ || static_cast<size_t>(end_ - at_) < size) return failed_ = true, 0;
    uint64_t value = 0;
    std::memcpy(&value, at_, size);
    at_ += size;
    const unsigned shift = 64 - 8 * static_cast<unsigned>(size);
    return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift) : value;
  }
  uint64_t uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint8_t next = byte();
      value |= static_cast<uint64_t>(next & 0x7f) << shift;
      if ((next & 0x80) == 0) return value;
    }
    failed_ = true;
    return 0;
  }
  /// A value of a DW_EH_PE_ encoding, without what it is relative to.
  uint64_t encoded(uint8_t encoding) {
    switch (encoding & 0x0f) {
      case DW_EH_PE_uleb128:
        return uleb();
      case DW_EH_PE_absptr:
        return number(wide_ ? 8 : 4, false);
      case DW_EH_PE_udata2:
        return number(2, false);
      case DW_EH_PE_udata4:
        return number(4, false);
      case DW_EH_PE_udata8:
        return number(8, false);
      case DW_EH_PE_sdata2:
        return number(2, true);
      case DW_EH_PE_sdata4:
        return number(4, true);
      case DW_EH_PE_sdata8:
        return number(8, true);
      default:
        failed_ = true;
        return 0;
    }
  }
  void skip(uint64_t bytes) {
    if (bytes > static_cast<size_t>(end_ - at_)) {
      failed_ = true;
    } else {
      at_ += bytes;
    }
  }

 private:
  const uint8_t *at_, *end_;
  bool wide_, failed_ = false;
};

}  // namespace ptd
