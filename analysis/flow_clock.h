// flow_clock(): the properties of a recording's stream clock.
#pragma once

#include "analysis/flow_dates.h"
#include "ptdecode/recording.h"
#include "recording/data/recording_data.h"

namespace ptd {

/// `schedule` must outlive all users of the clock.
[[nodiscard]] inline FlowClock flow_clock(const Recording& recording, uint32_t stream, const ThreadSchedule& schedule) {
  FlowClock clock;
  const StreamInfo& info = recording.streams()[stream];
  if (info.cpu < 0) {
    clock.schedule = &schedule;
    clock.tid = info.tid;
  }
  const pt::Config& config = recording.decoder_options().config;
  clock.in_ns = recording.has_time_conversion();
  clock.bounds_code = clock.in_ns && recording.arm_config(stream) == nullptr;
  clock.slack_ns = recording.decoder_options().slack_ns;
  if (clock.in_ns) clock.first = info.time.first;
  if (recording.arm_config(stream) != nullptr || !config.has_mtc || config.tsc_ctc_ratio_d == 0) return clock;
  const unsigned shift = config.mtc_period < 15 ? config.mtc_period : 15;
  const uint64_t period = (uint64_t{config.tsc_ctc_ratio_n} << shift) / config.tsc_ctc_ratio_d;
  if (clock.in_ns) clock.tick_ns = config.time.duration_ns(period);
  return clock;
}

/// Returns until when a stream's last pause lasts; kTimeMin: there is none. The last window of AUX samples ends with its flow, as those
/// before it.
[[nodiscard]] inline TimeNs end_of_flow(const Recording& recording, uint32_t stream) {
  return data_of(recording).streams[stream].samples().empty() ? recording.streams()[stream].time.last : kTimeMin;
}

}  // namespace ptd
