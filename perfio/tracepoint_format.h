// The fields of a tracepoint's payload, as the recorded kernel's own format text lays them out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/base/types.h"

namespace ptd::perfio {

enum class SlotKind : uint8_t { number, address, text, dynamic_text, bytes };

/// One field.
struct TracepointSlot {
  std::string name;
  SlotKind kind = SlotKind::bytes;
  bool is_signed = false;
  uint32_t offset_bytes = 0, size_bytes = 0;
};

/// The fields of the tracepoint with this id (perf_event_attr.config) but for those that all have (common_*); empty if its format is not
/// there. `tracing_data`: the TRACING_DATA section, whose formats are plain text.
[[nodiscard]] std::vector<TracepointSlot> find_tracepoint(Bytes tracing_data, uint64_t id);

/// A field's value for people. `number`: a decimal number. Empty text where the payload is too short.
struct SlotValue {
  std::string text;
  bool number = false;
};
[[nodiscard]] SlotValue read_slot(const TracepointSlot& slot, Bytes payload);

}  // namespace ptd::perfio
