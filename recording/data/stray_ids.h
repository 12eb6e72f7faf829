// StrayIds: trace ids in formatter frames that no source has. Distinguishes damaged ids from sources that the recording does not describe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd {

/// A *stray* is the bytes from an id byte whose id no source has to the next id byte. Feed buffers in order.
///
/// A source that the recording does not describe (STM, ITM, ELA) writes more than once, repeats its id when it has written for eight frames,
/// or begins with a synchronisation packet. A damaged id byte gives an id that occurs once. Padding has id 0 and is zero, so id 0 with other
/// bytes is a damaged id as well. A buffer with many strays does not hold frames of these sources.
class StrayIds {
 public:
  /// A source, by the index that its owner gave it, and the id of its bytes in the frames.
  struct Source {
    size_t index = 0;
    uint8_t id = 0;
  };
  /// Adds a formatted buffer. `reader` gets its contents too, so that they are read once.
  void add_frames(Bytes buffer, arm::FrameFormat format, const std::vector<Source>& sources, arm::FrameReader& reader);
  /// Unformatted bytes of one source.
  void add_raw(size_t index, uint64_t bytes) { read_[index] += bytes; }

  /// Where bytes are missing from the stream of a source because the id before them is damaged.
  struct Loss {
    size_t index = 0;
    uint64_t stream_offset_bytes = 0;
    uint8_t id = 0;
  };
  /// Returns the ids that no source has and with which a synchronisation packet was written: the recording lacks the description of their sources.
  [[nodiscard]] std::vector<uint8_t> undescribed() const;
  /// Returns the losses by source: those of all sources that can have written the bytes of a damaged id. A formatter repeats an id only after eight
  /// frames, so the source whose id is next to the damaged one has not written them.
  [[nodiscard]] std::multimap<size_t, Loss> losses() const;

 private:
  class Reader;
  struct Stray {
    std::vector<Loss> losers;
    uint32_t zeros = 0, ones = 0;  ///< bytes 0 and 0xff in a row, at the end
    bool has_data = false;         ///< some byte is not 0
    bool is_source = false;        ///< a source's synchronisation packet, or its repeated id
    bool has_sync = false;         ///< a synchronisation packet
  };
  struct Seen {
    uint32_t strays = 0;  ///< that have data
    bool is_source = false, has_sync = false;
    std::vector<Loss> losers;  ///< of the first stray
  };

  std::map<size_t, uint64_t> read_;  ///< bytes of each source so far
  std::map<uint8_t, Seen> seen_;
};

}  // namespace ptd
