// SharedTables: see shared_tables.h.
#include "image/symbols/dwarf/shared_tables.h"

#include <dwarf.h>

#include <algorithm>
#include <utility>

#include "image/symbols/dwarf/span_reader.h"

namespace ptd {
namespace {

using Kind = DebugLimits::Kind;

// Returns the number of entries of a list of .debug_ranges.
uint64_t count_pairs(SpanReader list, unsigned address_bytes) {
  uint64_t entries = 1;
  for (; list.left() >= uint64_t{2} * address_bytes; ++entries) {
    const uint64_t first = list.number(address_bytes), end = list.number(address_bytes);
    if (first == 0 && end == 0) break;
  }
  return entries;
}

// As count_pairs(), for .debug_rnglists. A damaged list counts as if each byte were an entry.
uint64_t count_entries(SpanReader list, unsigned address_bytes) {
  const uint64_t bytes = list.left();
  uint64_t entries = 1;
  for (; list.left() != 0; ++entries) {
    const uint64_t kind = list.number(1);
    unsigned numbers = 0, addresses = 0;
    switch (kind) {
      case DW_RLE_base_addressx:
        numbers = 1;
        break;
      case DW_RLE_startx_endx:
      case DW_RLE_startx_length:
      case DW_RLE_offset_pair:
        numbers = 2;
        break;
      case DW_RLE_base_address:
        addresses = 1;
        break;
      case DW_RLE_start_end:
        addresses = 2;
        break;
      case DW_RLE_start_length:
        addresses = 1, numbers = 1;
        break;
      default:
        return entries;  // the end, or an entry at which libdw ends
    }
    list.skip(uint64_t{addresses} * address_bytes);
    for (; numbers != 0; --numbers) (void)list.uleb();
  }
  return list.ok() ? entries : bytes;
}

}  // namespace

// Measures a table, which ends with a code of 0. Damaged ones count as if each byte were an abbreviation with an attribute.
SharedTables::Table SharedTables::measure(uint64_t offset) const {
  Table table;
  if (offset >= sections_.abbreviations.size()) return table;
  SpanReader reader(sections_.abbreviations, sections_.big_endian);
  reader.skip(offset);
  while (reader.goes_on()) {
    (void)reader.uleb();  // the code
    (void)reader.uleb();  // the tag
    reader.skip(1);       // whether entries have children
    for (bool more = true; more && reader.ok();) {
      const auto attribute = static_cast<uint32_t>(reader.uleb()), form = static_cast<uint32_t>(reader.uleb());
      if (form == DW_FORM_implicit_const) (void)reader.uleb();
      more = attribute != 0 || form != 0;
      ++table.attributes;
    }
    ++table.abbreviations;
  }
  if (!reader.ok()) table = {sections_.abbreviations.size() - offset, sections_.abbreviations.size() - offset};
  return table;
}

bool SharedTables::spend_unit(Dwarf_CU* unit) {
  constexpr uint64_t kUnitCost = 8;  // a unit takes the memory of that many abbreviations
  Dwarf_Die die;
  Dwarf_Off offset = 0;
  if (dwarf_cu_die(unit, &die, nullptr, &offset, nullptr, nullptr, nullptr, nullptr) == nullptr) return !limits_.exceeded();
  const auto [known, is_new] = tables_.try_emplace(offset);
  if (is_new) known->second = measure(offset);
  return limits_.spend(Kind::abbreviations, known->second.abbreviations + kUnitCost) &&
         limits_.spend(Kind::attributes, known->second.attributes);
}

void SharedTables::enter(Dwarf_CU* unit) {
  if (std::exchange(unit_, unit) == unit) return;
  Dwarf_Die die;
  Dwarf_Half version = 0;
  uint8_t address_bytes = 0, offset_bytes = 0;
  base_ = 0;
  if (dwarf_cu_die(unit, &die, &version, nullptr, &address_bytes, &offset_bytes, nullptr, nullptr) == nullptr) return;
  has_pairs_ = version < 5;
  address_bytes_ = address_bytes;
  offset_bytes_ = offset_bytes;
  Dwarf_Attribute attribute;
  Dwarf_Word base = 0;
  if (dwarf_attr(&die, DW_AT_rnglists_base, &attribute) != nullptr && dwarf_formudata(&attribute, &base) == 0) base_ = base;
}

// Returns the number of entries of the range list at an offset.
uint64_t SharedTables::entries_at(uint64_t offset) const {
  SpanReader reader(has_pairs_ ? sections_.ranges : sections_.range_lists, sections_.big_endian);
  reader.skip(offset);
  return has_pairs_ ? count_pairs(reader, address_bytes_) : count_entries(reader, address_bytes_);
}

// The same of a range list by its number in the table of offsets at `base`.
uint64_t SharedTables::entries_of(uint64_t index, uint64_t base) const {
  SpanReader reader(has_pairs_ ? sections_.ranges : sections_.range_lists, sections_.big_endian);
  if (base > reader.left() || index > reader.left() / offset_bytes_) return 1;
  reader.skip(base + index * offset_bytes_);
  const uint64_t offset = reader.number(offset_bytes_);
  return reader.ok() ? entries_at(base + offset) : 1;
}

bool SharedTables::spend_ranges(const Dwarf_Attribute& list) {
  Dwarf_Attribute attribute = list;
  Dwarf_Word value = 0;
  enter(list.cu);
  uint64_t entries = 1;
  if (dwarf_formudata(&attribute, &value) == 0) {
    constexpr uint64_t kHeaderBytes = 12, kWideHeaderBytes = 20;
    if (list.form != DW_FORM_rnglistx) {
      entries = entries_at(value);
    } else if (base_ != 0) {
      entries = entries_of(value, base_);
    } else {  // libdw takes the end of the section's first header, if that is valid
      entries = std::max({entries_of(value, 0), entries_of(value, kHeaderBytes), entries_of(value, kWideHeaderBytes)});
    }
  }
  return limits_.spend(Kind::ranges, entries);
}

}  // namespace ptd
