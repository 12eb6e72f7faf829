// Encodes what a plan adds to the format of bundles. Private to recording.
#pragma once

#include "recording/bundle/bundle_wire.h"
#include "recording/data/recording_data.h"

namespace ptd {

/// Divides the streams into units of about `unit_bytes` and fills `plan`, but its findings and clock. Reads the whole trace.
void make_plan(const OpenRequest& options, uint64_t unit_bytes, const RecordingData& data, PlanData& plan);

/// The parts "PLAN" (files, pieces, units, findings) and "INDX" (sync points, clocks, times).
void write_plan_part(const RecordingData& data, const PlanData& plan, ByteWriter& out);
void write_index_part(const RecordingData& data, ByteWriter& out);
/// Return false if the content does not fit.
[[nodiscard]] bool read_plan_part(ByteReader in, PlanData& plan);
/// Fills indexes, infos and timing, as index_streams() does. `options` are those of the reader. The streams must be there.
[[nodiscard]] bool read_index_part(ByteReader in, const OpenRequest& options, RecordingData& data);
/// Calls check_unit() for all units of a plan.
[[nodiscard]] Status check_units(const RecordingData& data);

}  // namespace ptd
