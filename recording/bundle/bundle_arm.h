// The CoreSight part of a bundle: trace sources and options, without the trace bytes. Private to recording.
#pragma once

#include "recording/bundle/bundle_wire.h"
#include "recording/data/recording_data.h"

namespace ptd {

void write_arm_sources(const RecordingData& data, ByteWriter& out);
/// Fills data.arm and data.arm_follow; `options` are those of this opening. Returns false on inconsistent data: there must be as many
/// sources as streams.
[[nodiscard]] bool read_arm_sources(ByteReader in, const OpenRequest& options, RecordingData& data);

}  // namespace ptd
