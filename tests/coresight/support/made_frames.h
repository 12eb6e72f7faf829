// Formatter frames from the output of the sources, by the rules of [CoreSight] "Formatter".
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace ptd::test {

/// Packs the pieces (id, bytes) into frames, in order. An id is in an even byte with bit 0 set; the bit 0 of a data byte there is stored in
/// the last byte of the frame. The byte after an id may belong to the old id: `delay` returns whether the formatter does so, if it can. The
/// last frame is padded with id 0. An id is repeated when none was written for `repeat_frames`.
inline std::vector<uint8_t> frames_of(const std::vector<std::pair<uint8_t, std::vector<uint8_t>>>& pieces,
                                      const std::function<bool()>& delay, size_t repeat_frames = SIZE_MAX) {
  struct Datum {
    uint8_t id, value;
  };
  std::vector<Datum> data;
  for (const auto& [id, bytes] : pieces) {
    for (const uint8_t value : bytes) data.push_back({id, value});
  }
  std::vector<uint8_t> frames;
  uint8_t id = 0;
  size_t next = 0, of_id = 0;  // of_id: frames since the last id
  const auto id_at = [&](size_t index) { return index < data.size() ? data[index].id : uint8_t{0}; };
  const auto value_at = [&](size_t index) { return index < data.size() ? data[index].value : uint8_t{0}; };
  while (next < data.size()) {
    uint8_t frame[16] = {};
    ++of_id;
    for (unsigned pair = 0; pair < 8; ++pair) {
      const unsigned at = 2 * pair;
      const bool last = pair == 7;
      if (id_at(next) != id || of_id > repeat_frames) {  // the new id's byte follows immediately
        id = id_at(next);
        of_id = 0;
        frame[at] = static_cast<uint8_t>(id << 1 | 1);
        if (!last) frame[at + 1] = value_at(next++);
      } else if (!last && id_at(next + 1) != id && delay()) {  // the old id's byte, then the new one's
        frame[at] = static_cast<uint8_t>(id_at(next + 1) << 1 | 1);
        frame[at + 1] = value_at(next++);
        frame[15] |= static_cast<uint8_t>(1U << pair);
        id = id_at(next);
        of_id = 0;
      } else {
        // Both bytes belong to the old id; if the second does not, an id must precede it.
        if (!last && id_at(next + 1) != id) {
          frame[at] = static_cast<uint8_t>(id << 1 | 1);  // the same id again
          frame[at + 1] = value_at(next++);
          continue;
        }
        const uint8_t value = value_at(next++);
        frame[at] = value & 0xfe;
        frame[15] |= static_cast<uint8_t>((value & 1) << pair);
        if (!last) frame[at + 1] = value_at(next++);
      }
    }
    frames.insert(frames.end(), frame, frame + 16);
  }
  return frames;
}

}  // namespace ptd::test
