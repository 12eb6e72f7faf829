// Encodes samples of other events as bytes of a bundle and back. Private to recording.
#pragma once

#include "recording/bundle/bundle_wire.h"
#include "recording/bundle/other_events.h"

namespace ptd {

void write_other_events(const OtherEvents& events, ByteWriter& out);
/// Reads the samples in `times` (empty: all), at most `most`. Returns false if the bytes are damaged.
[[nodiscard]] bool read_bundled_events(ByteReader in, const std::vector<Interval>& times, size_t most, OtherEvents& events);

}  // namespace ptd
