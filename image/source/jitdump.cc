// Jitdump reader.
#include "image/source/jitdump.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "image/base/interrupt.h"

namespace ptd {
namespace {

constexpr uint32_t kMagic = 0x4A695444;  // "JiTD"
constexpr uint32_t kMagicSwapped = 0x4454694A;
constexpr uint64_t kArchTimestamp = 1;
constexpr uint64_t kHeaderBytes = 40, kRecordHeaderBytes = 16;
constexpr uint32_t kCodeLoad = 0, kCodeMove = 1, kCodeClose = 3;
constexpr size_t kMaxNameBytes = 4096;

template <class T>
T read_at(Bytes bytes, uint64_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Body of JIT_CODE_LOAD: pid, tid (u32), vma, code_addr, code_size, code_index (u64), name with NUL, code bytes.
bool parse_load(Bytes body, JitCode& code) {
  constexpr uint64_t kFixedBytes = 40;
  if (body.size() < kFixedBytes) return false;
  code.pid = read_at<uint32_t>(body, 0);
  code.tid = read_at<uint32_t>(body, 4);
  code.address = read_at<uint64_t>(body, 16);
  code.size_bytes = read_at<uint64_t>(body, 24);
  code.index = read_at<uint64_t>(body, 32);
  const Bytes rest = body.subspan(kFixedBytes);
  const auto* text = reinterpret_cast<const char*>(rest.data());
  const size_t length = rest.empty() ? 0 : strnlen(text, rest.size());
  if (length == rest.size()) return false;
  code.name.assign(text, std::min(length, kMaxNameBytes));
  const Bytes after_name = rest.subspan(length + 1);
  if (after_name.empty()) return true;  // logged without bytes
  if (code.size_bytes > after_name.size()) return false;
  code.code = after_name.first(code.size_bytes);
  return true;
}

// Body of JIT_CODE_MOVE: pid, tid (u32), vma, old_code_addr, new_code_addr, code_size, code_index (u64).
bool parse_move(Bytes body, JitCode& code) {
  if (body.size() < 48) return false;
  code.move = true;
  code.pid = read_at<uint32_t>(body, 0);
  code.tid = read_at<uint32_t>(body, 4);
  code.old_address = read_at<uint64_t>(body, 16);
  code.address = read_at<uint64_t>(body, 24);
  code.size_bytes = read_at<uint64_t>(body, 32);
  code.index = read_at<uint64_t>(body, 40);
  return true;
}

}  // namespace

bool is_jitdump(Bytes bytes) { return bytes.size() >= kHeaderBytes && read_at<uint32_t>(bytes, 0) == kMagic; }

std::string jit_address_name(uint64_t address) {
  char name[32];
  return {name, static_cast<size_t>(std::snprintf(name, sizeof name, "code_%llx", static_cast<unsigned long long>(address)))};
}

bool is_jitdump_path(const std::string& path) {
  constexpr std::string_view kPrefix = "jit-", kSuffix = ".dump";
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.size() > kPrefix.size() + kSuffix.size() && name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         std::all_of(name.begin() + kPrefix.size(), name.end() - kSuffix.size(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<JitdumpHeader> read_jitdump_header(Bytes bytes) {
  if (bytes.size() < kHeaderBytes) return Error{ErrorCode::bad_header, "jitdump: shorter than its header", 0};
  const auto magic = read_at<uint32_t>(bytes, 0);
  if (magic == kMagicSwapped) return Error{ErrorCode::unsupported_byte_order, "jitdump: written with the other byte order", 0};
  if (magic != kMagic) return Error{ErrorCode::bad_magic, "jitdump: bad magic", 0};
  JitdumpHeader header;
  header.version = read_at<uint32_t>(bytes, 4);
  header.size_bytes = read_at<uint32_t>(bytes, 8);
  if (header.version == 0 || header.version > 2) {
    return Error{ErrorCode::bad_version, "jitdump: unknown version " + std::to_string(header.version), 4};
  }
  if (header.size_bytes < kHeaderBytes || header.size_bytes > bytes.size())
    return Error{ErrorCode::bad_header, "jitdump: bad header size", 8};
  header.elf_machine = read_at<uint32_t>(bytes, 12);
  header.complete = read_at<uint32_t>(bytes, 16) == kCompleteJitdump;
  header.pid = read_at<uint32_t>(bytes, 20);
  header.timestamp = read_at<uint64_t>(bytes, 24);
  header.tsc_clock = (read_at<uint64_t>(bytes, 32) & kArchTimestamp) != 0;
  return header;
}

Result<JitdumpResult> read_jitdump(Bytes bytes, const std::function<void(const JitCode&)>& on_code) {
  const Result<JitdumpHeader> header = read_jitdump_header(bytes);
  if (!header) return header.error();
  JitdumpResult result;
  result.header = *header;
  uint64_t at = header->size_bytes;
  constexpr size_t kRecords = 1024;  // between two checks
  for (size_t records = 0; at < bytes.size() && !result.closed; ++records) {
    if (records % kRecords == 0) check_interrupt();
    const uint64_t left = bytes.size() - at;
    const uint64_t size = left < kRecordHeaderBytes ? 0 : read_at<uint32_t>(bytes, at + 4);
    if (size < kRecordHeaderBytes || size > left) {
      result.cut = true;
      break;
    }
    const auto type = read_at<uint32_t>(bytes, at);
    const Bytes body = bytes.subspan(at + kRecordHeaderBytes, size - kRecordHeaderBytes);
    JitCode code;
    code.time = read_at<uint64_t>(bytes, at + 8);
    ++result.records;
    if (type == kCodeLoad || type == kCodeMove) {
      if (type == kCodeLoad ? parse_load(body, code) : parse_move(body, code)) {
        on_code(code);
      } else {
        ++result.skipped;
      }
    } else if (type == kCodeClose) {
      result.closed = true;
    } else {
      ++result.skipped;
    }
    at += size;
  }
  result.end_offset_bytes = at;
  return result;
}

}  // namespace ptd
