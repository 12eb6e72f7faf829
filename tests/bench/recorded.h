// Streams of a recording as captures of the benchmark.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "tests/oracle/libipt_speed.h"

namespace ptd::bench {

/// One stream, its trace contiguous. `segments` view `trace`; the timeline and the contexts are the recording's.
struct RecordedStream {
  std::shared_ptr<const Recording> recording;
  std::vector<std::byte> trace;
  std::vector<AuxSegment> segments;
};

/// See OpenRequest::drop_nth_poke and drop_poke_seed.
struct DroppedPokes {
  uint32_t nth = 0, seed = 0;
};

/// Every stream of the recording that holds trace, decoded as if some TEXT_POKE records were lost. Empty, with `why`, if it cannot be
/// opened.
[[nodiscard]] std::vector<RecordedStream> load_recording(const std::string& path, const std::string& symfs, std::string& why,
                                                         DroppedPokes dropped = {});

/// For libipt, which keeps one image: the sections of the timeline in which the stream ran, as they were when they were first met; of user
/// code those of the space in which most blocks ran. Their bytes are written to `path`.
[[nodiscard]] std::vector<oracle::PeerSection> image_of(const RecordedStream& stream, const std::string& path);

}  // namespace ptd::bench
