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

/// The true flow between one PSB and the next, or a later one.
struct TruthSegment {
  uint64_t offset_bytes = 0;
  uint64_t psbs = 0;  ///< number of PSBs up to and including the first
  bool valid = false;
  InsnFlow insns;
  std::vector<std::pair<size_t, size_t>> lost;  ///< [first, end) indices that the recording itself lost
  size_t told_end = 0;                          ///< of what follows no packet could tell

  [[nodiscard]] bool empty() const { return !valid && insns.size() == 0; }
  /// Appends the segment after this one.
  void append(TruthSegment& next) {
    if (empty()) return std::swap(*this, next);
    const size_t base = insns.size();
    insns.append(next.insns);
    for (const auto& [first, end] : next.lost) lost.emplace_back(base + first, base + end);
    if (next.told_end != 0) told_end = base + next.told_end;
  }
};

/// Reads a truth file segment by segment.
class TruthWalk {
 public:
  TruthWalk(emulate::TruthFileReader& reader, bool is_pt) : reader_(reader), is_pt_(is_pt) {}
  /// The next segment; false at the end.
  bool next(TruthSegment& segment);
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static void add(TruthSegment& segment, const emulate::TruthBlock& block, uint32_t first, uint32_t count);
  bool gives_packet(const emulate::TruthBlock& block, uint32_t end);

  emulate::TruthFileReader& reader_;
  const bool is_pt_;
  std::unordered_map<const emulate::TruthBlock*, bool> packet_;
  uint64_t mark_ = 0, psbs_ = 0;
  bool have_mark_ = false, ended_ = false, branch_before_ = false;
};

}  // namespace ptd::cli
