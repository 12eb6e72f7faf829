// TruthWalk: see truth_walk.h.
#include "cli/verify/truth_walk.h"

#include <deque>

#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd::cli {
namespace {

// A branch of 32-bit code is one of 64-bit code too, except for those that are no instruction there: those are taken for none.
bool leaves_packet(InsnClass cls) {
  return cls != InsnClass::other && cls != InsnClass::jump_direct && cls != InsnClass::call_direct && cls != InsnClass::bad;
}
bool leaves_packet(ArmClass cls) { return cls == ArmClass::direct || cls == ArmClass::indirect || cls == ArmClass::isb; }

void expand(const TruthRun& run, InsnFlow& insns) {
  const emulate::TruthBlock& block = *run.block;
  uint64_t at = 0;
  for (uint32_t i = 0; i < run.first + run.count; ++i) {
    const uint8_t length = block.lengths[i];
    if (i >= run.first) insns.add(Ip{block.ip + at}, Bytes(block.bytes).subspan(at, length), false);
    at += length;
  }
}

}  // namespace

void SkippedInsns::add(const TruthRun& run) {
  std::vector<int64_t>& change = changes[run.block];
  change.resize(run.block->lengths.size() + 1);
  ++change[run.first];
  --change[size_t{run.first} + run.count];
  count += run.count;
}

void TruthSegment::add_lost(uint64_t first, uint64_t end) {
  constexpr size_t kMost = size_t{1} << 20;
  if (!lost.empty() && lost.back() == std::pair(first, end)) return;
  if (lost.size() < kMost) {
    lost.emplace_back(first, end);
  } else {
    lost.back().second = end;
  }
}

/// Holds the start and the end of a segment.
class TruthWalk::Holder {
 public:
  Holder(TruthSegment& segment, size_t held) : segment_(segment), held_(held) {}
  void add(const TruthRun& run) {
    size_ += run.count;
    if (run.count == 0) return;
    if (size_ == segment_.insns.size() + run.count && size_ <= held_) return expand(run, segment_.insns);
    last_.push_back(run);
    last_size_ += run.count;
    for (; !last_.empty() && last_size_ - last_.front().count >= held_; last_.pop_front()) {
      segment_.skipped.add(last_.front());
      last_size_ -= last_.front().count;
    }
  }
  void finish() {
    segment_.skipped.before = segment_.insns.size();
    for (const TruthRun& run : last_) expand(run, segment_.insns);
  }
  /// Returns the number of instructions so far.
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  TruthSegment& segment_;
  size_t held_;
  std::deque<TruthRun> last_;
  uint64_t size_ = 0, last_size_ = 0;
};

TruthWalk::TruthWalk(emulate::TruthFileReader& reader, bool is_pt) : reader_(reader), is_pt_(is_pt) {
  for (emulate::TruthRecord record; !more() && reader_.next(record);) {
    ended_ = ended_ || record.tag == emulate::TruthTag::end;
    if (record.tag == emulate::TruthTag::psb) {
      mark_ = record.offset_bytes;
      have_mark_ = true;
      ++psbs_;
    } else if (record.block != nullptr) {
      first_ = record;
      have_first_ = true;
    }
  }
}

bool TruthWalk::read(emulate::TruthRecord& record) {
  if (!have_first_) return reader_.next(record);
  record = first_;
  have_first_ = false;
  return true;
}

bool TruthWalk::next(TruthSegment& segment, size_t held) {
  segment.clear();
  if (!more()) return false;
  segment.valid = have_mark_;
  segment.offset_bytes = mark_;
  segment.psbs = psbs_;
  have_mark_ = false;
  Holder holder(segment, held);
  uint64_t losing_from = 0;
  emulate::TruthRecord record;
  while (!have_mark_ && read(record)) {
    switch (record.tag) {
      case emulate::TruthTag::block:
      case emulate::TruthTag::part:
        // An atom is written when the flow is known to go on: of the last branch there is none.
        if (!is_pt_ && branch_before_) segment.told_end = holder.size();
        holder.add({record.block, record.first, record.count});
        branch_before_ = gives_packet(*record.block, record.first + record.count);
        if (is_pt_ && branch_before_) segment.told_end = holder.size();
        break;
      case emulate::TruthTag::event:
        if (!is_pt_) segment.told_end = holder.size();
        break;
      case emulate::TruthTag::lose:
        losing_from = holder.size();
        break;
      case emulate::TruthTag::recover:
        segment.add_lost(losing_from, holder.size());
        break;
      case emulate::TruthTag::psb:
        mark_ = record.offset_bytes;
        have_mark_ = true;
        ++psbs_;
        break;
      case emulate::TruthTag::end:
        ended_ = true;
        break;
      default:
        break;
    }
  }
  holder.finish();
  return true;
}

// Returns whether a packet covers some of the block's first `end` instructions.
bool TruthWalk::gives_packet(const emulate::TruthBlock& block, uint32_t end) {
  if (end < block.lengths.size()) return false;
  const auto [known, fresh] = packet_.try_emplace(&block, true);
  if (fresh && !block.lengths.empty()) {
    const Bytes last = Bytes(block.bytes).last(block.lengths.back());
    known->second = is_pt_ ? leaves_packet(classify(last, ExecMode::bits64).cls) : leaves_packet(classify_arm(last, ExecMode::a64).cls);
  }
  return known->second;
}

}  // namespace ptd::cli
