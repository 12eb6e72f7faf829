// The event of announcements: samples of the tracepoint user_events:ptd_code (docs/ANNOUNCE.md).
#pragma once

#include <cstdint>
#include <vector>

#include "perfio/format/event_attr.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

/// The fields of every tracepoint come before the record: type, flags, preempt count, pid.
inline constexpr size_t kTracepointCommonBytes = 8;
/// The tracepoint's id where no kernel gave one: in recordings by ptdecode.
inline constexpr uint64_t kAnnounceTracepoint = 0x7074;

/// Returns whether the event's samples are announcements, by its name: user_events:ptd_code, or with a suffix as user_events_multi.
[[nodiscard]] bool is_announcement(const EventAttr& attr);
/// Returns the event for a recorder that writes announcements itself; the caller sets the ids and the clock. `like`: an event of the
/// recording, with whose sample_type the records' times are found.
[[nodiscard]] EventAttr announce_attr(const EventAttr& like, uint64_t id);
/// Returns the raw data of a sample with this record.
[[nodiscard]] std::vector<std::byte> announce_sample(int32_t tid, Bytes record);
/// Returns a TRACING_DATA section with the tracepoint's format, for readers that print samples.
[[nodiscard]] std::vector<std::byte> announce_tracing_data();

}  // namespace ptd::perfio
