// Extents of functions through libdw, which splits .eh_frame into its entries.
#include "image/symbols/dwarf/frame_extents.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "image/source/elf_handle.h"
#include "image/symbols/dwarf/eh_reader.h"

namespace ptd {
namespace {

constexpr size_t kMaxExtents = 4U << 20;
constexpr size_t kMaxExtentsBack = 64;  // over extents that overlap
constexpr size_t kMaxPartsAhead = 4096;
constexpr size_t kMaxSections = 1U << 16;
constexpr uint64_t kMaxExtentBytes = 1ULL << 32;

/// What a CIE says of its FDEs. `known`: its augmentation could be read. `table_encoding`: of the address of a table of call sites.
struct Common {
  bool known = false, has_data = false;
  uint8_t encoding = DW_EH_PE_absptr, table_encoding = DW_EH_PE_omit;
};

Common common_of(const Dwarf_CIE& cie, bool wide) {
  Common common;
  const std::string_view text(cie.augmentation == nullptr ? "" : cie.augmentation);
  common.known = text.empty();
  if (!text.starts_with('z') || cie.augmentation_data == nullptr) return common;
  common.has_data = true;
  EhReader in(cie.augmentation_data, cie.augmentation_data + cie.augmentation_data_size, wide);
  for (const char letter : text.substr(1)) {
    if (letter == 'R') common.encoding = in.byte();
    if (letter == 'R') common.known = !in.failed();
    if (letter == 'L') common.table_encoding = in.byte();
    if (letter == 'P') (void)in.encoded(in.byte());
    if (in.failed()) return common;
  }
  common.known = true;
  return common;
}

// Whether the instructions begin with a frame that other code made; DW_CFA_undefined is how _start ends the stack.
bool begins_inside(EhReader in) {
  while (!in.failed()) {
    const uint8_t code = in.byte();
    if (in.failed() || code >> 6 == 1) return false;  // DW_CFA_advance_loc
    switch (code) {
      case DW_CFA_nop:
        break;
      case DW_CFA_undefined:
      case DW_CFA_GNU_args_size:
        (void)in.uleb();
        break;
      case DW_CFA_set_loc:
      case DW_CFA_advance_loc1:
      case DW_CFA_advance_loc2:
      case DW_CFA_advance_loc4:
        return false;
      default:
        return true;
    }
  }
  return false;
}

// The address of a function's table of call sites, which `in` comes to, at address `field`; 0 if it has none.
uint64_t table_of(EhReader in, uint8_t encoding, uint64_t field) {
  const uint8_t base = encoding & 0x70;
  if (encoding == DW_EH_PE_omit || (encoding & DW_EH_PE_indirect) != 0 || (base != 0 && base != DW_EH_PE_pcrel)) return 0;
  const uint64_t value = in.encoded(encoding);
  return value == 0 || in.failed() ? 0 : value + (base == DW_EH_PE_pcrel ? field : 0);
}

ElfHandle open_elf(const ElfFile& file) {
  const Bytes bytes = file.file()->bytes();
  elf_version(EV_CURRENT);
  return ElfHandle(elf_memory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())), bytes.size()));
}

}  // namespace

bool has_landing_pads(const ElfFile& file) {
  const ElfHandle elf = open_elf(file);
  size_t names = 0;
  if (!elf || elf_getshdrstrndx(elf.get(), &names) != 0) return false;
  Elf_Scn* section = nullptr;
  for (size_t left = kMaxSections; left != 0 && (section = elf_nextscn(elf.get(), section)) != nullptr; --left) {
    GElf_Shdr header;
    const char* name = gelf_getshdr(section, &header) == nullptr ? nullptr : elf_strptr(elf.get(), names, header.sh_name);
    if (name != nullptr && header.sh_type != SHT_NOBITS && std::strncmp(name, ".gcc_except_table", 17) == 0) return true;
  }
  return false;
}

FrameExtents::FrameExtents(const ElfFile& file) {
  const ElfHandle elf = open_elf(file);
  size_t names = 0, ident_size = 0;
  const char* ident = elf ? elf_getident(elf.get(), &ident_size) : nullptr;
  if (ident == nullptr || ident_size < EI_NIDENT || ident[EI_DATA] != ELFDATA2LSB || elf_getshdrstrndx(elf.get(), &names) != 0) return;
  const bool wide = ident[EI_CLASS] == ELFCLASS64;
  std::vector<std::pair<uint64_t, uint64_t>> linkage;  // procedure linkage tables, each with one FDE
  Elf_Scn *section = nullptr, *frames = nullptr;
  GElf_Shdr header, frames_header{};
  while ((section = elf_nextscn(elf.get(), section)) != nullptr && linkage.size() < kMaxExtentsBack) {
    const char* name = gelf_getshdr(section, &header) == nullptr ? nullptr : elf_strptr(elf.get(), names, header.sh_name);
    if (name == nullptr || header.sh_type == SHT_NOBITS) continue;
    if (std::strncmp(name, ".plt", 4) == 0) linkage.emplace_back(header.sh_addr, header.sh_size);
    if (std::strcmp(name, ".eh_frame") == 0) frames = section, frames_header = header;
  }
  Elf_Data* data = frames == nullptr ? nullptr : elf_rawdata(frames, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return;
  std::unordered_map<uint64_t, Common> commons;  // by offset in the section
  Dwarf_Off next = 0;
  for (Dwarf_Off at = 0; extents_.size() < kMaxExtents; at = next) {
    Dwarf_CFI_Entry entry;
    const int result = dwarf_next_cfi(reinterpret_cast<const unsigned char*>(ident), data, true, at, &next, &entry);
    if (result > 0 || next <= at || next > data->d_size) break;
    if (result < 0) continue;
    if (dwarf_cfi_cie_p(&entry)) {
      commons[at] = common_of(entry.cie, wide);
      continue;
    }
    const auto common = commons.find(entry.fde.CIE_pointer);
    if (common == commons.end() || !common->second.known) continue;
    const uint8_t encoding = common->second.encoding, base = encoding & 0x70;
    if ((encoding & DW_EH_PE_indirect) != 0 || (base != 0 && base != DW_EH_PE_pcrel)) continue;
    EhReader in(entry.fde.start, entry.fde.end, wide);
    const uint64_t field = frames_header.sh_addr + static_cast<uint64_t>(entry.fde.start - static_cast<const uint8_t*>(data->d_buf));
    const uint64_t first = in.encoded(encoding) + (base == DW_EH_PE_pcrel ? field : 0), size = in.encoded(encoding & 0x0f);
    uint64_t table = 0;
    if (common->second.has_data) {
      const uint64_t data_size = in.uleb();
      table = table_of(in, common->second.table_encoding, field + static_cast<uint64_t>(in.at() - entry.fde.start));
      in.skip(data_size);
    }
    const auto end = file.code_section_end(first);
    const bool is_code = size != 0 && size <= kMaxExtentBytes && end && *end > first && size <= *end - first;
    const bool is_linkage =
        std::any_of(linkage.begin(), linkage.end(), [first](const auto& range) { return first - range.first < range.second; });
    if (in.failed() || !is_code || is_linkage) continue;
    extents_.push_back({first, size, !begins_inside(in)});
    if (table != 0) tables_.push_back({first, table});
  }
  sort();
}

FrameExtents::FrameExtents(std::vector<FrameSpan> spans) : extents_(std::move(spans)) { sort(); }

void FrameExtents::sort() {
  std::stable_sort(extents_.begin(), extents_.end(), [](const FrameSpan& a, const FrameSpan& b) { return a.start < b.start; });
}

std::optional<FrameSpan> FrameExtents::find(uint64_t address) const {
  auto at = std::upper_bound(extents_.begin(), extents_.end(), address,
                             [](uint64_t value, const FrameSpan& extent) { return value < extent.start; });
  for (size_t steps = 0; at != extents_.begin() && steps < kMaxExtentsBack; ++steps) {
    --at;
    if (address - at->start < at->size_bytes) return *at;
  }
  return std::nullopt;
}

std::optional<uint64_t> FrameExtents::next_function(uint64_t address) const {
  auto at = std::upper_bound(extents_.begin(), extents_.end(), address,
                             [](uint64_t value, const FrameSpan& extent) { return value < extent.start; });
  for (size_t steps = 0; at != extents_.end() && steps < kMaxPartsAhead; ++at, ++steps) {
    if (at->is_function) return at->start;
  }
  return std::nullopt;
}

}  // namespace ptd
