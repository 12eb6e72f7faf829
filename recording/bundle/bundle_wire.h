// Numbers and texts of bundles: little-endian base-128 varints, bounded reading. Private to recording.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

class ByteWriter {
 public:
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<std::byte>(value | 0x80));
    bytes_.push_back(static_cast<std::byte>(value));
  }
  /// Signed encoding: small magnitudes of either sign are short.
  void signed_number(int64_t value) { number((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63)); }
  void flag(bool value) { number(value ? 1 : 0); }
  void blob(Bytes bytes) {
    number(bytes.size());
    raw(bytes);
  }
  void text(const std::string& text) { blob(std::as_bytes(std::span(text))); }
  void raw(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  /// Encoding of times in which kTimeMax is short too.
  void time(TimeNs time) { number(time.value + 1); }
  void interval(Interval interval) {
    time(interval.first);
    time(interval.last);
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

/// Limits the memory that the lists of a file take: a compressed list of tiny items takes next to nothing in the file.
class ListBudget {
 public:
  static constexpr uint64_t kFreeBytes = 32ULL << 20, kPerFileByte = 128;
  explicit ListBudget(uint64_t file_bytes) : left_(kFreeBytes + kPerFileByte * file_bytes) {}
  /// Returns false if `items` of `item_bytes` each are more than what is left.
  [[nodiscard]] bool take(uint64_t items, uint64_t item_bytes) {
    exceeded_ = exceeded_ || items > left_ / item_bytes;
    left_ -= exceeded_ ? 0 : items * item_bytes;
    return !exceeded_;
  }
  [[nodiscard]] bool exceeded() const { return exceeded_; }
  [[nodiscard]] static std::string message() {
    return "its lists need more memory than the limit of " + std::to_string(kFreeBytes >> 20) + " MiB and " + std::to_string(kPerFileByte) +
           " bytes for each byte of the file";
  }

 private:
  uint64_t left_;
  bool exceeded_ = false;
};

/// Reads the output of ByteWriter. After the first error, ok() is false and everything reads as zero or empty.
class ByteReader {
 public:
  /// `budget`: of its lists, null without a limit.
  explicit ByteReader(Bytes bytes, ListBudget* budget = nullptr) : bytes_(bytes), budget_(budget) {}

  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) return fail();
      const auto byte = static_cast<uint64_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) return fail();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return fail();
  }
  int64_t signed_number() {
    const uint64_t value = number();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  /// Reads a number that must not exceed `limit`.
  uint64_t number_to(uint64_t limit) {
    const uint64_t value = number();
    return value <= limit ? value : fail();
  }
  int32_t id() {
    const int64_t value = signed_number();
    return value >= INT32_MIN && value <= INT32_MAX ? static_cast<int32_t>(value) : static_cast<int32_t>(fail());
  }
  bool flag() { return number_to(1) != 0; }
  /// Reads the number of following items, each of at least one byte, so it is bounded by the remaining bytes. `item_bytes`: of memory,
  /// about.
  uint64_t count(uint64_t item_bytes = 1) {
    const uint64_t items = number_to(bytes_.size() - at_);
    return budget_ == nullptr || budget_->take(items, item_bytes) ? items : fail();
  }
  Bytes blob() { return raw(number()); }
  Bytes raw(uint64_t size) {
    if (size > bytes_.size() - at_) {
      fail();
      return {};
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }
  std::string text() {
    const Bytes bytes = blob();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  TimeNs time() { return TimeNs{number() - 1}; }
  Interval interval() {
    const TimeNs first = time();
    return {first, time()};
  }
  [[nodiscard]] bool ok() const { return ok_; }
  /// Returns whether everything was read without error.
  [[nodiscard]] bool done() const { return ok_ && at_ == bytes_.size(); }
  [[nodiscard]] uint64_t offset() const { return at_; }
  [[nodiscard]] uint64_t size() const { return bytes_.size(); }

 private:
  uint64_t fail() {
    ok_ = false;
    at_ = bytes_.size();
    return 0;
  }
  Bytes bytes_;
  ListBudget* budget_;
  uint64_t at_ = 0;
  bool ok_ = true;
};

}  // namespace ptd
