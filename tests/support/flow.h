// A decoded flow expanded to instructions, and its comparison with libipt's. For tests only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "tests/oracle/libipt_oracle.h"
#include "tests/support/corpus.h"

namespace ptd::test {

/// An event or gap with its place counted in instructions.
struct PlacedEvent {
  uint64_t before_insn = 0;
  uint64_t block_start = 0;  ///< first instruction of the block before it
  Event event;
};
struct PlacedMark {
  uint64_t before_insn = 0;
  Mark mark;
};
struct PlacedGap {
  uint64_t before_insn = 0;
  Gap gap;
};

/// The complete output of a pt::Decoder, in order.
struct Flow {
  std::vector<uint64_t> insns;
  std::vector<uint64_t> branch_ends;  ///< indices of instructions that ended a block with ends_in_branch
  std::vector<uint8_t> taken;         ///< for each of branch_ends
  std::vector<PlacedEvent> events;
  std::vector<PlacedGap> gaps;
  std::vector<PlacedMark> marks;
  std::vector<uint64_t> segment_starts;  ///< number of instructions before each segment
  uint64_t instructions = 0;
  uint64_t uncertain_instructions = 0;  ///< in blocks with a bit of kUncertainFlags
};

/// The content of a Flow after a gap in a segment: everything, or nothing up to the next PSB, like libipt without resynchronisation.
enum class AfterGap : uint8_t { everything, nothing };

/// Converts batches to a Flow. One per decoder, because node ids belong to it.
class FlowCollector {
 public:
  explicit FlowCollector(Flow& flow, AfterGap after_gap = AfterGap::everything) : flow_(flow), after_gap_(after_gap) {}
  void begin_segment() {
    flow_.segment_starts.push_back(flow_.instructions);
    lost_ = false;
  }
  void add(const Batch& batch, const BlockTable& table);

 private:
  void add_block(const Block& block, const BlockTable& table);
  Flow& flow_;
  AfterGap after_gap_;
  bool lost_ = false;      ///< the rest of the segment is omitted
  bool left_out_ = false;  ///< something was omitted since the last `enabled`, so whether that resumes is unknown
  uint64_t block_start_ = 0;
  std::vector<std::vector<uint16_t>> offsets_;  // by node: offset of each instruction in its block
};

/// Memory, one user space, and a context track in which it always runs.
struct Machine {
  Timeline timeline;
  ContextTrack contexts;
};
[[nodiscard]] Machine make_machine(const SparseMemory& memory);

/// Splits the stream at its PSBs and decodes it with one decoder.
[[nodiscard]] Flow decode_stream(Bytes stream, const Machine& machine, const pt::DecoderOptions& options,
                                 AfterGap after_gap = AfterGap::everything);

struct CompareOptions {
  bool events = true;
  bool gaps = true;
};
/// Returns "" if equal; else the first difference in instructions, block ends, events or gaps, with context.
[[nodiscard]] std::string first_difference(const Flow& ours, const oracle::OracleFlow& theirs, const CompareOptions& options = {});

/// Returns the events in the form to which both sides can be converted; see first_difference.
[[nodiscard]] std::vector<std::string> comparable_events(const Flow& ours);
[[nodiscard]] std::vector<std::string> comparable_events(const oracle::OracleFlow& theirs);

}  // namespace ptd::test
