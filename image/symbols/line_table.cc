// Line table headers of DWARF 2 to 5: see line_table.h.
#include "image/symbols/line_table.h"

#include <dwarf.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace ptd {
namespace {

using Kind = DebugLimits::Kind;

constexpr uint64_t kEntryBytes = 48;         // of one file or folder in libdw, next to its name
constexpr uint64_t kFewestDefineBytes = 7;   // smallest DW_LNE_define_file, which adds a file from within the program
constexpr uint64_t kMostFormats = 255;

// Reads within a span. After the first read past the end, every value is 0 and ok() is false.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - at_; }

  void skip(uint64_t count) {
    if (count > left()) return fail();
    at_ += count;
  }
  void keep(uint64_t count) {
    if (count > left()) return fail();
    bytes_ = bytes_.first(at_ + count);
  }
  uint64_t number(size_t size) {
    if (size > left()) fail();
    uint64_t value = 0;
    for (size_t i = 0; ok_ && i < size; ++i) {
      const auto byte = static_cast<uint64_t>(bytes_[at_ + i]);
      value |= byte << 8 * (big_endian_ ? size - 1 - i : i);
    }
    at_ += ok_ ? size : 0;
    return value;
  }
  uint64_t uleb() {
    constexpr unsigned kMostShift = 63;
    uint64_t value = 0;
    for (unsigned shift = 0; ok_; shift += 7) {
      const uint64_t byte = number(1);
      if (shift <= kMostShift) value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    return value;
  }
  // Returns the length of a zero-terminated string.
  uint64_t text() {
    const void* end = left() == 0 ? nullptr : std::memchr(bytes_.data() + at_, 0, left());
    if (end == nullptr) return fail(), 0;
    const auto length = static_cast<uint64_t>(static_cast<const std::byte*>(end) - (bytes_.data() + at_));
    at_ += length + 1;
    return length;
  }
  void fail() {
    ok_ = false;
    at_ = bytes_.size();
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool big_endian_ = false, ok_ = true;
};

class Header {
 public:
  Header(const LineSections& sections, uint64_t folder_bytes, DebugLimits& limits)
      : sections_(sections), table_(sections.lines, sections.big_endian), folder_(folder_bytes), limits_(limits) {}

  bool spend(uint64_t offset_bytes) {
    table_.skip(offset_bytes);
    constexpr uint64_t kWide = 0xffffffff;
    uint64_t size = table_.number(4);
    if (size == kWide) {
      offset_size_ = 8;
      size = table_.number(8);
    }
    table_.keep(size);
    if (!table_.ok() || !limits_.spend(Kind::line_bytes, size)) return false;
    const uint64_t version = table_.number(2);
    if (version < 2 || version > 5) return false;
    table_.skip(version >= 5 ? 2 : 0);  // sizes of addresses and of segment selectors
    table_.skip(offset_size_);          // header length
    table_.skip(version >= 4 ? 5 : 4);  // minimum instruction length, operations, default of is_stmt, line base and range
    const uint64_t opcodes = table_.number(1);
    table_.skip(opcodes == 0 ? 0 : opcodes - 1);
    if (version >= 5) {
      folders_.clear();
      spend_entries(false);
      spend_entries(true);
    } else {
      spend_old();
    }
    const uint64_t longest = folders_.empty() ? 0 : *std::max_element(folders_.begin(), folders_.end());
    return table_.ok() && limits_.spend(Kind::paths, size / kFewestDefineBytes * (longest + folder_));
  }

 private:
  void entry(bool is_file, uint64_t length, uint64_t folder) {
    const uint64_t joined = is_file ? folder_ + (folder < folders_.size() ? folders_[folder] : 0) : 0;
    if (!limits_.spend(Kind::paths, joined + length + kEntryBytes)) table_.fail();
    if (!is_file) folders_.push_back(length);
  }

  void spend_old() {
    folders_.push_back(0);  // number 0 is the unit's folder
    while (table_.ok()) {
      const uint64_t length = table_.text();
      if (length == 0) break;
      entry(false, length, 0);
    }
    while (table_.ok()) {
      const uint64_t length = table_.text();
      if (length == 0) break;
      const uint64_t folder = table_.uleb();
      (void)table_.uleb();  // time
      (void)table_.uleb();  // size
      entry(true, length, folder);
    }
  }

  void spend_entries(bool is_file) {
    std::vector<std::pair<uint64_t, uint64_t>> formats(std::min(table_.number(1), kMostFormats));
    for (auto& [content, form] : formats) {
      content = table_.uleb();
      form = table_.uleb();
    }
    const uint64_t count = table_.uleb();
    if (formats.empty() && count != 0) return table_.fail();
    for (uint64_t i = 0; i < count && table_.ok(); ++i) {
      uint64_t length = 0, folder = 0;
      for (const auto& [content, form] : formats) {
        const uint64_t value = read(form);
        if (content == DW_LNCT_path) length = value;
        if (content == DW_LNCT_directory_index) folder = value;
      }
      if (table_.ok()) entry(is_file, length, folder);
    }
  }

  // Returns the value of a number, or the length of a string.
  uint64_t read(uint64_t form) {
    switch (form) {
      case DW_FORM_string:
        return table_.text();
      case DW_FORM_line_strp:
        return length_at(sections_.line_strings, table_.number(offset_size_));
      case DW_FORM_strp:
        return length_at(sections_.strings, table_.number(offset_size_));
      case DW_FORM_udata:
        return table_.uleb();
      case DW_FORM_data1:
        return table_.number(1);
      case DW_FORM_data2:
        return table_.number(2);
      case DW_FORM_data4:
        return table_.number(4);
      case DW_FORM_data8:
        return table_.number(8);
      case DW_FORM_data16:
        return table_.skip(16), 0;
      case DW_FORM_block:
        return table_.skip(table_.uleb()), 0;
      default:
        return table_.fail(), 0;
    }
  }

  // Limits the length to what is left of the limit, because every entry may refer to the same string.
  uint64_t length_at(std::span<const std::byte> strings, uint64_t offset) {
    if (offset >= strings.size()) return table_.fail(), 0;
    const auto rest = strings.subspan(offset);
    const size_t most = std::min<uint64_t>(rest.size(), limits_.left(Kind::paths) + 1);
    const void* end = std::memchr(rest.data(), 0, most);
    if (end != nullptr) return static_cast<uint64_t>(static_cast<const std::byte*>(end) - rest.data());
    if (most == rest.size()) table_.fail();
    return most;
  }

  const LineSections& sections_;
  Reader table_;
  uint64_t folder_ = 0;
  size_t offset_size_ = 4;
  std::vector<uint64_t> folders_;  // lengths
  DebugLimits& limits_;
};

}  // namespace

bool spend_line_table(const LineSections& sections, uint64_t offset_bytes, uint64_t folder_bytes, DebugLimits& limits) {
  return Header(sections, folder_bytes, limits).spend(offset_bytes);
}

}  // namespace ptd
