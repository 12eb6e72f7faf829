// Fields of Perfetto's trace format. For PerfettoWriter.
#pragma once

#include <cstdint>
#include <string>

#include "cli/text/protobuf.h"

namespace ptd::cli {

// Field numbers: perfetto/protos/perfetto/trace/{trace,trace_packet,interned_data}.proto, track_event/*.proto.
inline constexpr unsigned kTracePacket = 1;
inline constexpr unsigned kPacketTimestamp = 8, kPacketSequence = 10, kPacketTrackEvent = 11, kPacketInterned = 12,
                          kPacketSequenceFlags = 13, kPacketTrackDescriptor = 60;
inline constexpr unsigned kInternedEventNames = 2, kInternedAnnotationNames = 3, kEventNameId = 1, kEventName = 2;
inline constexpr unsigned kTrackEventType = 9, kTrackEventNameId = 10, kTrackEventTrack = 11, kTrackEventAnnotation = 4,
                          kTrackEventCounter = 30, kTrackEventDouble = 44;
inline constexpr unsigned kDescriptorUuid = 1, kDescriptorName = 2, kDescriptorProcess = 3, kDescriptorThread = 4, kDescriptorParent = 5,
                          kDescriptorCounter = 8;
inline constexpr unsigned kProcessPid = 1, kProcessName = 6, kThreadPid = 1, kThreadTid = 2, kThreadName = 5;
inline constexpr unsigned kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
inline constexpr unsigned kAnnotationNameId = 1, kAnnotationUint = 3;
inline constexpr uint64_t kFoldedNameId = 1, kEstimatedNameId = 2;
inline constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
inline constexpr uint64_t kSequence = 1;

// Numbers of tracks. They are small, as each event has one.
[[nodiscard]] constexpr uint64_t other_track(uint64_t number) { return 3 * number + 3; }
[[nodiscard]] constexpr uint64_t process_track(int32_t pid) { return 3 * static_cast<uint64_t>(pid) + 1; }
[[nodiscard]] constexpr uint64_t thread_track(uint32_t index) { return 3 * uint64_t{index} + 2; }

/// Completes `packet`.
inline void put_packet(std::string& out, std::string& packet, uint64_t flags) {
  put(packet, kPacketSequence, kSequence);
  put(packet, kPacketSequenceFlags, flags);
  put(out, kTracePacket, packet);
}

}  // namespace ptd::cli
