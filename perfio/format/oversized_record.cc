// Records that the kernel made too long: see oversized_record.h.
#include "perfio/format/oversized_record.h"

#include <algorithm>
#include <cstring>

#include "perfio/format/record_parse.h"
#include "perfio/format/sample_id.h"

namespace ptd::perfio {
namespace {

/// Of a text that begins at the cursor and is padded to 8 bytes; 0 if it has no end.
uint64_t text_bytes(Cursor body) {
  const Bytes text = body.rest();
  const size_t length = text.empty() ? 0 : strnlen(reinterpret_cast<const char*>(text.data()), text.size());
  return length == text.size() ? 0 : (length / 8 + 1) * 8;
}

/// Of the records of perf whose size is known.
uint64_t user_content_bytes(uint32_t type, Bytes record) {
  // Tools/lib/perf event.h, perf_record_time_conv: with and without cap_user_time_short.
  constexpr uint64_t kShortConversion = 32, kConversion = 56;
  if (type == kRecordTimeConv) return record.size() < kConversion ? kShortConversion : kConversion;
  if (type != kRecordIdIndex) return 0;
  constexpr uint64_t kEntry = 32, kGuestEntry = 16;  // perf_record_id_index: the guests' part follows all entries, if there is one
  const uint64_t count = Cursor(record.subspan(kRecordHeaderBytes)).u64();
  if (count > record.size() / kEntry) return 0;
  const uint64_t content = kRecordHeaderBytes + 8 + count * kEntry;
  return content + count * kGuestEntry == record.size() ? record.size() : content;
}

}  // namespace

uint64_t content_bytes(Bytes record) {
  const uint32_t type = read_record_header(record).type;
  if (type >= kRecordUserStart) return user_content_bytes(type, record);
  const uint64_t fixed = kRecordHeaderBytes + fixed_body_bytes(type);
  if (fixed > record.size()) return 0;
  Cursor body(record.subspan(static_cast<size_t>(fixed)));
  switch (type) {
    case kRecordMmap:
    case kRecordMmap2:
    case kRecordComm:
    case kRecordKsymbol:
    case kRecordCgroup: {
      const uint64_t text = text_bytes(body);
      return text == 0 ? 0 : fixed + text;
    }
    case kRecordTextPoke: {
      Cursor lengths(record.subspan(kRecordHeaderBytes + 8));
      const uint64_t code = uint64_t{lengths.u16()} + lengths.u16();
      return (fixed + code + 7) / 8 * 8;
    }
    case kRecordNamespaces:
    case kRecordCallchainDeferred: {
      const uint64_t each = type == kRecordNamespaces ? 16 : 8;
      const uint64_t count = Cursor(record.subspan(kRecordHeaderBytes + 8)).u64();
      return count > body.remaining() / each ? 0 : fixed + count * each;
    }
    case kRecordFork:
    case kRecordExit:
    case kRecordLost:
    case kRecordLostSamples:
    case kRecordThrottle:
    case kRecordUnthrottle:
    case kRecordAux:
    case kRecordItraceStart:
    case kRecordSwitch:
    case kRecordSwitchCpuWide:
    case kRecordBpfEvent:
    case kRecordAuxOutputHwId:
      return fixed;
    default:
      return 0;
  }
}

Bytes without_excess(Bytes record, const EventAttr& attr, std::vector<std::byte>& scratch) {
  if (record.size() < kRecordHeaderBytes || !is_written_too_long(read_record_header(record).type)) return record;
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
