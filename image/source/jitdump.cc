// Jitdump reader.
#include "image/source/jitdump.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "image/base/interrupt.h"
#include "image/base/mapped_file.h"

namespace ptd {
namespace {

constexpr uint32_t kMagic = 0x4A695444;  // "JiTD"
constexpr uint32_t kMagicSwapped = 0x4454694A;
constexpr uint64_t kArchTimestamp = 1;
constexpr uint64_t kHeaderBytes = 40, kRecordHeaderBytes = 16;
constexpr uint32_t kCodeLoad = 0, kCodeMove = 1, kCodeClose = 3;
constexpr size_t kMaxNameBytes = 4096;
constexpr uint64_t kSearchedBytes = 256ULL << 20;  // in all searches for the next record

bool is_user_code(const JitCode& code) { return code.size_bytes <= ~code.address && !is_kernel_half(Ip{code.address}); }

// Body of JIT_CODE_LOAD: pid, tid (u32), vma, code_addr, code_size, code_index (u64), name with NUL, code bytes.
bool parse_load(Bytes body, JitCode& code) {
  constexpr uint64_t kFixedBytes = 40;
  if (body.size() < kFixedBytes) return false;
  code.pid = number_at<uint32_t>(body, 0);
  code.tid = number_at<uint32_t>(body, 4);
  code.address = number_at<uint64_t>(body, 16);
  code.size_bytes = number_at<uint64_t>(body, 24);
  code.index = number_at<uint64_t>(body, 32);
  const Bytes rest = body.subspan(kFixedBytes);
  const auto* text = reinterpret_cast<const char*>(rest.data());
  const size_t length = rest.empty() ? 0 : strnlen(text, rest.size());
  if (length == rest.size()) return false;
  code.name.assign(text, std::min(length, kMaxNameBytes));
  const Bytes after_name = rest.subspan(length + 1);
  if (code.size_bytes == 0 || !is_user_code(code)) return false;
  if (after_name.empty()) return true;  // logged without bytes
  if (code.size_bytes > after_name.size()) return false;
  code.code = after_name.first(code.size_bytes);
  return true;
}

// Body of JIT_CODE_MOVE: pid, tid (u32), vma, old_code_addr, new_code_addr, code_size, code_index (u64).
bool parse_move(Bytes body, JitCode& code) {
  if (body.size() < 48) return false;
  code.move = true;
  code.pid = number_at<uint32_t>(body, 0);
  code.tid = number_at<uint32_t>(body, 4);
  code.old_address = number_at<uint64_t>(body, 16);
  code.address = number_at<uint64_t>(body, 24);
  code.size_bytes = number_at<uint64_t>(body, 32);
  code.index = number_at<uint64_t>(body, 40);
  return code.size_bytes != 0 && is_user_code(code);
}

}  // namespace

bool is_jitdump(Bytes bytes) { return bytes.size() >= kHeaderBytes && number_at<uint32_t>(bytes, 0) == kMagic; }

std::string jit_address_name(uint64_t address) {
  char name[32];
  return {name, static_cast<size_t>(std::snprintf(name, sizeof name, "code_%llx", static_cast<unsigned long long>(address)))};
}

void JitdumpSum::add(Bytes bytes) { sum_ = fnv1a(bytes, sum_); }

Result<JitdumpHeader> read_jitdump_header(Bytes bytes) {
  if (bytes.size() < kHeaderBytes) return Error{ErrorCode::bad_header, "jitdump: shorter than its header", 0};
  const auto magic = number_at<uint32_t>(bytes, 0);
  if (magic == kMagicSwapped) return Error{ErrorCode::unsupported_byte_order, "jitdump: written with the other byte order", 0};
  if (magic != kMagic) return Error{ErrorCode::bad_magic, "jitdump: bad magic", 0};
  JitdumpHeader header;
  header.version = number_at<uint32_t>(bytes, 4);
  header.size_bytes = number_at<uint32_t>(bytes, 8);
  if (header.version == 0 || header.version > 2) {
    return Error{ErrorCode::bad_version, "jitdump: unknown version " + std::to_string(header.version), 4};
  }
  if (header.size_bytes < kHeaderBytes || header.size_bytes > bytes.size())
    return Error{ErrorCode::bad_header, "jitdump: bad header size", 8};
  header.elf_machine = number_at<uint32_t>(bytes, 12);
  header.complete = number_at<uint32_t>(bytes, 16) == kCompleteJitdump;
  header.pid = number_at<uint32_t>(bytes, 20);
  header.timestamp = number_at<uint64_t>(bytes, 24);
  header.tsc_clock = (number_at<uint64_t>(bytes, 32) & kArchTimestamp) != 0;
  return header;
}

namespace {

/// Reads the records of one file.
class JitdumpReader {
 public:
  JitdumpReader(Bytes bytes, JitdumpResult& result, const std::function<void(const JitCode&)>& on_code)
      : bytes_(bytes), result_(result), on_code_(on_code) {}

  void run() {
    uint64_t at = result_.header.size_bytes;
    constexpr size_t kRecords = 1024;  // between two checks
    for (size_t records = 0; at < bytes_.size(); ++records) {
      if (records % kRecords == 0) check_interrupt();
      const uint64_t size = size_at(at);
      if (size == 0) {
        const uint64_t next = find_record(at + 1);
        result_.lost_bytes += next - at;
        if (next == bytes_.size()) result_.cut = true;
        add_damage({at, next - at, false, has_time_, last_time_});
        at = next;
        continue;
      }
      read_record(at, size);
      at += size;
    }
    if (result_.header.complete && !result_.closed && !result_.cut) {
      result_.cut = true;
      add_damage({at, 0, false, has_time_, last_time_});
    }
    result_.end_offset_bytes = at;
  }

 private:
  // The size of the record, or 0 if it is not plausible.
  [[nodiscard]] uint64_t size_at(uint64_t at) const {
    if (bytes_.size() - at < kRecordHeaderBytes) return 0;
    const uint64_t size = number_at<uint32_t>(bytes_, at + 4);
    return size < kRecordHeaderBytes || size > bytes_.size() - at ? 0 : size;
  }
  [[nodiscard]] Bytes body_at(uint64_t at, uint64_t size) const {
    return bytes_.subspan(at + kRecordHeaderBytes, size - kRecordHeaderBytes);
  }

  void read_record(uint64_t at, uint64_t size) {
    JitCode code;
    code.time = number_at<uint64_t>(bytes_, at + 8);
    ++result_.records;
    const auto type = number_at<uint32_t>(bytes_, at);
    if (type == kCodeClose) result_.closed = true;
    if (type == kCodeLoad || type == kCodeMove) {
      const Bytes body = body_at(at, size);
      if (!(type == kCodeLoad ? parse_load(body, code) : parse_move(body, code))) {
        ++result_.malformed;
        return add_damage({at, size, true, has_time_, has_time_ ? std::min(last_time_, code.time) : code.time});
      }
      on_code_(code);
    }
    has_time_ = true;
    last_time_ = code.time;
  }

  void add_damage(JitdumpDamage damage) {
    if (result_.damage.size() < kMaxJitdumpDamage) result_.damage.push_back(damage);
  }

  // Where a load follows whose fields agree with one another; the end of the file if none is found within the budget.
  uint64_t find_record(uint64_t from) {
    for (uint64_t at = from; at + kRecordHeaderBytes < bytes_.size(); ++at) {
      if (budget_ == 0) break;
      --budget_;
      if (number_at<uint32_t>(bytes_, at) == kCodeLoad && is_exact_load(at)) return at;
    }
    return bytes_.size();
  }

  bool is_exact_load(uint64_t at) {
    constexpr uint64_t kFixedBytes = 40;
    const uint64_t size = size_at(at);
    if (size <= kRecordHeaderBytes + kFixedBytes) return false;
    const Bytes body = body_at(at, size);
    const uint64_t code_bytes = number_at<uint64_t>(body, 24);
    const bool same_place = number_at<uint64_t>(body, 8) == number_at<uint64_t>(body, 16);
    if (!same_place || number_at<uint32_t>(body, 0) != result_.header.pid || code_bytes == 0 || code_bytes >= size) return false;
    if (has_time_ && number_at<uint64_t>(bytes_, at + 8) < last_time_) return false;
    // The name fills what the fixed part and the code leave.
    const uint64_t used = kFixedBytes + code_bytes;
    if (used >= body.size() || body.size() - used > kMaxNameBytes) return false;
    const uint64_t name_bytes = body.size() - used;
    budget_ -= std::min<uint64_t>(budget_, name_bytes);
    const auto* text = reinterpret_cast<const char*>(body.data() + kFixedBytes);
    JitCode code;
    return strnlen(text, name_bytes) == name_bytes - 1 && parse_load(body, code);
  }

  Bytes bytes_;
  JitdumpResult& result_;
  const std::function<void(const JitCode&)>& on_code_;
  uint64_t budget_ = kSearchedBytes;
  bool has_time_ = false;
  uint64_t last_time_ = 0;
};

}  // namespace

Result<JitdumpResult> read_jitdump(Bytes bytes, const std::function<void(const JitCode&)>& on_code) {
  const Result<JitdumpHeader> header = read_jitdump_header(bytes);
  if (!header) return header.error();
  JitdumpResult result;
  result.header = *header;
  JitdumpReader(bytes, result, on_code).run();
  return result;
}

}  // namespace ptd
