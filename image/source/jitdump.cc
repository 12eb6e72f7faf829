// Jitdump reader.
#include "image/source/jitdump.h"

#include <algorithm>
#include <cstring>

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

Result<JitdumpResult> read_jitdump(Bytes bytes, const std::function<void(const JitCode&)>& on_code) {
  if (bytes.size() < kHeaderBytes) return Error{ErrorKind::file_format, "jitdump: shorter than its header", 0};
  const auto magic = read_at<uint32_t>(bytes, 0);
  if (magic == kMagicSwapped) return Error{ErrorKind::unsupported, "jitdump: written with the other byte order", 0};
  if (magic != kMagic) return Error{ErrorKind::file_format, "jitdump: bad magic", 0};
  JitdumpResult result;
  result.header.version = read_at<uint32_t>(bytes, 4);
  const auto header_size = read_at<uint32_t>(bytes, 8);
  if (result.header.version == 0 || result.header.version > 2) {
    return Error{ErrorKind::file_format, "jitdump: unknown version " + std::to_string(result.header.version), 4};
  }
  if (header_size < kHeaderBytes || header_size > bytes.size()) return Error{ErrorKind::file_format, "jitdump: bad header size", 8};
  result.header.elf_machine = read_at<uint32_t>(bytes, 12);
  result.header.pid = read_at<uint32_t>(bytes, 20);
  result.header.timestamp = read_at<uint64_t>(bytes, 24);
  result.header.tsc_clock = (read_at<uint64_t>(bytes, 32) & kArchTimestamp) != 0;
  uint64_t at = header_size;
  while (at < bytes.size() && !result.closed) {
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
