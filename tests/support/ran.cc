// RanFlow: splits blocks into instructions, and finds unmarked stretches in the truth.
#include "tests/support/ran.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>

#include "ptdecode/insn.h"

namespace ptd::test {

void add_batch(const Batch& batch, const BlockTable& table, RanFlow& out) {
  constexpr size_t kA64Bytes = 4;
  size_t gap = 0;
  for (size_t i = 0; i <= batch.blocks.size(); ++i) {
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) out.lost_at.back() = true;
    if (i == batch.blocks.size()) break;
    const Block& block = batch.blocks[i];
    const ExecMode mode = table.info(block.node).mode;
    uint64_t ip = table.info(block.node).ip.value;
    Bytes rest = table.bytes(block.node);
    for (uint16_t n = 0; n < block.instructions; ++n) {
      const size_t length = mode == ExecMode::a64 ? kA64Bytes : classify(rest, mode).length_bytes;
      out.insns.push_back({ip, {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length)}});
      out.marked.push_back((block.flags & kUncertainFlags) != 0);
      out.lost_at.push_back(false);
      rest = rest.subspan(length);
      ip += length;
    }
  }
}

std::optional<size_t> first_wrong(const RanFlow& ours, const std::vector<Ran>& truth) {
  auto from = truth.begin();
  for (size_t first = 0; first < ours.insns.size();) {
    if (ours.marked[first]) {
      ++first;
      continue;
    }
    size_t end = first + 1;
    while (end < ours.insns.size() && !ours.marked[end] && !ours.lost_at[end]) ++end;
    const std::span piece(ours.insns.data() + first, end - first);
    const bool at_front = first == 0 && !ours.lost_at[0], at_back = end == ours.insns.size() && !ours.lost_at[end];
    auto place = from;
    if (at_back) {
      if (static_cast<size_t>(truth.end() - from) < piece.size()) return first;
      place = truth.end() - static_cast<std::ptrdiff_t>(piece.size());
    } else if (!at_front) {
      place = std::search(from, truth.end(), piece.begin(), piece.end());
    }
    const auto rest = static_cast<size_t>(truth.end() - place);
    const auto [a, b] = std::mismatch(piece.begin(), piece.end(), place, place + static_cast<std::ptrdiff_t>(std::min(rest, piece.size())));
    if (a != piece.end()) return first + static_cast<size_t>(a - piece.begin());
    if (at_front && at_back && truth.size() != piece.size()) return piece.size();
    from = place + static_cast<std::ptrdiff_t>(piece.size());
    first = end;
  }
  return std::nullopt;
}

void RanTally::add(const std::string& what, const RanFlow& ours, const std::vector<Ran>& truth, uint64_t patches) {
  if (const auto wrong = first_wrong(ours, truth)) {
    ++wrong_;
    ADD_FAILURE() << what << ": unmarked instruction " << *wrong << " at " << std::hex
                  << (*wrong < ours.insns.size() ? ours.insns[*wrong].ip : 0);
  }
  instructions_ += truth.size();
  certain_ += static_cast<uint64_t>(std::ranges::count(ours.marked, false));
  gaps_ += static_cast<uint64_t>(std::ranges::count(ours.lost_at, true));
  patches_ += patches;
}

void RanTally::finish(uint64_t traces, double least_certain, double most_gaps) const {
  constexpr uint64_t kEnough = 100;
  if (traces >= kEnough) {
    EXPECT_GT(patches_, 5 * traces);
    EXPECT_GT(static_cast<double>(certain_), least_certain * static_cast<double>(instructions_));
    EXPECT_LT(static_cast<double>(gaps_), most_gaps * static_cast<double>(traces));
  }
  for (const auto& [name, value] :
       {std::pair("wrong", wrong_), std::pair("instructions", instructions_), std::pair("certain", certain_), std::pair("gaps", gaps_)}) {
    testing::Test::RecordProperty(name, std::to_string(value));
  }
}

}  // namespace ptd::test
