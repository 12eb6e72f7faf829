// end_of_entry(): see entry_end.h.
#include "image/symbols/dwarf/entry_end.h"

#include <dwarf.h>

#include <cstdint>
#include <cstring>

namespace ptd {
namespace {

/// Values of attributes, one after the other. After a read beyond the unit's end, at() is null.
class ValueReader {
 public:
  ValueReader(const unsigned char* at, const UnitBytes& unit) : at_(at), unit_(unit) {}
  [[nodiscard]] const unsigned char* at() const { return at_; }
  void skip(uint64_t bytes) { at_ = at_ != nullptr && bytes <= left() ? at_ + bytes : nullptr; }
  uint64_t leb() {
    uint64_t value = 0;
    for (unsigned shift = 0; at_ != nullptr; shift += 7) {
      if (left() == 0) break;
      const unsigned char byte = *at_++;
      if (shift < 64) value |= uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    at_ = nullptr;
    return 0;
  }
  uint64_t number(unsigned bytes) {
    uint64_t value = 0;
    const unsigned char* const from = at_;
    skip(bytes);
    if (at_ != nullptr) std::memcpy(&value, from, bytes);
    return value;
  }
  void text() {
    const void* const end = at_ == nullptr ? nullptr : std::memchr(at_, 0, left());
    at_ = end == nullptr ? nullptr : static_cast<const unsigned char*>(end) + 1;
  }
  /// [DWARF5] "Attribute Encodings"
  void value(uint64_t form) {
    while (form == DW_FORM_indirect) form = leb();
    switch (form) {
      case DW_FORM_flag_present: return;
      case DW_FORM_data1:
      case DW_FORM_ref1:
      case DW_FORM_flag:
      case DW_FORM_strx1:
      case DW_FORM_addrx1: return skip(1);
      case DW_FORM_data2:
      case DW_FORM_ref2:
      case DW_FORM_strx2:
      case DW_FORM_addrx2: return skip(2);
      case DW_FORM_strx3:
      case DW_FORM_addrx3: return skip(3);
      case DW_FORM_data4:
      case DW_FORM_ref4:
      case DW_FORM_ref_sup4:
      case DW_FORM_strx4:
      case DW_FORM_addrx4: return skip(4);
      case DW_FORM_data8:
      case DW_FORM_ref8:
      case DW_FORM_ref_sup8:
      case DW_FORM_ref_sig8: return skip(8);
      case DW_FORM_data16: return skip(16);
      case DW_FORM_addr: return skip(unit_.address_bytes);
      case DW_FORM_ref_addr: return skip(unit_.version == 2 ? unit_.address_bytes : unit_.offset_bytes);
      case DW_FORM_strp:
      case DW_FORM_line_strp:
      case DW_FORM_strp_sup:
      case DW_FORM_sec_offset:
      case DW_FORM_GNU_ref_alt:
      case DW_FORM_GNU_strp_alt: return skip(unit_.offset_bytes);
      case DW_FORM_string: return text();
      case DW_FORM_block1: return skip(number(1));
      case DW_FORM_block2: return skip(number(2));
      case DW_FORM_block4: return skip(number(4));
      case DW_FORM_block:
      case DW_FORM_exprloc: return skip(leb());
      default: (void)leb();  // udata, sdata, ref_udata, and the indexes strx, addrx, loclistx, rnglistx, GNU_addr_index, GNU_str_index
    }
  }

 private:
  [[nodiscard]] uint64_t left() const { return static_cast<uint64_t>(unit_.end - at_); }
  const unsigned char* at_;
  const UnitBytes& unit_;
};

}  // namespace

UnitBytes bytes_of_unit(Dwarf_Die unit) {
  Dwarf_Off next = 0;
  size_t header_bytes = 0;
  Dwarf_Half version = 0;
  uint8_t address_bytes = 0, offset_bytes = 0;
  const Dwarf_Off inside = dwarf_cuoffset(&unit), offset = dwarf_dieoffset(&unit) - inside;
  if (dwarf_next_unit(dwarf_cu_getdwarf(unit.cu), offset, &next, &header_bytes, &version, nullptr, &address_bytes, &offset_bytes, nullptr, nullptr) != 0)
    return {};
  const auto* const first = static_cast<const unsigned char*>(unit.addr) - inside;
  return {first, first + (next - offset), address_bytes, offset_bytes, version};
}

const unsigned char* end_of_entry(Dwarf_Die die, const UnitBytes& unit) {
  const auto* const first = static_cast<const unsigned char*>(die.addr);
  if (first < unit.first || first >= unit.end) return nullptr;
  Dwarf_Attribute last{};
  const auto keep = [](Dwarf_Attribute* attribute, void* to) {
    if (attribute->form != DW_FORM_implicit_const) *static_cast<Dwarf_Attribute*>(to) = *attribute;  // that has its value in the abbreviation
    return static_cast<int>(DWARF_CB_OK);
  };
  if (dwarf_getattrs(&die, keep, &last, 0) != 1) return nullptr;
  ValueReader reader(last.valp != nullptr ? last.valp : first, unit);
  if (last.valp == nullptr) {
    (void)reader.leb();  // the entry is only the number of its abbreviation
  } else if (last.valp >= first && last.valp < unit.end) {
    reader.value(last.form);
  } else {
    return nullptr;
  }
  return reader.at();
}

}  // namespace ptd
