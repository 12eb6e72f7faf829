// HealSearch: after a contradiction, searches backwards for the fetch whose bytes differed from the timeline.
//
// A record that was lost for good (the last of its site, or an A -> B together with its B -> A) leaves the timeline wrong without a
// trace in the records. The packets still know: some branches after such a place they fit no instruction. What stood there is mostly
// something that stood there at another time; so every content that the timeline ever knew is tried at the places passed, the last one
// first, until the flow gets well past the contradiction.
#pragma once

#include <memory>
#include <vector>

#include "decoder/pt/flow/batch_edit.h"
#include "decoder/pt/flow/walker.h"

namespace ptd::pt {

class HealSearch {
 public:
  explicit HealSearch(Walker& walker) : walker_(&walker) {}

  /// A flow that starts like `from` (earlier in the segment), takes a content out of its time at one or two places, and fits the packets
  /// for a good while beyond `contradicted`. Its output is in `pending`; blocks that another such flow contradicts are `ambiguous`.
  /// Null if there is none, or none within `most_work` (see Walker::work).
  [[nodiscard]] std::unique_ptr<Flow> find(const Flow& from, uint64_t contradicted, uint64_t most_work);

 private:
  struct Choice {
    std::unique_ptr<Flow> before;  ///< without its output, which is the first part of the present flow's
    BatchPlace output;
    std::vector<Candidate> options;
    size_t next = 0;
    uint32_t strays = 0;  ///< choices out of time on the way here
  };

  [[nodiscard]] std::unique_ptr<Flow> search(const Flow& from, uint32_t max_strays);
  [[nodiscard]] bool advance(Flow& flow, uint32_t strays);
  [[nodiscard]] bool take_next(Flow& flow, uint32_t& strays, uint32_t max_strays);
  bool take(Flow& flow, const Candidate& candidate, Interval default_certain);

  Walker* walker_;
  std::vector<Choice> path_;
  uint64_t contradicted_ = 0;
  uint64_t work_limit_ = 0;
};

}  // namespace ptd::pt
