// Encodes samples of other events, and where and by what the recording was made, as bytes of a bundle and back. Private to recording.
#pragma once

#include <string>
#include <vector>

#include "recording/bundle/bundle_container.h"
#include "recording/bundle/bundle_wire.h"
#include "recording/data/other_events.h"
#include "recording/data/recording_data.h"

namespace ptd {

void write_other_events(const OtherEvents& events, ByteWriter& out);
/// Reads the samples in `times` (empty: all), at most `most`. Returns false if the bytes are damaged.
[[nodiscard]] bool read_bundled_events(ByteReader in, const std::vector<Interval>& times, size_t most, OtherEvents& events);
/// read_other_events() for the bundle at `path`. Errors: those of opening a bundle.
[[nodiscard]] Result<OtherEvents> read_bundled_events(const std::string& path, const std::vector<Interval>& times, size_t most);
/// The same for the chunks of the bundle at `path`, a file of `file_bytes`.
[[nodiscard]] Result<OtherEvents> read_bundled_events(const BundleChunks& chunks, uint64_t file_bytes, const std::string& path,
                                                      const std::vector<Interval>& times, size_t most);

/// Writes the recording's origin and the names of its events, each if there is something to write. Errors: those of
/// BundleFileWriter::add().
[[nodiscard]] Status write_origin(const RecordingData& data, BundleFileWriter& file);
/// Reads them. Returns false if they are damaged.
[[nodiscard]] bool read_origin(ByteReader in, Origin& origin);
[[nodiscard]] bool read_event_names(ByteReader in, EventNames& names);

}  // namespace ptd
