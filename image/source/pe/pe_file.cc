// PE images. Field offsets are those of [PE], "COFF File Header", "Optional Header", "Section Table", "The .reloc Section".
#include "image/source/pe/pe_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <tuple>

#include "image/base/mapped_file.h"
#include "image/placed_name.h"
#include "image/source/code_bytes.h"
#include "image/source/elf_file.h"

namespace ptd {
namespace {

constexpr uint16_t kMachineAmd64 = 0x8664, kMachineI386 = 0x14c;
constexpr uint16_t kRelocsStripped = 1;
constexpr uint16_t kMagic32 = 0x10b, kMagic64 = 0x20b;
constexpr uint32_t kExports = 0, kExceptions = 3, kBaseRelocations = 5, kMostDirectories = 16;
constexpr uint32_t kExecutable = 0x2000'0000;
constexpr uint64_t kFileHeaderBytes = 24, kSectionHeaderBytes = 40, kCoffSymbolBytes = 18;  // the first with the signature
constexpr uint64_t kExportHeaderBytes = 40, kMostExports = 1U << 16;                        // ordinals have 16 bits
constexpr uint32_t kImagePageBytes = 4096, kSectorBytes = 512;

Bytes part_of(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

Error damaged(const std::string& what) { return Error{ErrorCode::contradictory_record, what, 0}; }
Error cut(const std::string& what) { return Error{ErrorCode::truncated, what, 0}; }
Error too_large() { return Error{ErrorCode::too_large, "has more code to relocate than the limit of all modules", 0}; }

std::string text_of(Bytes bytes) {
  const size_t most = std::min<uint64_t>(bytes.size(), kMaxSymbolNameBytes);
  const char* text = reinterpret_cast<const char*>(bytes.data());
  return most == 0 ? std::string() : std::string(text, strnlen(text, most));
}

}  // namespace

Result<std::shared_ptr<const PeFile>> PeFile::open(std::shared_ptr<const MappedFile> file) {
  std::shared_ptr<PeFile> opened(new PeFile());
  opened->file_ = std::move(file);
  if (Status status = opened->read_headers(); !status.ok()) return status.error();
  return std::shared_ptr<const PeFile>(std::move(opened));
}

Status PeFile::read_headers() {
  const Bytes bytes = file_->bytes();
  const uint64_t pe = number_at<uint32_t>(bytes, 0x3c);
  if (number_at<uint16_t>(bytes, 0) != 0x5a4d || number_at<uint32_t>(bytes, pe) != 0x4550)
    return Error{ErrorCode::bad_magic, "is not a PE file", 0};
  const auto machine = number_at<uint16_t>(bytes, pe + 4);
  const uint64_t optional = pe + kFileHeaderBytes, optional_bytes = number_at<uint16_t>(bytes, pe + 20);
  const Bytes header = part_of(bytes, optional, optional_bytes);
  const auto magic = number_at<uint16_t>(header, 0);
  is_64bit_ = magic == kMagic64;
  if (header.empty()) return cut("ends within its headers");
  if (!(machine == kMachineAmd64 && magic == kMagic64) && !(machine == kMachineI386 && magic == kMagic32))
    return Error{ErrorCode::unsupported, "is a PE file of neither x86-64 nor i386", 0};
  const uint64_t directories = is_64bit_ ? 112 : 96;
  if (header.size() < directories) return damaged("has an optional header that is too short");
  timestamp_ = number_at<uint32_t>(bytes, pe + 8);
  coff_symbols_ = number_at<uint32_t>(bytes, pe + 12);
  coff_count_ = number_at<uint32_t>(bytes, pe + 16);
  relocs_stripped_ = (number_at<uint16_t>(bytes, pe + 22) & kRelocsStripped) != 0;
  image_base_ = is_64bit_ ? number_at<uint64_t>(header, 24) : number_at<uint32_t>(header, 28);
  entry_ = number_at<uint32_t>(header, 16);
  section_alignment_ = number_at<uint32_t>(header, 32);
  image_bytes_ = number_at<uint32_t>(header, 56);
  header_bytes_ = number_at<uint32_t>(header, 60);
  const uint32_t count = std::min(number_at<uint32_t>(header, directories - 4), kMostDirectories);
  for (uint64_t i = 0; i < count && directories + 8 * (i + 1) <= header.size(); ++i)
    directories_.push_back({number_at<uint32_t>(header, directories + 8 * i), number_at<uint32_t>(header, directories + 8 * i + 4)});
  return read_sections(optional + optional_bytes, number_at<uint16_t>(bytes, pe + 6));
}

// Windows loads no file whose sections are not in order of their addresses.
Status PeFile::read_sections(uint64_t at, uint64_t count) {
  const Bytes bytes = file_->bytes(), table = part_of(bytes, at, count * kSectionHeaderBytes);
  if (table.size() != count * kSectionHeaderBytes) return cut("ends within its section table");
  uint64_t end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const Bytes entry = table.subspan(i * kSectionHeaderBytes, kSectionHeaderBytes);
    PeSection section;
    section.name = text_of(entry.first(8));
    const auto memory = number_at<uint32_t>(entry, 8), in_file = number_at<uint32_t>(entry, 16), flags = number_at<uint32_t>(entry, 36);
    section.address = number_at<uint32_t>(entry, 12);
    section.size_bytes = memory != 0 ? memory : in_file;
    section.file_offset_bytes = number_at<uint32_t>(entry, 20);
    section.file_size_bytes = section.file_offset_bytes == 0 ? 0 : std::min(in_file, section.size_bytes);
    section.executable = (flags & kExecutable) != 0;
    if (section.address < end) return damaged("has sections that overlap or are not in order");
    end = uint64_t{section.address} + section.size_bytes;
    if (end > image_bytes_) return damaged("has a section outside of its image");
    if (section.file_size_bytes != 0 && part_of(bytes, section.file_offset_bytes, section.file_size_bytes).empty())
      return cut("ends before the end of its section " + section.name);
    if (section.executable && section_alignment_ >= kImagePageBytes && section.file_offset_bytes % kSectorBytes != 0)
      return damaged("has a section of code whose place in the file is not aligned");
    sections_.push_back(std::move(section));
  }
  return {};
}

std::string PeFile::key() const {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%08x%x", timestamp_, image_bytes_);
  return text.data();
}

PeFile::Table PeFile::directory(uint32_t index) const { return index < directories_.size() ? directories_[index] : Table{}; }

// The section that begins at or before an RVA; it may end before it.
const PeSection* PeFile::section_of(uint64_t address) const {
  const auto after = std::upper_bound(sections_.begin(), sections_.end(), address,
                                      [](uint64_t value, const PeSection& each) { return value < each.address; });
  return after == sections_.begin() ? nullptr : &*std::prev(after);
}

Bytes PeFile::at(uint64_t address, uint64_t size_bytes) const {
  if (address < header_bytes_ && size_bytes <= header_bytes_ - address) return part_of(file_->bytes(), address, size_bytes);
  const PeSection* section = section_of(address);
  if (section == nullptr) return {};
  const uint64_t into = address - section->address;
  if (into >= section->file_size_bytes || size_bytes > section->file_size_bytes - into) return {};
  return part_of(file_->bytes(), section->file_offset_bytes + into, size_bytes);
}

const PeSection* PeFile::code_of(uint64_t address) const {
  const PeSection* section = section_of(address);
  return section != nullptr && section->executable && address - section->address < section->size_bytes ? section : nullptr;
}

// A name that ends with its section, or at the limit.
std::string PeFile::text_at(uint64_t address) const {
  const PeSection* section = section_of(address);
  if (section == nullptr || address - section->address >= section->file_size_bytes) return {};
  const uint64_t into = address - section->address;
  return text_of(file_->bytes().subspan(section->file_offset_bytes + into, section->file_size_bytes - into));
}

Result<std::vector<PeCode>> PeFile::code_at(uint64_t base, PeBudget& budget) const {
  Copies copies(sections_.size());
  if (base != image_base_) {
    if (Status status = relocate(base, copies, budget); !status.ok()) return status.error();
  }
  std::vector<PeCode> code;
  for (size_t i = 0; i < sections_.size(); ++i) {
    const PeSection& section = sections_[i];
    if (!section.executable || section.size_bytes == 0) continue;
    PeCode& piece = code.emplace_back(PeCode{section.address, section.size_bytes, {}});
    if (copies[i] != nullptr) {
      piece.bytes = {copies[i], Bytes(*copies[i])};
    } else {
      piece.bytes = piece_of(file_, section.file_offset_bytes, section.file_size_bytes);
    }
  }
  return code;
}

Status PeFile::relocate(uint64_t base, Copies& copies, PeBudget& budget) const {
  constexpr uint64_t kBlockHeaderBytes = 8;
  if (relocs_stripped_) return damaged("is linked for base " + hex_text(image_base_) + " alone: its base relocations are stripped");
  const Table table = directory(kBaseRelocations);
  if (table.size_bytes == 0) return {};
  const Bytes blocks = at(table.address, table.size_bytes);
  if (blocks.empty()) return damaged("has base relocations outside of its sections");
  if (blocks.size() > budget.table_bytes) return too_large();
  budget.table_bytes -= blocks.size();
  for (uint64_t block = 0; block < blocks.size();) {
    const Bytes rest = blocks.subspan(block);
    const auto page = number_at<uint32_t>(rest, 0), size = number_at<uint32_t>(rest, 4);
    if (size == 0 && std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; })) break;  // padding
    if (size < kBlockHeaderBytes || size % 2 != 0 || size > rest.size())
      return damaged("has base relocations whose sizes contradict each other");
    const Bytes entries = rest.subspan(kBlockHeaderBytes, size - kBlockHeaderBytes);
    if (Status status = relocate_block(entries, page, base - image_base_, copies, budget); !status.ok()) return status.error();
    block += size;
  }
  return {};
}

// Applies the entries of one page to the copies of executable sections. Those of data are only checked.
Status PeFile::relocate_block(Bytes entries, uint32_t page, uint64_t delta, Copies& copies, PeBudget& budget) const {
  constexpr unsigned kAbsolute = 0, kHighLow = 3, kDir64 = 10;
  for (uint64_t i = 0; i + 2 <= entries.size(); i += 2) {
    const auto entry = number_at<uint16_t>(entries, i);
    const unsigned type = entry >> 12;
    if (type == kAbsolute) continue;
    if (type != kHighLow && type != kDir64)
      return damaged("has a base relocation of type " + std::to_string(type) + ", which x86 does not have");
    const uint64_t address = uint64_t{page} + (entry & 0xfff), size = type == kDir64 ? 8 : 4;
    if (address + size > image_bytes_) return damaged("has a base relocation outside of its image");
    const PeSection* section = code_of(address);
    if (section == nullptr && code_of(address + size - 1) == nullptr) continue;
    if (section == nullptr) return damaged("has a base relocation that crosses the start of a section");
    const uint64_t into = address - section->address;
    if (into >= section->file_size_bytes) continue;  // zero bytes, which are not used as code
    if (size > section->file_size_bytes - into) return damaged("has a base relocation that crosses the end of a section");
    if (Status status = copy_section(*section, copies, budget); !status.ok()) return status;
    std::vector<std::byte>& copy = *copies[static_cast<size_t>(section - sections_.data())];
    uint64_t value = 0;
    std::memcpy(&value, copy.data() + into, size);
    value += delta;
    std::memcpy(copy.data() + into, &value, size);
  }
  return {};
}

Status PeFile::copy_section(const PeSection& section, Copies& copies, PeBudget& budget) const {
  auto& copy = copies[static_cast<size_t>(&section - sections_.data())];
  if (copy != nullptr) return {};
  if (section.file_size_bytes > budget.copy_bytes) return too_large();
  budget.copy_bytes -= section.file_size_bytes;
  const Bytes bytes = part_of(file_->bytes(), section.file_offset_bytes, section.file_size_bytes);
  copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {};
}

// Names that overlap much more than those of any linker are a hostile table.
struct PeFile::Symbols {
  std::vector<PeSymbol> list;
  size_t limit = 0;
  uint64_t name_bytes = 0;  // that may be read

  [[nodiscard]] bool is_full() const { return list.size() >= limit || name_bytes == 0; }
  void add(uint32_t address, std::string name, bool function) {
    name_bytes -= std::min<uint64_t>(name_bytes, name.size());
    list.push_back({address, std::move(name), function});
  }
};

void PeFile::add_coff_symbols(Symbols& symbols) const {
  constexpr uint8_t kExternal = 2, kStatic = 3;
  constexpr unsigned kFunction = 2;  // of the derived type
  const Bytes bytes = file_->bytes();
  if (coff_symbols_ == 0 || coff_symbols_ > bytes.size()) return;
  const uint64_t count = std::min<uint64_t>(coff_count_, (bytes.size() - coff_symbols_) / kCoffSymbolBytes);
  const Bytes names = bytes.subspan(coff_symbols_ + count * kCoffSymbolBytes);
  for (uint64_t i = 0; i < count && !symbols.is_full(); ++i) {
    const Bytes entry = bytes.subspan(coff_symbols_ + i * kCoffSymbolBytes, kCoffSymbolBytes);
    const auto section = number_at<int16_t>(entry, 12);
    const auto storage = number_at<uint8_t>(entry, 16);
    i += number_at<uint8_t>(entry, 17);  // auxiliary entries
    if (section <= 0 || static_cast<size_t>(section) > sections_.size() || (storage != kExternal && storage != kStatic)) continue;
    const uint64_t address = uint64_t{sections_[static_cast<size_t>(section) - 1].address} + number_at<uint32_t>(entry, 8);
    if (code_of(address) == nullptr) continue;
    const bool is_long = number_at<uint32_t>(entry, 0) == 0;
    const auto offset = number_at<uint32_t>(entry, 4);
    std::string name = !is_long ? text_of(entry.first(8)) : offset < names.size() ? text_of(names.subspan(offset)) : std::string();
    if (!is_64bit_ && name.starts_with('_')) name.erase(0, 1);
    if (name.empty() || name.starts_with('.')) continue;  // a section
    symbols.add(static_cast<uint32_t>(address), std::move(name), (number_at<uint16_t>(entry, 14) >> 4 & 3) == kFunction);
  }
}

void PeFile::add_exports(Symbols& symbols) const {
  const Bytes header = at(directory(kExports).address, kExportHeaderBytes);
  if (header.empty()) return;
  const uint64_t functions = number_at<uint32_t>(header, 20), named = number_at<uint32_t>(header, 24),
                 addresses = number_at<uint32_t>(header, 28), names = number_at<uint32_t>(header, 32),
                 ordinals = number_at<uint32_t>(header, 36);
  for (uint64_t i = 0; i < named && !symbols.is_full(); ++i) {
    const Bytes name = at(names + 4 * i, 4), ordinal = at(ordinals + 2 * i, 2);
    if (name.empty() || ordinal.empty()) return;  // the table ends early
    const uint64_t index = number_at<uint16_t>(ordinal, 0);
    if (index >= functions) continue;
    const auto address = number_at<uint32_t>(at(addresses + 4 * index, 4), 0);
    if (!is_exported_code(address)) continue;
    std::string text = text_at(number_at<uint32_t>(name, 0));
    if (!text.empty()) symbols.add(address, std::move(text), true);
  }
}

// Not another module's function, or data.
bool PeFile::is_exported_code(uint32_t address) const {
  const Table table = directory(kExports);
  return address - table.address >= table.size_bytes && code_of(address) != nullptr;
}

std::vector<uint32_t> PeFile::entries() const {
  std::vector<uint32_t> entries;
  if (code_of(entry_) != nullptr) entries.push_back(entry_);
  const Bytes header = at(directory(kExports).address, kExportHeaderBytes);
  const uint64_t count = number_at<uint32_t>(header, 20), addresses = number_at<uint32_t>(header, 28);
  for (uint64_t i = 0; i < count && i < kMostExports; ++i) {
    const Bytes entry = at(addresses + 4 * i, 4);
    if (entry.empty()) break;  // the table ends early
    if (is_exported_code(number_at<uint32_t>(entry, 0))) entries.push_back(number_at<uint32_t>(entry, 0));
  }
  return entries;
}

std::vector<PeSymbol> PeFile::symbols(size_t limit) const {
  Symbols read;
  read.limit = limit;
  read.name_bytes = most_name_bytes(file_->bytes().size(), 1);
  add_coff_symbols(read);
  add_exports(read);
  std::stable_sort(read.list.begin(), read.list.end(), [](const PeSymbol& a, const PeSymbol& b) {
    return std::tuple(a.address, !a.function) < std::tuple(b.address, !b.function);
  });
  std::vector<PeSymbol> unique;
  std::set<std::string_view> known;  // of one address
  for (size_t i = 0; i < read.list.size(); ++i) {
    if (i == 0 || read.list[i].address != read.list[i - 1].address) known.clear();
    if (known.insert(read.list[i].name).second) unique.push_back(read.list[i]);
  }
  return unique;
}

std::vector<PeFunction> PeFile::functions(size_t limit) const {
  constexpr uint64_t kEntryBytes = 12;
  constexpr unsigned kChained = 4;  // UNW_FLAG_CHAININFO
  std::vector<PeFunction> functions;
  const Table table = directory(kExceptions);
  if (!is_64bit_) return functions;
  for (uint64_t i = 0; i + kEntryBytes <= table.size_bytes && functions.size() < limit; i += kEntryBytes) {
    const Bytes entry = at(uint64_t{table.address} + i, kEntryBytes);
    if (entry.empty()) break;
    const auto first = number_at<uint32_t>(entry, 0), end = number_at<uint32_t>(entry, 4), unwind = number_at<uint32_t>(entry, 8);
    const PeSection* section = code_of(first);
    if (section == nullptr || end <= first || end - section->address > section->size_bytes) continue;
    const Bytes info = at(unwind, 1);
    functions.push_back({first, end, !info.empty() && (number_at<uint8_t>(info, 0) >> 3 & kChained) != 0});
  }
  std::stable_sort(functions.begin(), functions.end(), [](const PeFunction& a, const PeFunction& b) { return a.first < b.first; });
  return functions;
}

}  // namespace ptd
