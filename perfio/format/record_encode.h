// Encodes record values as bytes; the inverse of record_parse and sample_id.
#pragma once

#include <cstdint>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/records.h"

namespace ptd::perfio {

/// What the header and the trailer of a record need beside its payload.
struct EncodeContext {
  SampleId sample_id;    ///< -1 and 0 are written as they are
  uint16_t misc = 0;     ///< cpumode and whatever the payload does not decide by itself
  bool as_mmap2 = true;  ///< MmapRecord: MMAP2 or MMAP
};

/// Appends a whole record (header, body, and the trailer that `attr` asks for). The type and the misc bits that the payload implies are set
/// from it. False: no such record can be written (OtherRecord, or longer than 65,535 bytes); `out` is then as before.
[[nodiscard]] bool encode_record(const Payload& payload, const EncodeContext& context, const EventAttr& attr, std::vector<std::byte>& out);

/// perf_event_attr: attr.raw if there, else built from the fields; zero-extended to `size_bytes`, which its size field then says.
[[nodiscard]] std::vector<std::byte> encode_attr(const EventAttr& attr, size_t size_bytes);

}  // namespace ptd::perfio
