// StrayIds: trace ids in formatter frames that no source has. Distinguishes damage from sources that the recording does not describe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd {

/// A *stray* is the bytes from an id byte whose id no source has to the next id byte. Feed buffers in order.
///
/// A source that the recording does not describe (STM, ITM, ELA) writes more than once, repeats its id when it has written for eight
/// frames, or begins with a synchronisation packet. Damage gives an id that occurs once: the id byte of a source has another id, or a data
/// byte has become an id byte, as one wrong bit makes it. Ids from 0x70 on are reserved, so no source has them, and what the formatter
/// writes is known: padding has id 0 and is zero, and a flush or a trigger has one byte. A buffer with many strays that occur once does not
/// hold frames of these sources.
///
/// A data byte can also become the id byte of its own source, which comes too early for a repeated id, or of padding that does not end with
/// its frame. These are damage where they are an exception.
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

  /// Where bytes are missing from the stream of a source because an id byte is damaged, or a data byte has become one.
  struct Loss {
    size_t index = 0;
    uint64_t stream_offset_bytes = 0;
    uint8_t id = 0;
  };
  /// Returns the ids that no source has and with which a synchronisation packet was written: the recording lacks the description of their
  /// sources.
  [[nodiscard]] std::vector<uint8_t> undescribed() const;
  /// Returns the losses by source: those of all sources that can have written the bytes of a stray. A formatter repeats an id only after
  /// eight frames. So the source whose id comes next has not written them, unless its repeated id was due.
  [[nodiscard]] std::multimap<size_t, Loss> losses() const;

 private:
  class Reader;
  struct Seen {
    uint64_t strays = 0;
    bool is_source = false;  ///< a source's synchronisation packet, or its repeated id
    bool has_sync = false;   ///< a synchronisation packet
    std::vector<Loss> losers;
  };

  std::map<size_t, uint64_t> read_;  ///< bytes of each source so far
  std::map<uint8_t, Seen> seen_;
  std::vector<Loss> odd_;  ///< at ids that are damage if they are an exception
  uint64_t odd_count_ = 0;
  uint64_t known_ids_ = 0;  ///< id bytes of sources
};

}  // namespace ptd
