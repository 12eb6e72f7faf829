// The C API: code bytes, disassembly and symbols at a place.
#include <algorithm>
#include <array>
#include <string>

#include "capi/items.h"
#include "capi/message.h"
#include "ptdecode/code_view.h"
#include "ptdecode/disassembler.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"

using namespace ptd;

namespace ptd::capi {

namespace {

constexpr uint32_t kMostInstructions = 1U << 16;
constexpr size_t kMostVersions = 64;

/// A ptd_place that was checked.
struct CodePlace {
  std::shared_ptr<const OpenedRecording> recording;
  SpaceId space;
  Ip ip;
  Interval when;
  ExecMode mode = ExecMode::bits64;
};

ptd_code read_place(const ptd_recording* recording, const ptd_place* place, CodePlace& out, char** message) {
  out.recording = find(recording);
  if (!out.recording) return bad_handle(message, PTD_ERROR_INVALID_HANDLE);
  if (place == nullptr) return null_argument(message, "place is NULL");
  ptd_place given = PTD_INIT(ptd_place);
  if (!read_struct(place, given)) return wrong_size(message, "ptd_place has a size that no version had");
  if (given.mode > static_cast<uint32_t>(ExecMode::t32)) return bad_argument(message, "ptd_place.mode is not a ptd::ExecMode");
  out.ip = Ip{given.ip};
  out.space = space_at(SpaceId{given.space}, out.ip);
  out.when = {from_ns(given.time_ns, kTimeMin), from_ns(given.time_ns, kTimeMax)};
  if (given.mode != 0) {
    out.mode = static_cast<ExecMode>(given.mode);
  } else if (!out.recording->recording->streams().empty() && out.recording->recording->streams()[0].protocol != arm::Protocol::none) {
    out.mode = ExecMode::a64;
  }
  return PTD_OK;
}

/// Contiguous bytes at the place, at most `capacity`; `versions`: different contents of the first 15.
size_t fetch(const CodePlace& place, std::byte* out, size_t capacity, uint32_t& versions) {
  CodeView view(place.recording->recording->timeline());
  std::array<CodeCandidate, kMostVersions> found;
  size_t count = 0;
  versions = 0;
  do {
    const Ip ip = place.ip + count;
    if (ip < place.ip || is_kernel_half(ip) != is_kernel_half(place.ip)) break;
    const FetchResult result = view.fetch(place.space, ip, place.when, {}, found);
    const bool known = result.status == FetchStatus::ok || result.status == FetchStatus::too_many;
    if (count == 0) versions = result.status == FetchStatus::too_many ? kMostVersions + 1 : known ? result.count : 0;
    if (!known || result.count == 0 || found[0].bytes.empty()) break;
    const size_t size = std::min(found[0].bytes.size(), capacity - count);
    std::copy_n(found[0].bytes.begin(), size, out + count);
    count += size;
  } while (count < capacity);
  return count;
}

void add_hex(std::string& text, uint64_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
}

std::string disassemble(const CodePlace& place, uint32_t instructions) {
  constexpr size_t kPieceBytes = 4096, kLongest = 15;
  const Disassembler disassembler;
  std::string text;
  std::vector<std::byte> bytes(kPieceBytes);
  CodePlace at = place;
  Bytes rest;
  bool more = true;
  for (; instructions != 0; --instructions) {
    if (more && rest.size() < kLongest) {
      uint32_t versions = 0;
      const size_t size = fetch(at, bytes.data(), kPieceBytes, versions);
      more = size == kPieceBytes;
      rest = Bytes(bytes).first(size);
    }
    if (rest.empty()) break;
    const Insn insn = classify(rest, at.mode);
    const size_t length = insn.cls == InsnClass::bad ? 0 : insn.length_bytes;
    if (length == 0 || length > rest.size()) break;
    add_hex(text, at.ip.value, 16);
    text += '\t';
    for (const std::byte byte : rest.first(length)) add_hex(text, static_cast<uint64_t>(byte), 2);
    text += '\t';
    text += disassembler.text(rest.first(length), at.ip, at.mode);
    text += '\n';
    at.ip = at.ip + length;
    rest = rest.subspan(length);
  }
  return text;
}

/// The last context of the process before `when`, or its first one.
SpaceId space_of(const ContextTrack& contexts, int32_t pid, TimeNs when) {
  const Context leader = contexts.at_thread(pid, when);
  if (leader.pid == pid && leader.space != kNoSpace) return leader.space;
  SpaceId space = kNoSpace;
  TimeNs best{};
  bool before = false;
  const auto consider = [&](const ContextTrack::Switch& change) {
    if (change.to.pid != pid || change.to.space == kNoSpace) return;
    const bool is_before = change.time <= when;
    if (space != kNoSpace && (before != is_before ? before : before ? change.time < best : best <= change.time)) return;
    space = change.to.space;
    best = change.time;
    before = is_before;
  };
  for (const int32_t tid : contexts.threads()) {
    for (const ContextTrack::Switch& change : contexts.thread_changes(tid)) consider(change);
  }
  for (const int32_t cpu : contexts.cpus()) {
    for (const ContextTrack::Switch& change : contexts.switches(cpu)) consider(change);
  }
  return space;
}

}  // namespace

}  // namespace ptd::capi

ptd_code ptd_space_of(const ptd_recording* recording, int32_t pid, int64_t time_ns, uint32_t* out) {
  return capi::guarded(nullptr, [&]() -> ptd_code {
    if (out == nullptr) return PTD_ERROR_NULL_ARGUMENT;
    *out = PTD_NONE;
    const auto opened = capi::find(recording);
    if (!opened) return PTD_ERROR_INVALID_HANDLE;
    if (pid <= 0) return PTD_OK;
    const SpaceId space = capi::space_of(opened->recording->contexts(), pid, capi::from_ns(time_ns, kTimeMax));
    if (space != kNoSpace) *out = space.value;
    return PTD_OK;
  });
}

ptd_code ptd_code_at(const ptd_recording* recording, const ptd_place* place, uint8_t* bytes, size_t capacity, size_t* count,
                     uint32_t* versions, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (count == nullptr || (bytes == nullptr && capacity != 0)) return capi::null_argument(message, "ptd_code_at: bytes or count is NULL");
    *count = 0;
    if (versions != nullptr) *versions = 0;
    capi::CodePlace at;
    if (const ptd_code code = capi::read_place(recording, place, at, message); code != PTD_OK) return code;
    uint32_t found = 0;
    *count = capi::fetch(at, reinterpret_cast<std::byte*>(bytes), capacity, found);
    if (versions != nullptr) *versions = found;
    if (const auto error = at.recording->shrunk_error(false)) {
      *count = 0;
      return capi::fail(message, *error);
    }
    return PTD_OK;
  });
}

ptd_code ptd_disassemble(const ptd_recording* recording, const ptd_place* place, uint32_t instructions, char** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_disassemble: out is NULL");
    *out = nullptr;
    capi::CodePlace at;
    if (const ptd_code code = capi::read_place(recording, place, at, message); code != PTD_OK) return code;
    const std::string text = capi::disassemble(at, std::min(instructions, capi::kMostInstructions));
    if (const auto error = at.recording->shrunk_error(false)) return capi::fail(message, *error);
    *out = capi::copy_text(text);
    return *out == nullptr ? capi::out_of_memory(message) : PTD_OK;
  });
}

ptd_code ptd_symbol_at(const ptd_recording* recording, const ptd_place* place, ptd_symbol* out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_symbol_at: out is NULL");
    if (!capi::is_struct_size(out->size, sizeof(ptd_symbol))) return capi::wrong_size(message, "ptd_symbol has a size that no version had");
    capi::CodePlace at;
    if (const ptd_code code = capi::read_place(recording, place, at, message); code != PTD_OK) return code;
    const Symbolizer& symbolizer = at.recording->recording->symbolizer();
    const TimeNs when = at.when.first == at.when.last ? at.when.first : kTimeMax;
    const std::optional<Symbol> symbol = symbolizer.find(at.space, at.ip, when);
    const SourcePlace source = symbolizer.source_at(at.space, at.ip, when);
    if (const auto error = at.recording->shrunk_error(false)) return capi::fail(message, *error);
    capi::StringPool& strings = at.recording->strings;
    out->name = strings.keep(symbol ? symbol->name : "");
    out->module = strings.keep(symbol ? symbol->module : "");
    out->offset_bytes = symbol ? symbol->offset_bytes : 0;
    out->start = symbol ? symbol->start.value : 0;
    out->size_bytes = symbol ? symbol->size_bytes : 0;
    out->file = strings.keep(source.frames.empty() ? "" : source.frames.front().file);
    out->line = source.frames.empty() ? 0 : source.frames.front().line;
    out->reserved = 0;
    return PTD_OK;
  });
}
