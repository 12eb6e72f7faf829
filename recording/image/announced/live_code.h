// LiveCode: the announced code of a process at one moment. Private to recording.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ptdecode/symbols.h"
#include "recording/image/shared_ranges.h"

namespace ptd {

/// Code that was announced, or what is left of it.
struct LiveFunction {
  uint64_t size_bytes = 0;
  std::shared_ptr<std::vector<std::byte>> code;  ///< of which it is a part; null: not given
  uint64_t offset_bytes = 0;                     ///< in `code`
  uint64_t writer = 0;                           ///< the only LiveCode that may change `code`; 0: none
  SharedText name;
  std::shared_ptr<const GeneratedLines> lines;  ///< null: not given
  TimeNs since;
  TimeNs told;           ///< when its bytes were announced last
  bool assumed = false;  ///< its bytes may have changed

  [[nodiscard]] Bytes bytes() const { return code ? Bytes(*code).subspan(offset_bytes, size_bytes) : Bytes(); }
  /// Takes over bytes of the same size.
  void take_code(const LiveFunction& other) {
    code = other.code;
    offset_bytes = other.offset_bytes;
    writer = other.writer;
    told = other.told;
    assumed = other.assumed;
  }
};

/// The functions of all processes. They live as long as this. Not thread-safe.
class LiveFunctions {
 public:
  static constexpr uint64_t kMostCopied = 1ULL << 30;  ///< bytes of code that are copied because of patches

  uint64_t add(LiveFunction function) {
    functions_.push_back(std::move(function));
    return functions_.size() - 1;
  }
  [[nodiscard]] const LiveFunction& at(uint64_t number) const { return functions_[number]; }
  [[nodiscard]] uint64_t new_writer() { return ++last_writer_; }
  /// Gives the function bytes of its own, which `writer` may change; none after kMostCopied bytes.
  void copy_code(LiveFunction& function, uint64_t writer);
  [[nodiscard]] bool too_many_copies() const { return copied_bytes_ > kMostCopied; }

 private:
  std::deque<LiveFunction> functions_;
  uint64_t last_writer_ = 0, copied_bytes_ = 0;
};

/// Functions by address; they are disjoint. A range that is passed must not be empty or go beyond the end of memory.
///
/// A patch changes bytes in place, unless a section or a process that was forked since shares them.
class LiveCode {
 public:
  explicit LiveCode(LiveFunctions& functions) : functions_(&functions), writer_(functions.new_writer()) {}
  /// Returns the code of a child that is forked now. Takes constant time and memory.
  [[nodiscard]] LiveCode fork() {
    LiveCode child(*this);
    child.writer_ = functions_->new_writer();
    writer_ = functions_->new_writer();
    return child;
  }

  /// Returns the function that is exactly there; null if there is none. It is valid as long as the functions of all processes.
  [[nodiscard]] const LiveFunction* find(uint64_t address, uint64_t size_bytes) const;
  [[nodiscard]] bool overlaps(uint64_t address, uint64_t size_bytes) const;
  /// Calls visit(address, function) for all functions that overlap the range, by address. It may cut what it visits.
  template <typename Visit>
  void each(uint64_t address, uint64_t size_bytes, const Visit& visit) const {
    for (auto range = first_in(address); range && range->first < address + size_bytes; range = ranges_.after(range->first))
      visit(range->first, functions_->at(range->content));
  }
  /// Takes the range out. What is left of a function on either side stays.
  void cut(uint64_t address, uint64_t size_bytes);
  void set(uint64_t address, LiveFunction function);
  /// Writes over each function that has bytes, as far as the range overlaps it.
  void patch(uint64_t address, Bytes bytes);
  /// The bytes of each function that overlaps the range are no longer known.
  void forget(uint64_t address, uint64_t size_bytes);
  /// The bytes of each function that overlaps the range are assumed from now on.
  void doubt(uint64_t address, uint64_t size_bytes);
  /// Returns the function with bytes that never change.
  [[nodiscard]] LiveFunction frozen(LiveFunction function) const {
    if (function.writer == writer_) functions_->copy_code(function, 0);
    return function;
  }

 private:
  [[nodiscard]] std::optional<SharedRanges::Range> first_in(uint64_t address) const;
  void put(uint64_t address, LiveFunction function);

  LiveFunctions* functions_;
  uint64_t writer_;
  SharedRanges ranges_;
};

}  // namespace ptd
