// TruthWalk: the instructions of a complete ground truth, segment by segment.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/emulate/etm/truth_file.h"
#include "cli/report/finding_text.h"
#include "ptdecode/types.h"

namespace ptd::cli {

/// The bytes of one instruction, at most 15.
struct InsnBytes {
  std::array<std::byte, 15> bytes{};
  uint8_t length = 0;
  explicit InsnBytes(Bytes of) : length(static_cast<uint8_t>(std::min(of.size(), bytes.size()))) {
    std::copy_n(of.begin(), length, bytes.begin());
  }
  bool operator==(const InsnBytes&) const = default;
  [[nodiscard]] std::string text() const { return hex_text(Bytes(bytes).first(length)); }
};

/// An executed or decoded flow, one element per instruction.
struct InsnFlow {
  std::vector<uint64_t> ips;
  std::vector<InsnBytes> contents;
  std::vector<bool> flagged;  ///< decoded: in a block that is marked uncertain

  void add(Ip ip, Bytes bytes, bool uncertain) {
    ips.push_back(ip.value);
    contents.emplace_back(bytes);
    flagged.push_back(uncertain);
  }
  void append(const InsnFlow& more) {
    ips.insert(ips.end(), more.ips.begin(), more.ips.end());
    contents.insert(contents.end(), more.contents.begin(), more.contents.end());
    flagged.insert(flagged.end(), more.flagged.begin(), more.flagged.end());
  }
  void clear() {
    ips.clear();
    contents.clear();
    flagged.clear();
  }
  [[nodiscard]] size_t size() const { return ips.size(); }
};

/// Instructions of a block that retired.
struct TruthRun {
  const emulate::TruthBlock* block = nullptr;
  uint32_t first = 0, count = 0;
};

/// Instructions of a segment that are counted, but not held: a few bytes of a file can say that a block retired any number of times.
struct SkippedInsns {
  size_t before = 0;  ///< the index of the held instruction after them
  uint64_t count = 0;
  /// By block: the change of the number of retirements from the instruction before to each instruction.
  std::unordered_map<const emulate::TruthBlock*, std::vector<int64_t>> changes;

  void add(const TruthRun& run);
  /// Calls use(ip, times) for each instruction, until it returns false. Returns false if it did.
  template <typename Use>
  bool for_each(const Use& use) const {
    for (const auto& [block, change] : changes) {
      uint64_t at = block->ip, times = 0;
      for (size_t i = 0; i < block->lengths.size(); ++i) {
        times += static_cast<uint64_t>(change[i]);
        if (times != 0 && !use(at, times)) return false;
        at += block->lengths[i];
      }
    }
    return true;
  }
};

/// The true flow between one PSB and the next, or a later one.
struct TruthSegment {
  uint64_t offset_bytes = 0;
  uint64_t psbs = 0;  ///< number of PSBs up to and including the first
  bool valid = false;
  InsnFlow insns;
  SkippedInsns skipped;
  // These are numbers of instructions, with those that are skipped.
  std::vector<std::pair<uint64_t, uint64_t>> lost;  ///< [first, end) that the recording itself lost; both in order
  uint64_t told_end = 0;                            ///< of what follows no packet could tell

  [[nodiscard]] uint64_t size() const { return insns.size() + skipped.count; }
  [[nodiscard]] bool empty() const { return !valid && size() == 0; }
  void clear() {
    insns.clear();
    skipped = {};
    lost.clear();
    told_end = 0;
  }
  void add_lost(uint64_t first, uint64_t end);
  /// Appends the segment after this one, of which nothing is skipped.
  void append(TruthSegment& next) {
    if (empty()) return std::swap(*this, next);
    const size_t base = insns.size();
    insns.append(next.insns);
    skipped = std::move(next.skipped);
    skipped.before += base;
    for (const auto& [first, end] : next.lost) add_lost(base + first, base + end);
    if (next.told_end != 0) told_end = base + next.told_end;
  }
};

/// Reads a truth file segment by segment.
class TruthWalk {
 public:
  static constexpr size_t kMostHeld = size_t{1} << 22;

  TruthWalk(emulate::TruthFileReader& reader, bool is_pt);
  /// Returns whether there is another segment.
  [[nodiscard]] bool more() const { return have_mark_ || have_first_; }
  /// Returns the number of PSBs up to and including the first of the next segment.
  [[nodiscard]] uint64_t psbs() const { return psbs_; }
  /// Reads the next segment; false at the end. Of a longer one, `held` instructions of its start are held, and as many of its end. A block
  /// is not divided.
  bool next(TruthSegment& segment, size_t held = kMostHeld);
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  class Holder;
  bool read(emulate::TruthRecord& record);
  bool gives_packet(const emulate::TruthBlock& block, uint32_t end);

  emulate::TruthFileReader& reader_;
  const bool is_pt_;
  std::unordered_map<const emulate::TruthBlock*, bool> packet_;
  emulate::TruthRecord first_;  // before any PSB
  uint64_t mark_ = 0, psbs_ = 0;
  bool have_first_ = false, have_mark_ = false, ended_ = false, branch_before_ = false;
};

}  // namespace ptd::cli
