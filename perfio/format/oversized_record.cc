// Records that the kernel made too long: see oversized_record.h.
#include "perfio/format/oversized_record.h"

#include <algorithm>
#include <cstring>

#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

/// Bytes of a record up to its trailer, by its content; 0 if it does not tell.
uint64_t content_bytes(Bytes record) {
  Cursor body(record.subspan(kRecordHeaderBytes));
  switch (read_record_header(record).type) {
    case kRecordKsymbol: {
      body.skip(16);
      const Bytes name = body.rest();
      const auto* text = reinterpret_cast<const char*>(name.data());
      const size_t length = name.empty() ? 0 : strnlen(text, name.size());
      return length == name.size() ? 0 : kRecordHeaderBytes + 16 + (length / 8 + 1) * 8;
    }
    case kRecordBpfEvent:
      return kRecordHeaderBytes + 16;
    case kRecordTextPoke: {
      body.skip(8);
      const uint64_t code = uint64_t{body.u16()} + body.u16();
      return body.ok() ? kRecordHeaderBytes + (8 + 2 + 2 + code + 7) / 8 * 8 : 0;
    }
    default:
      return 0;
  }
}

}  // namespace

Bytes without_excess(Bytes record, const EventAttr& attr, std::vector<std::byte>& scratch) {
  if (record.size() < kRecordHeaderBytes) return record;
  const uint64_t content = content_bytes(record), trailer = trailer_bytes(attr);
  if (content == 0 || trailer == 0 || content + trailer >= record.size()) return record;
  SampleId id;
  parse_trailer(attr, record.subspan(static_cast<size_t>(content), static_cast<size_t>(trailer)), id);
  if (std::find(attr.ids.begin(), attr.ids.end(), id.id) == attr.ids.end()) return record;  // longer for another reason
  scratch.assign(record.begin(), record.begin() + static_cast<std::ptrdiff_t>(content + trailer));
  const auto size = static_cast<uint16_t>(scratch.size());
  std::memcpy(scratch.data() + 6, &size, sizeof(size));
  return scratch;
}

}  // namespace ptd::perfio
