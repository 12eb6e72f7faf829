// Streams of a recording as captures of the benchmark.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "tests/oracle/libipt_speed.h"

namespace ptd::bench {

/// One stream. Its trace is contiguous. `segments` view `trace`; the timeline and the contexts are the recording's.
struct RecordedStream {
  std::shared_ptr<const Recording> recording;
  std::vector<std::byte> trace;
  std::vector<AuxSegment> segments;
};

/// See OpenRequest::drop_nth_poke and drop_poke_seed.
struct DroppedPokes {
  uint32_t nth = 0, seed = 0;
};

/// Returns each stream of the recording that has trace, decoded as if some TEXT_POKE records were lost. Returns none, and sets `why`, if
/// the recording cannot be opened.
[[nodiscard]] std::vector<RecordedStream> load_recording(const std::string& path, const std::string& symfs, std::string& why,
                                                         DroppedPokes dropped = {});

/// Returns the image for libipt, which supports only one: the executed sections of the timeline, as they were when first executed. Of user
/// code, only the sections of the space with the most executed blocks. Their bytes are written to `path`.
[[nodiscard]] std::vector<oracle::PeerSection> image_of(const RecordedStream& stream, const std::string& path);

}  // namespace ptd::bench
