// Reads "name: X\nID: N\nformat:\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n ... print fmt:" ([Linux] tracing/events.rst).
#include "perfio/format/tracepoint_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace ptd::perfio {
namespace {

constexpr size_t kMaxFormatBytes = 1U << 16, kMaxSlots = 128, kMaxTextBytes = 256, kMaxShownBytes = 64;
constexpr size_t kMaxNameBytes = 128, kMaxFormats = 1U << 16;

bool number_behind(std::string_view line, std::string_view key, uint32_t& out) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return false;
  return std::from_chars(line.data() + at + key.size(), line.data() + line.size(), out).ec == std::errc();
}

SlotKind kind_of(std::string_view type, bool array, uint32_t size_bytes) {
  const bool characters = type.find("char") != std::string_view::npos;
  if (type.find("__data_loc") != std::string_view::npos) return characters ? SlotKind::dynamic_text : SlotKind::bytes;
  if (type.find("__rel_loc") != std::string_view::npos) return characters ? SlotKind::relative_text : SlotKind::bytes;
  if (array) return characters ? SlotKind::text : SlotKind::bytes;
  if (type.find('*') != std::string_view::npos) return SlotKind::address;
  return size_bytes == 1 || size_bytes == 2 || size_bytes == 4 || size_bytes == 8 ? SlotKind::number : SlotKind::bytes;
}

// "field:unsigned long addr;\toffset:8;\tsize:8;\tsigned:0;"
bool read_line(std::string_view line, TracepointSlot& slot) {
  constexpr std::string_view kField = "field:";
  const size_t at = line.find(kField), end = line.find(';');
  if (at == std::string_view::npos || end == std::string_view::npos || end < at) return false;
  std::string_view declared = line.substr(at + kField.size(), end - at - kField.size());
  const bool array = declared.ends_with(']');
  if (array) declared = declared.substr(0, declared.rfind('['));
  const size_t space = declared.find_last_of(" *");
  uint32_t is_signed = 0;
  if (space == std::string_view::npos || !number_behind(line, "offset:", slot.offset_bytes) ||
      !number_behind(line, "size:", slot.size_bytes))
    return false;
  (void)number_behind(line, "signed:", is_signed);
  slot.name = declared.substr(space + 1);
  slot.is_signed = is_signed != 0;
  slot.kind = kind_of(declared.substr(0, space + 1), array, slot.size_bytes);
  return !slot.name.empty() && slot.name.size() <= kMaxNameBytes;
}

std::string printable(Bytes bytes) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min(bytes.size(), kMaxTextBytes))) {
    if (byte == std::byte{0}) break;
    const auto c = static_cast<char>(byte);
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return text;
}

std::string hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes.first(std::min(bytes.size(), kMaxShownBytes))) {
    text += kDigits[static_cast<unsigned>(byte) >> 4];
    text += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace

TracepointFormats::TracepointFormats(Bytes tracing_data) : data_(tracing_data) {
  constexpr std::string_view kId = "\nID: ";
  const std::string_view all(reinterpret_cast<const char*>(data_.data()), data_.size());
  for (size_t at = all.find(kId); at != std::string_view::npos && ids_.size() < kMaxFormats; at = all.find(kId, at + 1)) {
    const char* const number = all.data() + at + kId.size();
    const char* const end = all.data() + all.size();
    uint64_t id = 0;
    const auto [rest, error] = std::from_chars(number, end, id);
    if (error == std::errc() && rest != end && *rest == '\n') ids_.try_emplace(id, at + 1);
  }
}

std::vector<TracepointSlot> TracepointFormats::find(uint64_t id) const {
  const auto place = ids_.find(id);
  if (place == ids_.end()) return {};
  const std::string_view all(reinterpret_cast<const char*>(data_.data()), data_.size());
  std::string_view text = all.substr(place->second, kMaxFormatBytes);
  text = text.substr(0, text.find("print fmt:"));
  std::vector<TracepointSlot> slots;
  while (!text.empty() && slots.size() < kMaxSlots) {
    const size_t end = std::min(text.find('\n'), text.size());
    TracepointSlot slot;
    if (read_line(text.substr(0, end), slot) && !slot.name.starts_with("common_")) slots.push_back(std::move(slot));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return slots;
}

SlotValue read_slot(const TracepointSlot& slot, Bytes payload) {
  if (slot.offset_bytes > payload.size() || slot.size_bytes > payload.size() - slot.offset_bytes) return {};
  const Bytes bytes = payload.subspan(slot.offset_bytes, slot.size_bytes);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min<size_t>(bytes.size(), sizeof value));
  switch (slot.kind) {
    case SlotKind::number: {
      if (!slot.is_signed) return {std::to_string(value), true};
      const unsigned unused_bits = 64 - 8 * slot.size_bytes;
      return {std::to_string(static_cast<int64_t>(value << unused_bits) >> unused_bits), true};
    }
    case SlotKind::address: {
      char text[20] = "0x";
      const auto end = std::to_chars(text + 2, text + sizeof text, value, 16);
      return {std::string(text, end.ptr), false};
    }
    case SlotKind::text:
      return {printable(bytes), false};
    case SlotKind::dynamic_text:
    case SlotKind::relative_text: {  // offset in the payload or after the field ([Linux] 5.17 on), and length: low and high half
      const uint64_t from = slot.kind == SlotKind::relative_text ? uint64_t{slot.offset_bytes} + slot.size_bytes : 0;
      const uint64_t offset = from + (value & 0xffff), size = value >> 16 & 0xffff;
      if (slot.size_bytes != 4 || offset > payload.size() || size > payload.size() - offset) return {};
      return {printable(payload.subspan(offset, size)), false};
    }
    case SlotKind::bytes:
      break;
  }
  return {hex(bytes), false};
}

}  // namespace ptd::perfio
