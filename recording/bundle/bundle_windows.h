// Encodes the AUX samples of streams, which say which part of the trace is of which sample, which names threads did not give themselves,
// and when traced threads left their cpu. Private to recording.
#pragma once

#include <functional>

#include "recording/bundle/bundle_container.h"
#include "recording/bundle/bundle_wire.h"
#include "recording/data/recording_data.h"

namespace ptd {

/// Appends the samples of all streams that `is_kept` chooses, in order of the streams. Stream offsets stay those of the recording, also in
/// a bundle of a part of it.
void write_windows(const RecordingData& data, const std::function<bool(size_t stream, const AuxSample&)>& is_kept, ByteWriter& out);
/// Reads them into the streams, which were read before. Returns false if they are damaged.
[[nodiscard]] bool read_windows(ByteReader in, RecordingData& data);
/// Adds a chunk with the names that threads did not give themselves, if there are any.
Status add_given_comms(const RecordingData& data, BundleFileWriter& file);
[[nodiscard]] bool read_given_comms(ByteReader in, RecordingData& data);
/// Adds a chunk with ContextTrack::leaves() of the cpus that have switches, if there are any.
Status add_leaves(const ContextTrack& contexts, BundleFileWriter& file);
void write_leaves(const ContextTrack& contexts, ByteWriter& out);
[[nodiscard]] bool read_leaves(ByteReader in, ContextTrack& contexts);

}  // namespace ptd
