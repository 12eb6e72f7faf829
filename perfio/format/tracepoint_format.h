// The fields of a tracepoint's payload, from the recorded kernel's format text.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::perfio {

enum class SlotKind : uint8_t { number, address, text, dynamic_text, relative_text, bytes };

/// One field.
struct TracepointSlot {
  std::string name;
  SlotKind kind = SlotKind::bytes;
  bool is_signed = false;
  uint32_t offset_bytes = 0, size_bytes = 0;
};

/// The formats of a TRACING_DATA section, which are plain text. The caller owns the bytes.
class TracepointFormats {
 public:
  TracepointFormats() = default;
  explicit TracepointFormats(Bytes tracing_data);
  /// The fields of the tracepoint with this id (perf_event_attr.config) but for those that all have (common_*); empty if its format is not
  /// there.
  [[nodiscard]] std::vector<TracepointSlot> find(uint64_t id) const;
  [[nodiscard]] Bytes data() const { return data_; }

 private:
  Bytes data_;
  std::unordered_map<uint64_t, size_t> ids_;  // -> where its line begins
};

/// Returns a field's value as text. `number`: a decimal number. Empty if the payload is too short.
struct SlotValue {
  std::string text;
  bool number = false;
};
[[nodiscard]] SlotValue read_slot(const TracepointSlot& slot, Bytes payload);

}  // namespace ptd::perfio
