// HealSearch: after a contradiction, searches backwards for the fetch whose bytes differed from the timeline.
//
// Some lost records leave no evidence in other records: the last record of a site, or an A -> B together with its B -> A. The timeline is
// then wrong, but the packets contradict the code some branches later. The real content is usually one that the timeline has for another
// time. So the search tries all known contents at the addresses that the flow passed, latest first, until the flow continues well past
// the contradiction.
#pragma once

#include <memory>
#include <vector>

#include "decoder/batch_edit.h"
#include "decoder/pt/flow/walker.h"

namespace ptd::pt {

class HealSearch {
 public:
  explicit HealSearch(Walker& walker) : walker_(&walker) {}

  struct Search {
    uint64_t contradicted = 0;  ///< position at which the packets contradicted the flow
    uint64_t most_work = 0;     ///< see Walker::work
    bool doubtful = false;      ///< the flow was one of several, or begins as one of them
    TimeNs not_before;          ///< what is known of its time without its choices
  };
  /// Returns a flow that starts like `from` (earlier in the segment), uses content of another time at one or two addresses, and fits the
  /// packets well past the contradiction. Its output is in `pending`. Null if there is none within the work.
  [[nodiscard]] std::unique_ptr<Flow> find(const Flow& from, const Search& how);
  /// Marks what follows choices among several contents in time, of which nothing contradicts the others, in the flow that was found: from
  /// its block `first` on, up to a packet that gives its place; of a doubtful flow, what follows `first`, too. Returns false if no packet
  /// gives it at the end.
  [[nodiscard]] bool mark_open(Flow& found, size_t first) const;

 private:
  struct Choice {
    std::unique_ptr<Flow> before;  ///< the flow before the choice; its output is the first part of the current flow's
    BatchPlace output;
    std::vector<Candidate> options;
    bool is_open = false;  ///< several of them are in time
    size_t next = 0;
    uint32_t strays = 0;  ///< choices of another time made before this one
  };

  [[nodiscard]] std::unique_ptr<Flow> search(const Flow& from, uint32_t max_strays);
  [[nodiscard]] bool advance(Flow& flow, uint32_t strays);
  [[nodiscard]] bool take_next(Flow& flow, uint32_t& strays, uint32_t max_strays);
  bool take(Flow& flow, const Candidate& candidate, Interval default_certain);

  Walker* walker_;
  std::vector<Choice> path_;
  /// Of the flow that was found: numbers of blocks before such choices, and before it was placed by packets.
  std::vector<size_t> open_, placed_;
  Search how_;
  uint64_t work_limit_ = 0;
};

}  // namespace ptd::pt
