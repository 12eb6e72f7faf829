// FlowDiff: two flows are aligned by runs of equal instructions; the instructions between them are counted.
#include "tests/lossy/flow_diff.h"

#include <algorithm>
#include <unordered_map>

#include "ptdecode/insn.h"

namespace ptd::test {
namespace {

constexpr size_t kRun = 12;        // instructions that must agree for two flows to be joined again
constexpr size_t kWindow = 60000;  // how far ahead a joint is looked for

uint64_t run_hash(const std::vector<Step>& steps, size_t at) {
  uint64_t hash = 1469598103934665603ULL;
  for (size_t i = at; i < at + kRun; ++i) hash = (hash ^ steps[i].ip ^ (uint64_t{steps[i].bytes_hash} << 7)) * 1099511628211ULL;
  return hash;
}

bool run_equal(const std::vector<Step>& a, size_t i, const std::vector<Step>& b, size_t j) {
  for (size_t k = 0; k < kRun; ++k) {
    if (!a[i + k].same(b[j + k])) return false;
  }
  return true;
}

// Moves i and j to the place with the fewest instructions skipped where a run of both flows agrees; to their ends if there is none.
void find_joint(const std::vector<Step>& truth, size_t& i, const std::vector<Step>& given, size_t& j) {
  std::unordered_map<uint64_t, size_t> places;
  const size_t truth_end = std::min(truth.size(), i + kWindow);
  for (size_t a = i; a + kRun <= truth_end; ++a) places.emplace(run_hash(truth, a), a);
  const size_t given_end = std::min(given.size(), j + kWindow);
  size_t best = truth.size() + given.size(), to_i = truth.size(), to_j = given.size();
  for (size_t b = j; b + kRun <= given_end && b - j < best; ++b) {
    const auto found = places.find(run_hash(given, b));
    if (found == places.end() || !run_equal(truth, found->second, given, b)) continue;
    const size_t skipped = (found->second - i) + (b - j);
    if (skipped >= best) continue;
    best = skipped;
    to_i = found->second;
    to_j = b;
  }
  i = to_i;
  j = to_j;
}

constexpr uint16_t kMarked = kUncertainFlags | static_cast<uint16_t>(BlockFlag::healed);

}  // namespace

void StepReader::add(const Batch& batch, const BlockTable& table, std::vector<Step>& steps) {
  for (const Block& block : batch.blocks) {
    if (by_node_.size() <= block.node) by_node_.resize(table.size());
    std::vector<Step>& known = by_node_[block.node];
    if (known.empty()) {
      const BlockInfo& info = table.info(block.node);
      Bytes bytes = table.bytes(block.node);
      uint64_t ip = info.ip.value;
      while (!bytes.empty()) {
        const Insn insn = classify(bytes, info.mode);
        const size_t length = std::max<size_t>(1, insn.length_bytes);
        uint32_t hash = 2166136261U;
        for (const std::byte b : bytes.first(std::min(length, bytes.size()))) hash = (hash ^ static_cast<uint32_t>(b)) * 16777619U;
        known.push_back({ip, hash, 0});
        ip += length;
        bytes = bytes.subspan(std::min(length, bytes.size()));
      }
    }
    for (const Step& step : known) steps.push_back({step.ip, step.bytes_hash, block.flags});
  }
}

void DiffCounts::add(const DiffCounts& other) {
  truth += other.truth;
  right += other.right;
  right_flagged += other.right_flagged;
  wrong_flagged += other.wrong_flagged;
  silently_wrong += other.silently_wrong;
  lost += other.lost;
  flagged += other.flagged;
  healed += other.healed;
  chosen += other.chosen;
}

DiffCounts diff_segment(const std::vector<Step>& truth, const std::vector<Step>& given, std::vector<Split>* splits) {
  DiffCounts counts;
  counts.truth = truth.size();
  for (const Step& step : given) {
    if ((step.flags & kUncertainFlags) != 0) ++counts.flagged;
    if (has(step.flags, BlockFlag::healed)) ++counts.healed;
    if (has(step.flags, BlockFlag::chosen)) ++counts.chosen;
  }
  size_t i = 0, j = 0;
  while (i < truth.size() && j < given.size()) {
    if (truth[i].same(given[j])) {
      ++((given[j].flags & kMarked) != 0 ? counts.right_flagged : counts.right);
      ++i;
      ++j;
      continue;
    }
    const size_t from_i = i, from_j = j;
    find_joint(truth, i, given, j);
    counts.lost += i - from_i;
    Split split{from_j == 0 ? 0 : given[from_j - 1].ip, truth[from_i].ip, given[from_j].ip, i - from_i, j - from_j, 0};
    for (size_t k = from_j; k < j; ++k) {
      if ((given[k].flags & kMarked) == 0) ++split.unmarked;
    }
    counts.silently_wrong += split.unmarked;
    counts.wrong_flagged += split.given_steps - split.unmarked;
    if (splits != nullptr) splits->push_back(split);
  }
  counts.lost += truth.size() - i;
  for (; j < given.size(); ++j) ++((given[j].flags & kMarked) != 0 ? counts.wrong_flagged : counts.silently_wrong);
  return counts;
}

}  // namespace ptd::test
