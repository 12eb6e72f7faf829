// Encodes record values as bytes; the inverse of record_parse and sample_id.
#pragma once

#include <cstdint>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/records.h"

namespace ptd::perfio {

/// The data for the header and trailer of a record, besides its payload.
struct EncodeContext {
  SampleId sample_id;    ///< -1 and 0 are written as they are
  uint16_t misc = 0;     ///< cpumode and other bits that the payload does not determine
  bool as_mmap2 = true;  ///< MmapRecord: MMAP2 or MMAP
};

/// Appends a complete record (header, body, and the trailer that `attr` requires). The payload determines the type and some misc bits.
/// Returns false and leaves `out` unchanged if the record cannot be written (OtherRecord, or longer than 65,535 bytes).
[[nodiscard]] bool encode_record(const Payload& payload, const EncodeContext& context, const EventAttr& attr, std::vector<std::byte>& out);

/// Appends a perf_event_attr: attr.raw if present, else built from the fields; zero-extended to `size_bytes`, the value of its size field.
[[nodiscard]] std::vector<std::byte> encode_attr(const EventAttr& attr, size_t size_bytes);

}  // namespace ptd::perfio
