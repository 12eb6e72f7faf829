// A decode against a complete ground truth.
#include "cli/truth_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include "cli/node_cache.h"

namespace ptd::cli {
namespace {

constexpr size_t kSameForResync = 8;  // this many equal instructions are no accident
constexpr size_t kMaxPlaces = 256;    // of one stretch, that are looked at
constexpr size_t kMostEqual = 4096;   // instructions compared to find the best of them

struct Instruction {
  uint64_t ip = 0;
  uint64_t bytes[2] = {};  // zeros behind the last
  uint8_t length = 0;
  bool flagged = false;
};

Instruction instruction(uint64_t ip, const std::byte* bytes, uint8_t length, bool flagged) {
  Instruction insn;
  insn.ip = ip;
  std::memcpy(insn.bytes, bytes, std::min<size_t>(length, sizeof insn.bytes));
  insn.length = length;
  insn.flagged = flagged;
  return insn;
}

bool same(const Instruction& a, const Instruction& b) {
  return a.ip == b.ip && a.length == b.length && a.bytes[0] == b.bytes[0] && a.bytes[1] == b.bytes[1];
}

/// What ran between one PSB and the next.
struct TruthSegment {
  uint64_t offset_bytes = 0;
  bool valid = false;
  std::vector<Instruction> insns;
  std::vector<std::pair<size_t, size_t>> lost;  ///< [first, end) indices that the recording itself lost
};

class TruthWalk {
 public:
  explicit TruthWalk(emulate::TruthFileReader& reader) : reader_(reader) {}
  /// The next segment; false at the end.
  bool next(TruthSegment& segment) {
    segment.insns.clear();
    segment.lost.clear();
    segment.valid = have_mark_;
    segment.offset_bytes = mark_;
    size_t losing_from = 0;
    emulate::TruthRecord record;
    while (reader_.next(record)) {
      switch (record.tag) {
        case emulate::TruthTag::block:
        case emulate::TruthTag::part:
          add(segment, *record.block, record.first, record.count);
          break;
        case emulate::TruthTag::lose:
          losing_from = segment.insns.size();
          break;
        case emulate::TruthTag::recover:
          segment.lost.emplace_back(losing_from, segment.insns.size());
          break;
        case emulate::TruthTag::psb:
          mark_ = record.offset_bytes;
          have_mark_ = true;
          if (segment.valid || !segment.insns.empty()) return true;
          segment.valid = true;
          segment.offset_bytes = mark_;
          break;
        case emulate::TruthTag::end:
          ended_ = true;
          break;
        default:
          break;
      }
    }
    have_mark_ = false;
    return segment.valid || !segment.insns.empty();
  }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static void add(TruthSegment& segment, const emulate::TruthBlock& block, uint32_t first, uint32_t count) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < first + count; ++i) {
      const uint8_t length = block.lengths[i];
      if (i >= first) segment.insns.push_back(instruction(block.ip + at, block.bytes.data() + at, length, false));
      at += length;
    }
  }
  emulate::TruthFileReader& reader_;
  uint64_t mark_ = 0;
  bool have_mark_ = false, ended_ = false;
};

uint64_t hash_of(const Instruction* first) {
  uint64_t hash = 0;
  for (size_t i = 0; i < kSameForResync; ++i) {
    hash = (hash ^ first[i].ip ^ (first[i].bytes[0] * 0xff51afd7ed558ccdULL)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

/// Where in a truth a stretch of kSameForResync instructions stands.
class StretchIndex {
 public:
  explicit StretchIndex(const std::vector<Instruction>& insns) {
    if (insns.size() < kSameForResync) return;
    for (size_t i = 0; i + kSameForResync <= insns.size(); ++i) places_.emplace_back(hash_of(&insns[i]), i);
    std::sort(places_.begin(), places_.end());
  }
  /// Places at or after `from` where what stands at `first` may stand, in order.
  [[nodiscard]] std::span<const std::pair<uint64_t, size_t>> find(const Instruction* first, size_t from) const {
    const uint64_t hash = hash_of(first);
    const auto begin = std::lower_bound(places_.begin(), places_.end(), std::pair<uint64_t, size_t>{hash, from});
    auto end = begin;
    while (end != places_.end() && end->first == hash && static_cast<size_t>(end - begin) < kMaxPlaces) ++end;
    return {begin, end};
  }

 private:
  std::vector<std::pair<uint64_t, size_t>> places_;
};

/// Compares the decode of one segment with its truth. Where they part, both are searched for the nearest place from which on they are
/// equal again; behind a gap, for the place from which on they are equal for longest.
class SegmentCompare {
 public:
  SegmentCompare(const TruthSegment& truth, const std::vector<Instruction>& decoded, const std::vector<size_t>& gaps, TruthCounts& counts)
      : truth_(truth), decoded_(decoded), gaps_(gaps), counts_(counts) {}

  void run(bool last_segment, bool truth_ended) {
    counts_.truth += truth_.insns.size();
    counts_.decoded += decoded_.size();
    while (d_ < decoded_.size()) {
      if (next_gap_ < gaps_.size() && gaps_[next_gap_] <= d_) {
        ++next_gap_;
        after_gap();
      } else if (t_ < truth_.insns.size() && same(truth_.insns[t_], decoded_[d_])) {
        ++counts_.right;
        counts_.right_flagged += decoded_[d_].flagged ? 1 : 0;
        ++t_, ++d_;
      } else {
        note_difference();
        resync();
      }
    }
    rest(last_segment, truth_ended);
  }

 private:
  /// Up to the next gap, or the end.
  [[nodiscard]] size_t stretch_end() const { return next_gap_ < gaps_.size() ? std::max(gaps_[next_gap_], d_) : decoded_.size(); }
  [[nodiscard]] size_t equal_from(size_t t, size_t d, size_t most) const {
    most = std::min({most, truth_.insns.size() - t, stretch_end() - d});
    size_t count = 0;
    while (count < most && same(truth_.insns[t + count], decoded_[d + count])) ++count;
    return count;
  }
  const StretchIndex& index() {
    if (!index_) index_.emplace(truth_.insns);
    return *index_;
  }
  void lose_until(size_t t) {
    for (; t_ < t; ++t_) {
      ++counts_.lost;
      const bool asked =
          std::any_of(truth_.lost.begin(), truth_.lost.end(), [&](auto range) { return range.first <= t_ && t_ < range.second; });
      counts_.lost_as_asked += asked ? 1 : 0;
    }
  }
  // The flow was lost: first where the recording itself says that it is found again, else where most that follows is equal.
  void after_gap() {
    const size_t want = std::min(kSameForResync, stretch_end() - d_);
    if (want == 0) return;
    for (const auto& range : truth_.lost) {
      if (range.second >= t_ && range.second <= truth_.insns.size() && equal_from(range.second, d_, want) == want) {
        return lose_until(range.second);
      }
    }
    size_t best = 0, at = t_;
    const auto consider = [&](size_t t) {
      const size_t equal = equal_from(t, d_, kMostEqual);
      if (equal > best) best = equal, at = t;
    };
    if (want == kSameForResync) {
      for (const auto& [hash, t] : index().find(&decoded_[d_], t_)) consider(t);
    } else {
      for (size_t t = t_; t < truth_.insns.size() && best < want; ++t) consider(t);
    }
    if (best >= want) lose_until(at);  // else: what comes differs, and is counted so
  }
  void note_difference() {
    if (counts_.wrong + counts_.wrong_flagged != 0 || has_difference_) return;
    has_difference_ = true;
    counts_.first_wrong_offset_bytes = truth_.offset_bytes;
    counts_.first_want = Ip{t_ < truth_.insns.size() ? truth_.insns[t_].ip : 0};
    counts_.first_got = Ip{decoded_[d_].ip};
  }
  void wrong_until(size_t d) {
    for (; d_ < d; ++d_) (decoded_[d_].flagged ? counts_.wrong_flagged : counts_.wrong) += 1;
  }
  // What the decode leaves out between two instructions is flagged if one of them is.
  void left_out(size_t count) {
    const bool flagged = (d_ != 0 && decoded_[d_ - 1].flagged) || (d_ < decoded_.size() && decoded_[d_].flagged);
    (flagged ? counts_.wrong_flagged : counts_.wrong) += count;
  }
  void resync() {
    const size_t end = stretch_end();
    size_t best_d = end, best_t = t_, best_cost = ~size_t{0};
    for (size_t d = d_; d + kSameForResync <= end && d - d_ < best_cost; ++d) {
      for (const auto& [hash, t] : index().find(&decoded_[d], t_)) {
        const size_t cost = d - d_ + t - t_;
        if (cost >= best_cost) break;
        if (equal_from(t, d, kSameForResync) == kSameForResync) best_d = d, best_t = t, best_cost = cost;
      }
    }
    if (best_d == d_) left_out(best_t - t_);
    wrong_until(best_d);
    t_ = best_t;
  }
  void rest(bool last_segment, bool truth_ended) {
    if (t_ == truth_.insns.size()) return;
    if (!gaps_.empty()) return lose_until(truth_.insns.size());
    const uint64_t left = truth_.insns.size() - t_;
    if (last_segment && !truth_ended) {
      counts_.behind_end += left;
    } else {
      note_missing();
      left_out(left);
    }
  }
  void note_missing() {
    if (counts_.wrong + counts_.wrong_flagged != 0) return;
    counts_.first_wrong_offset_bytes = truth_.offset_bytes;
    counts_.first_want = Ip{truth_.insns[t_].ip};
  }

  const TruthSegment& truth_;
  const std::vector<Instruction>& decoded_;
  const std::vector<size_t>& gaps_;
  TruthCounts& counts_;
  std::optional<StretchIndex> index_;
  size_t t_ = 0, d_ = 0, next_gap_ = 0;
  bool has_difference_ = false;
};

/// What the decoder gave of one segment.
struct DecodedSegment {
  std::vector<Instruction> insns;
  std::vector<size_t> gaps;
};

void add_batch(const Batch& batch, NodeCache& nodes, DecodedSegment& decoded) {
  size_t gap = 0;
  for (size_t i = 0; i < batch.blocks.size(); ++i) {
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) decoded.gaps.push_back(decoded.insns.size());
    const Block block = batch.blocks[i];
    const bool flagged = (block.flags & kUncertainFlags) != 0;
    const Bytes bytes = nodes.bytes(block.node);
    const Ip ip = nodes.info(block.node).ip;
    for (const CachedInsn& insn : nodes.insns(block.node)) {
      decoded.insns.push_back(instruction(ip.value + insn.offset_bytes, bytes.data() + insn.offset_bytes, insn.length_bytes, flagged));
    }
  }
  for (; gap < batch.gaps.size(); ++gap) decoded.gaps.push_back(decoded.insns.size());
}

/// Takes the segments of the decode one after the other and finds their truth.
class StreamCompare {
 public:
  StreamCompare(emulate::TruthFileReader& reader, TruthCounts& counts) : walk_(reader), counts_(counts) { more_ = walk_.next(truth_); }

  void segment(uint64_t offset_bytes, const DecodedSegment& decoded, bool last) {
    while (more_ && truth_.valid && truth_.offset_bytes < offset_bytes) skip();
    TruthSegment here;
    if (more_ && truth_.valid && truth_.offset_bytes == offset_bytes) {
      std::swap(here, truth_);
      more_ = walk_.next(truth_);
    }
    SegmentCompare(here, decoded.insns, decoded.gaps, counts_).run(last && !more_, walk_.ended());
  }
  void finish() {
    while (more_) skip();
  }

 private:
  // A PSB that the decoder did not find.
  void skip() {
    const std::vector<Instruction> none;
    const std::vector<size_t> lost = {0};
    SegmentCompare(truth_, none, lost, counts_).run(false, true);
    more_ = walk_.next(truth_);
  }
  TruthWalk walk_;
  TruthCounts& counts_;
  TruthSegment truth_;
  bool more_ = false;
};

}  // namespace

Result<TruthCounts> compare_with_truth(const Recording& recording, uint32_t stream, const std::string& truth_path,
                                       const std::function<void(uint64_t bytes)>& on_progress) {
  auto reader = emulate::TruthFileReader::open(truth_path);
  if (!reader) return reader.error();
  TruthCounts counts;
  StreamCompare compare(**reader, counts);
  DecodedSegment decoded;
  NodeCache nodes;
  uint64_t offset = 0;
  bool any = false;
  const Status status =
      recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        if (any && segment.stream_offset_bytes != offset) {
          compare.segment(offset, decoded, false);
          on_progress(segment.stream_offset_bytes - offset);
          decoded.insns.clear();
          decoded.gaps.clear();
        }
        any = true;
        offset = segment.stream_offset_bytes;
        nodes.bind(decoder.blocks());
        counts.gaps += batch.gaps.size();
        add_batch(batch, nodes, decoded);
        return true;
      });
  if (!status) return status.error();
  if (any) compare.segment(offset, decoded, true);
  compare.finish();
  if (!(*reader)->error().empty()) return Error{ErrorKind::file_format, truth_path + ": " + (*reader)->error(), 0};
  return counts;
}

std::string truth_report(const StreamInfo& stream, const TruthCounts& c) {
  const auto percent = [&](uint64_t part) { return c.truth == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(c.truth); };
  const std::string who = stream.cpu >= 0 ? fmt::format("cpu {}", stream.cpu) : fmt::format("tid {}", stream.tid);
  std::string text = fmt::format(
      "{}: {} instructions: right {} ({:.6f} %), of them flagged {} ({:.4f} %); wrong but flagged {}; silently wrong {}; lost in gaps {}, "
      "of "
      "them where packets were lost {}; gaps {}",
      who, c.truth, c.right, percent(c.right), c.right_flagged, percent(c.right_flagged), c.wrong_flagged, c.wrong, c.lost, c.lost_as_asked,
      c.gaps);
  if (c.behind_end != 0) text += fmt::format("; {} behind the end of the trace", c.behind_end);
  text += '\n';
  if (c.wrong + c.wrong_flagged != 0) {
    text += fmt::format("  first difference: in the segment at offset {:#x}: truth {:x}, here {:x}\n", c.first_wrong_offset_bytes,
                        c.first_want.value, c.first_got.value);
  }
  return text;
}

int32_t tid_of_path(const std::string& path) {
  const size_t at = path.rfind("tid");
  int tid = -1;
  if (at != std::string::npos && std::sscanf(path.c_str() + at, "tid%d", &tid) == 1) return tid;
  return -1;
}

}  // namespace ptd::cli
