// The event of announcements. See tools/perf/util/trace-event-info.c for the layout of a TRACING_DATA section.
#include "perfio/announce/announce_event.h"

#include <string>
#include <string_view>

#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

constexpr uint32_t kTracepointType = 2;

struct Field {
  std::string_view type, name;
  unsigned offset_bytes, size_bytes;
};
// ptd_announce_record, after the common fields.
constexpr Field kFields[] = {{"unsigned short", "common_type", 0, 2},
                             {"unsigned char", "common_flags", 2, 1},
                             {"unsigned char", "common_preempt_count", 3, 1},
                             {"int", "common_pid", 4, 4},
                             {"u32", "version", 8, 4},
                             {"u8", "kind", 12, 1},
                             {"u8", "phase", 13, 1},
                             {"u16", "flags", 14, 2},
                             {"u64", "instance", 16, 8},
                             {"u64", "seq", 24, 8},
                             {"u64", "mono_ns", 32, 8},
                             {"u64", "ticks", 40, 8},
                             {"u64", "address", 48, 8},
                             {"u64", "old_address", 56, 8},
                             {"u64", "size", 64, 8},
                             {"u32", "name_bytes", 72, 4},
                             {"u32", "file_bytes", 76, 4},
                             {"u32", "line_bytes", 80, 4},
                             {"u32", "code_bytes", 84, 4},
                             {"u32", "chunk", 88, 4},
                             {"u32", "chunks", 92, 4},
                             {"u32", "pid", 96, 4},
                             {"u32", "tid", 100, 4},
                             {"u32", "runtime", 104, 4},
                             {"__rel_loc u8[]", "data", 108, 4}};

std::string format_text() {
  std::string text = "name: ptd_code\nID: " + std::to_string(kAnnounceTracepoint) + "\nformat:\n";
  for (const Field& field : kFields) {
    text += "\tfield:" + std::string(field.type) + " " + std::string(field.name) + ";\toffset:" + std::to_string(field.offset_bytes) +
            ";\tsize:" + std::to_string(field.size_bytes) + ";\tsigned:" + (field.type == "int" ? "1" : "0") + ";\n";
    if (field.name == "common_pid") text += "\n";
  }
  return text +
         "\nprint fmt: \"kind=%u phase=%u seq=%llu address=0x%llx size=%llu\", REC->kind, REC->phase, REC->seq, REC->address, REC->size\n";
}

}  // namespace

bool is_announcement(const EventAttr& attr) {
  if (attr.type == kTracepointType && attr.name.empty()) return attr.config == kAnnounceTracepoint;  // the file of a killed recorder
  return attr.type == kTracepointType &&
         (attr.name.starts_with("user_events:ptd_code") || attr.name.starts_with("user_events_multi:ptd_code"));
}

EventAttr announce_attr(const EventAttr& like, uint64_t id) {
  EventAttr attr;
  attr.type = kTracepointType;
  attr.config = kAnnounceTracepoint;
  attr.flags = 1;  // disabled
  attr.name = "user_events:ptd_code";
  attr.sample_period = 1;
  attr.sample_type = (like.sample_type & (kSampleIp | kSampleTid | kSampleTime | kSampleCpu | kSampleId | kSampleIdentifier)) | kSampleRaw;
  attr.read_format = like.read_format;
  attr.sample_id_all = like.sample_id_all;
  attr.use_clockid = like.use_clockid;
  attr.clockid = like.clockid;
  attr.ids = {id};
  return attr;
}

std::vector<std::byte> announce_sample(int32_t tid, Bytes record) {
  constexpr size_t kAlign = 8, kSizeField = 4;  // of a sample's raw data, which follows its size
  std::vector<std::byte> raw;
  ByteWriter out(raw);
  out.u16(static_cast<uint16_t>(kAnnounceTracepoint)).u8(0).u8(0).i32(tid).bytes(record);
  return out.zeros((kAlign - (raw.size() + kSizeField) % kAlign) % kAlign), raw;
}

std::vector<std::byte> announce_tracing_data() {
  constexpr std::string_view kPage =
      "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
      "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  const auto text = [&out](std::string_view value) { out.bytes(std::as_bytes(std::span(value))).u8(0); };
  out.u8(23).u8(8).u8(68).bytes(std::as_bytes(std::span(std::string_view("tracing"))));
  text("0.6");
  out.u8(0).u8(8).u32(4096);  // little-endian, long, page
  text("header_page");
  out.u64(kPage.size()).bytes(std::as_bytes(std::span(kPage)));
  text("header_event");
  out.u64(0);
  out.u32(0);  // ftrace's own events
  out.u32(1);  // systems
  text("user_events");
  const std::string format = format_text();
  out.u32(1).u64(format.size()).bytes(std::as_bytes(std::span(std::string_view(format))));
  out.u32(0).u32(0).u64(0);  // kallsyms, printk formats, command lines
  return bytes;
}

}  // namespace ptd::perfio
