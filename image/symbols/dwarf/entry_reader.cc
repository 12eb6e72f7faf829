// Entries of debug information: see entry_reader.h.
#include "image/symbols/dwarf/entry_reader.h"

#include <dwarf.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace ptd {
namespace {

constexpr int kMostReferences = 16;                                 // from one entry to the next
constexpr unsigned kGnuDiscriminator = 0x2136;                      // DW_AT_GNU_discriminator, which dwarf.h of elfutils lacks
constexpr unsigned kGnuEntryView = 0x2138;                          // DW_AT_GNU_entry_view, likewise
constexpr auto kInherited = static_cast<size_t>(Fact::entry_view);  // the facts before this one

std::optional<Fact> fact_of(unsigned attribute) {
  switch (attribute) {
    case DW_AT_linkage_name:
      return Fact::linkage_name;
    case DW_AT_MIPS_linkage_name:
      return Fact::old_linkage_name;
    case DW_AT_name:
      return Fact::name;
    case DW_AT_decl_file:
      return Fact::decl_file;
    case DW_AT_decl_line:
      return Fact::decl_line;
    case DW_AT_decl_column:
      return Fact::decl_column;
    case DW_AT_call_file:
      return Fact::call_file;
    case DW_AT_call_line:
      return Fact::call_line;
    case DW_AT_call_column:
      return Fact::call_column;
    case kGnuDiscriminator:
      return Fact::discriminator;
    case kGnuEntryView:
      return Fact::entry_view;
    case DW_AT_ranges:
      return Fact::ranges;
    default:
      return std::nullopt;
  }
}

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
      case DW_FORM_flag_present:
        return;
      case DW_FORM_data1:
      case DW_FORM_ref1:
      case DW_FORM_flag:
      case DW_FORM_strx1:
      case DW_FORM_addrx1:
        return skip(1);
      case DW_FORM_data2:
      case DW_FORM_ref2:
      case DW_FORM_strx2:
      case DW_FORM_addrx2:
        return skip(2);
      case DW_FORM_strx3:
      case DW_FORM_addrx3:
        return skip(3);
      case DW_FORM_data4:
      case DW_FORM_ref4:
      case DW_FORM_ref_sup4:
      case DW_FORM_strx4:
      case DW_FORM_addrx4:
        return skip(4);
      case DW_FORM_data8:
      case DW_FORM_ref8:
      case DW_FORM_ref_sup8:
      case DW_FORM_ref_sig8:
        return skip(8);
      case DW_FORM_data16:
        return skip(16);
      case DW_FORM_addr:
        return skip(unit_.address_bytes);
      case DW_FORM_ref_addr:
        return skip(unit_.version == 2 ? unit_.address_bytes : unit_.offset_bytes);
      case DW_FORM_strp:
      case DW_FORM_line_strp:
      case DW_FORM_strp_sup:
      case DW_FORM_sec_offset:
      case DW_FORM_GNU_ref_alt:
      case DW_FORM_GNU_strp_alt:
        return skip(unit_.offset_bytes);
      case DW_FORM_string:
        return text();
      case DW_FORM_block1:
        return skip(number(1));
      case DW_FORM_block2:
        return skip(number(2));
      case DW_FORM_block4:
        return skip(number(4));
      case DW_FORM_block:
      case DW_FORM_exprloc:
        return skip(leb());
      default:
        (void)leb();  // udata, sdata, ref_udata, and the indexes strx, addrx, loclistx, rnglistx, GNU_addr_index, GNU_str_index
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
  if (dwarf_next_unit(dwarf_cu_getdwarf(unit.cu), offset, &next, &header_bytes, &version, nullptr, &address_bytes, &offset_bytes, nullptr,
                      nullptr) != 0)
    return {};
  const auto* const first = static_cast<const unsigned char*>(unit.addr) - inside;
  return {first, first + (next - offset), address_bytes, offset_bytes, version};
}

Entry read_entry(Dwarf_Die die, const UnitBytes& unit) {
  struct Pass {
    Entry entry;
    Dwarf_Attribute last{};
  } pass;
  const auto* const first = static_cast<const unsigned char*>(die.addr);
  if (first < unit.first || first >= unit.end) return {};
  const auto keep = [](Dwarf_Attribute* attribute, void* to) {
    auto& found = *static_cast<Pass*>(to);
    ++found.entry.attributes;
    if (attribute->code == DW_AT_sibling && found.entry.sibling.valp == nullptr) found.entry.sibling = *attribute;
    if (attribute->form != DW_FORM_implicit_const) found.last = *attribute;  // that has its value in the abbreviation
    return static_cast<int>(DWARF_CB_OK);
  };
  if (dwarf_getattrs(&die, keep, &pass, 0) != 1) return {nullptr, pass.entry.attributes};
  const Dwarf_Attribute& last = pass.last;
  ValueReader reader(last.valp != nullptr ? last.valp : first, unit);
  if (last.valp == nullptr) {
    (void)reader.leb();  // the entry is only the number of its abbreviation
  } else if (last.valp >= first && last.valp < unit.end) {
    reader.value(last.form);
  } else {
    return {nullptr, pass.entry.attributes};
  }
  pass.entry.end = reader.at();
  return pass.entry;
}

Facts FactReader::read(Dwarf_Die die) {
  constexpr size_t kMostKnown = 4096;
  if (known_.size() > kMostKnown) known_.clear();
  return resolve(die, kMostReferences);
}

// Returns the facts of an entry, `references` references away from which the chain ends.
Facts FactReader::resolve(Dwarf_Die die, int references) {
  struct Pass {
    Facts facts;
    Dwarf_Attribute abstract_origin{}, specification{};
  } pass;
  const auto keep = [](Dwarf_Attribute* attribute, void* to) {
    auto& found = *static_cast<Pass*>(to);
    Dwarf_Attribute* place = nullptr;
    if (attribute->code == DW_AT_abstract_origin) place = &found.abstract_origin;
    if (attribute->code == DW_AT_specification) place = &found.specification;
    if (const auto fact = fact_of(attribute->code)) place = &found.facts.attributes[static_cast<size_t>(*fact)];
    if (place != nullptr && place->valp == nullptr) *place = *attribute;
    return static_cast<int>(DWARF_CB_OK);
  };
  (void)dwarf_getattrs(&die, keep, &pass, 0);
  Facts& facts = pass.facts;
  Dwarf_Attribute* const reference = pass.abstract_origin.valp != nullptr ? &pass.abstract_origin : &pass.specification;
  Dwarf_Die next;
  if (references == 0 || reference->valp == nullptr || dwarf_formref_die(reference, &next) == nullptr) {
    facts.origin = dwarf_dieoffset(&die) | (dwarf_cu_getdwarf(die.cu) == dwarf_ ? 0 : kAlternateOffset);
    return facts;
  }
  const Facts& other = referred(next, references - 1);
  for (size_t i = 0; i < kInherited; ++i)
    if (facts.attributes[i].valp == nullptr) facts.attributes[i] = other.attributes[i];
  facts.origin = other.origin;
  return facts;
}

const Facts& FactReader::referred(Dwarf_Die die, int references) {
  if (const auto known = known_.find(die.addr); known != known_.end()) return known->second;
  count(die);
  const Facts facts = resolve(die, references);
  return known_.insert_or_assign(die.addr, facts).first->second;
}

// Counts an entry to which another refers. Such entries may overlap.
void FactReader::count(Dwarf_Die die) {
  if (limits_ == nullptr) return;
  if (other_ != die.cu) {
    Dwarf_Die unit;
    other_ = die.cu;
    other_bytes_ = {};
    if (dwarf_cu_die(die.cu, &unit, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) != nullptr) other_bytes_ = bytes_of_unit(unit);
  }
  const Entry entry = read_entry(die, other_bytes_);
  const uint64_t bytes = entry.end == nullptr ? 0 : static_cast<uint64_t>(entry.end - static_cast<const unsigned char*>(die.addr));
  limits_->spend(DebugLimits::Kind::attributes, entry.attributes);
  limits_->spend(DebugLimits::Kind::entry_bytes, bytes);
}

}  // namespace ptd
