// Parses the payload of one record, without header and sample_id trailer.
#pragma once

#include "perfio/format/records.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {

/// Parses the body of a record of any type but SAMPLE and AUXTRACE (they need more than their bytes). `body` starts after the record
/// header and ends before the sample_id trailer. Unused types give OtherRecord. Returns false if the body is inconsistent.
[[nodiscard]] bool parse_body(const RecordHeader& header, Bytes body, Payload& out);

/// Parses the fixed part of an AUXTRACE record; payload stays empty.
[[nodiscard]] bool parse_auxtrace(Bytes body, AuxtraceRecord& out);

/// Returns the size of the fixed part of a kernel record's body; a trailer cannot begin before its end.
[[nodiscard]] uint64_t fixed_body_bytes(uint32_t type);

}  // namespace ptd::perfio
