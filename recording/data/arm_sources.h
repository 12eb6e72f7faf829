// ArmSources: splits CoreSight buffers into one stream per trace source. Private to recording.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/arm/frames.h"
#include "ptdecode/finding.h"
#include "recording/data/stray_ids.h"
#include "recording/trace/streams.h"

namespace ptd {

/// The description of a CoreSight trace stream, without its bytes.
struct ArmSource {
  arm::TraceConfig config;
  std::string name;  ///< of the source ("ETM_0")
  std::string core;  ///< of the core that it traces ("cpu_0"), may be empty
  /// (stream offset, offset in the buffer) of each run of bytes that is contiguous in the buffer, in order.
  std::vector<std::pair<uint64_t, uint64_t>> places;

  /// Returns the offset in the buffer of a byte of the stream.
  [[nodiscard]] uint64_t place_of(uint64_t stream_offset) const;
};

/// Returns one sentence for each property of these sources that is not supported.
[[nodiscard]] std::vector<std::string> tell_limits(const std::vector<ArmSource>& sources);

/// Collects the bytes of sources that share formatted buffers. Feed buffers in order, then take().
class ArmSources {
 public:
  /// Adds a source that writes with this id; of several sources with one id, the last one gets the following bytes.
  size_t add_source(ArmSource source);
  [[nodiscard]] const ArmSource& source(size_t index) const { return sources_[index].source; }

  /// Returns the frame format in which most bytes of `buffer` have ids of `members`; `described`, what the recording says, if both have as
  /// many.
  [[nodiscard]] arm::FrameFormat likely_format(Bytes buffer, arm::FrameFormat described, const std::vector<size_t>& members) const;
  /// Places in a buffer where bytes are no whole frames.
  struct Losses {
    uint64_t count = 0;
    uint64_t first_offset_bytes = 0;
  };
  /// Adds a formatted buffer: the bytes of each id go to the source with that id among `members`. Where bytes are no whole frames, trace of
  /// all of them is missing.
  Losses add_frames(Bytes buffer, uint64_t buffer_offset, arm::FrameFormat format, const std::vector<size_t>& members);
  /// Adds unformatted bytes of one source.
  void add_raw(size_t source, Bytes bytes, uint64_t buffer_offset);
  /// Declares that the following bytes of these sources do not continue the previous ones.
  void break_here(const std::vector<size_t>& members, AuxBreak why);
  /// Declares that everything added so far was written before `time`.
  void written(const std::vector<size_t>& members, TimeNs time);

  /// Declares that each stretch of a source after a break is all that its trace unit wrote since it was enabled, which begins with an
  /// A-Sync. Where one does not, trace is missing; none is of ITM and STM. `from_begin`: so is the one before the first break, which else
  /// is what is left in a ring. Call it before take().
  void expect_async(size_t index, bool from_begin);
  /// Returns the stream of a source, with losses where damaged ids may have taken its bytes; `owners` keep its bytes alive. Call it when
  /// all is added. Segments that are out of order are put in order, each byte once, and trace is missing where they are joined: see
  /// order_of_segments().
  [[nodiscard]] AuxStream take(size_t index, std::vector<std::shared_ptr<const void>>& owners);
  [[nodiscard]] ArmSource& taken_source(size_t index) { return sources_[index].source; }
  /// Returns a sentence about bytes with ids of no source; empty if there are none.
  [[nodiscard]] std::string tell_strangers() const;
  /// Returns findings about sources that the recording does not describe, ids that several sources of one buffer have, and sources that
  /// were taken whose segments were out of order.
  [[nodiscard]] std::vector<Finding> findings() const;

 private:
  /// Bytes [first, last) of a source that come to `to`.
  struct Move {
    uint64_t first = 0, last = 0, to = 0;
  };
  struct Entry {
    ArmSource source;
    std::vector<std::byte> bytes;
    std::vector<std::pair<uint64_t, AuxBreak>> breaks;  ///< in order
    std::vector<std::pair<uint64_t, TimeNs>> written;
    bool lacks_begin = false;
    std::vector<Move> moves;  ///< all bytes that are kept, in order of `to`; empty: none was moved
  };
  class Collector;
  /// Returns the id of a source in frames.
  [[nodiscard]] uint8_t id_of(size_t index) const { return sources_[index].source.config.trace_id & 0x7f; }
  void append(Entry& entry, Bytes bytes, uint64_t place);
  void share(const Entry& entry, const Entry& other, uint8_t id);
  void tell_set_back(const ArmSource& source, uint64_t offset_bytes);
  void put_in_order(Entry& entry);
  void move(Entry& entry, std::vector<Move> moves);
  std::vector<Entry> sources_;
  std::vector<Finding> order_findings_;        ///< of sources that were taken
  std::map<std::string, std::string> shared_;  ///< of sources with one id: name of the one that gets its bytes -> sentence
  std::map<uint8_t, uint64_t> strangers_;
  StrayIds strays_;
  std::optional<std::multimap<size_t, StrayIds::Loss>> losses_;  ///< of strays_, from take() on
};

}  // namespace ptd
