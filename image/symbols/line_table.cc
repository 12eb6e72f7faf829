// Line table headers of DWARF 2 to 5: see line_table.h.
#include "image/symbols/line_table.h"

#include <dwarf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "image/symbols/dwarf/span_reader.h"

namespace ptd {
namespace {

using Kind = DebugLimits::Kind;
using Reader = SpanReader;

constexpr uint64_t kEntryBytes = 48;        // of one file or folder in libdw, next to its name
constexpr uint64_t kFewestDefineBytes = 7;  // smallest DW_LNE_define_file, which adds a file from within the program
constexpr uint64_t kMostFormats = 255;

class Header {
 public:
  Header(const LineSections& sections, const LineTableUnit& unit, DebugLimits& limits)
      : sections_(sections),
        table_(sections.lines, sections.big_endian),
        folder_(unit.folder_bytes),
        address_bytes_(unit.address_bytes),
        limits_(limits) {
    table_.skip(unit.offset_bytes);
  }

  LineTableUse spend() {
    using enum LineTableUse;
    Reader names;  // after the fixed part of the header
    const uint64_t size = read_fixed_part(names);
    if (!table_.ok() || !limits_.spend(Kind::line_bytes, size)) return invalid;
    const uint64_t program_bytes = table_.left(), rows = count_rows();
    if (!table_.ok()) return invalid;
    if (rows > kMostLineRows) return too_long;
    table_ = names;
    const bool is_spent = limits_.spend(Kind::line_rows, rows) && spend_names(size);
    return is_spent && table_.left() == program_bytes ? readable : invalid;
  }

 private:
  // Returns the size of the table, and places `names` at its names and table_ at its program.
  uint64_t read_fixed_part(Reader& names) {
    constexpr uint64_t kWide = 0xffffffff;
    uint64_t size = table_.number(4);
    if (size == kWide) {
      offset_size_ = 8;
      size = table_.number(8);
    }
    table_.keep(size);
    version_ = table_.number(2);
    if (version_ < 2 || version_ > 5) table_.fail();
    if (version_ >= 5) {
      address_bytes_ = table_.number(1);
      table_.skip(1);  // size of segment selectors
    }
    const uint64_t header = table_.number(offset_size_);
    Reader program = table_;
    program.skip(header);
    table_.skip(version_ >= 4 ? 5 : 4);  // minimum instruction length, operations, default of is_stmt, line base and range
    opcodes_ = table_.number(1);
    arguments_.fill(0);
    for (uint64_t i = 1; i < opcodes_; ++i) arguments_[i] = table_.number(1);
    names = table_;
    const bool is_ok = table_.ok() && program.ok();
    table_ = program;
    if (!is_ok) table_.fail();
    return size;
  }

  // Returns the number of rows, as libdw adds them. A length that libdw does not check and that is not that of the operands is invalid:
  // libdw would execute other opcodes.
  uint64_t count_rows() {
    uint64_t rows = 0;
    while (table_.ok() && table_.left() != 0 && rows <= kMostLineRows) {
      const uint64_t opcode = table_.number(1);
      if (opcode >= opcodes_ || opcode == DW_LNS_copy) {
        ++rows;
      } else if (opcode == 0) {
        rows += execute_extended() ? 1 : 0;
      } else if (opcode == DW_LNS_fixed_advance_pc) {
        table_.skip(2);
      } else {
        const bool has_operand = opcode == DW_LNS_advance_pc || opcode == DW_LNS_advance_line || opcode == DW_LNS_set_file ||
                                 opcode == DW_LNS_set_column || opcode == DW_LNS_set_isa;
        for (uint64_t i = opcode > DW_LNS_set_isa ? arguments_[opcode] : has_operand ? 1 : 0; i > 0; --i) (void)table_.uleb();
      }
    }
    return rows;
  }

  // Returns whether the opcode adds a row.
  bool execute_extended() {
    const uint64_t size = table_.uleb(), left = table_.left();
    if (size == 0 || size > left) return table_.fail(), false;
    const uint64_t opcode = table_.number(1);
    if (opcode == DW_LNE_set_address) {
      table_.skip(address_bytes_);
    } else if (opcode == DW_LNE_set_discriminator) {
      (void)table_.uleb();
    } else if (opcode == DW_LNE_define_file) {
      (void)table_.text();
      for (int i = 0; i < 3; ++i) (void)table_.uleb();
    } else if (opcode != DW_LNE_end_sequence) {
      table_.skip(size - 1);
    }
    if (table_.left() != left - size) table_.fail();
    return opcode == DW_LNE_end_sequence;
  }

  bool spend_names(uint64_t size) {
    if (version_ >= 5) {
      folders_.clear();
      spend_entries(false);
      spend_entries(true);
    } else {
      spend_old();
    }
    const uint64_t longest = folders_.empty() ? 0 : *std::max_element(folders_.begin(), folders_.end());
    return table_.ok() && limits_.spend(Kind::paths, size / kFewestDefineBytes * (longest + folder_));
  }

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
  uint64_t folder_ = 0, address_bytes_ = 0, version_ = 0, opcodes_ = 0;
  std::array<uint64_t, 256> arguments_{};  // numbers of operands of standard opcodes
  size_t offset_size_ = 4;
  std::vector<uint64_t> folders_;  // lengths
  DebugLimits& limits_;
};

}  // namespace

LineTableUse spend_line_table(const LineSections& sections, const LineTableUnit& unit, DebugLimits& limits) {
  return Header(sections, unit, limits).spend();
}

}  // namespace ptd
