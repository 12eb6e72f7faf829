// ELF files through libelf.
#include "image/source/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "image/base/regular_file.h"
#include "image/base/system_error.h"
#include "image/placed_name.h"
#include "image/source/build_id.h"
#include "image/source/elf_handle.h"
#include "image/source/packed/unpack.h"

namespace ptd {
namespace {

constexpr size_t kMaxProgramHeaders = 1U << 16;
// Of files other than cores: each look-up walks all segments, and Linux runs programs with up to 1170.
constexpr size_t kMaxHeadersOfCode = 1U << 12;
constexpr size_t kMaxCodeSections = 1U << 10;
constexpr uint64_t kMaxNoteBytes = 1U << 20;
constexpr uint32_t kNoteBuildId = 3;  // NT_GNU_BUILD_ID
constexpr size_t kMaxLinkNameBytes = 4096;
constexpr size_t kMaxRelocations = 1U << 20;
constexpr uint64_t kMaxPltBytes = 16U << 20;
constexpr uint64_t kReadsPerByte = 4;  // of relocations, their symbols and linkage tables

// libelf takes a pointer to non-const; with ELF_C_READ semantics (elf_memory) it does not write to the image.
ElfHandle open_memory(Bytes bytes) {
  static const bool ready = elf_version(EV_CURRENT) != EV_NONE;
  if (!ready || bytes.size() < SELFMAG || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return nullptr;
  return ElfHandle(elf_memory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())), bytes.size()));
}

uint32_t read_u32(Bytes bytes, uint64_t offset) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Bytes clamp(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset >= bytes.size()) return {};
  return bytes.subspan(offset, std::min<uint64_t>(size, bytes.size() - offset));
}

// Returns the string at `offset` of a string table section, bounded by the section.
std::string_view string_at(const Elf_Data* strings, uint64_t offset) {
  if (strings == nullptr || strings->d_buf == nullptr || offset >= strings->d_size) return {};
  const char* text = static_cast<const char*>(strings->d_buf) + offset;
  return {text, strnlen(text, std::min<uint64_t>(strings->d_size - offset, kMaxSymbolNameBytes))};
}

Elf_Scn* find_symbol_section(Elf* elf, GElf_Shdr& header, GElf_Word type) {
  Elf_Scn* section = nullptr;
  while ((section = elf_nextscn(elf, section)) != nullptr) {
    if (gelf_getshdr(section, &header) != nullptr && header.sh_type == type) return section;
  }
  return nullptr;
}

bool wanted(const GElf_Sym& symbol) {
  const unsigned type = GELF_ST_TYPE(symbol.st_info);
  const bool constant = type == STT_NOTYPE && symbol.st_shndx == SHN_ABS;  // as linker scripts define
  return symbol.st_shndx != SHN_UNDEF && symbol.st_name != 0 && !constant &&
         (type == STT_FUNC || type == STT_NOTYPE || type == STT_GNU_IFUNC);
}

// Where the symbols of one name are; of several addresses, `first` is one.
struct NameAddresses {
  uint64_t first = 0;
  bool known = false, several = false;
  void add(uint64_t address) {
    several = several || (known && first != address);
    first = known ? first : address;
    known = true;
  }
};

// Sets ElfSymbol::place of each local symbol whose name has another address too: its source file ("a.c"), or its address ("0x1234") if the
// symbol table does not give one source file for it. All other symbols get none. A function and its cold part share a name. `files`: the
// name of the STT_FILE symbol before each symbol.
void set_places(std::vector<ElfSymbol>& symbols, const std::vector<std::string_view>& files) {
  std::unordered_map<std::string_view, NameAddresses> named;
  for (const ElfSymbol& symbol : symbols) {
    if (whole_function(symbol.name).size() == symbol.name.size()) named[symbol.name].add(symbol.address);
  }
  std::map<std::pair<std::string_view, std::string_view>, NameAddresses> in_file;
  std::vector<size_t> ambiguous;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const std::string_view name = whole_function(symbols[i].name);
    const auto known = named.find(name);
    if (symbols[i].global || known == named.end() || !known->second.several) continue;
    ambiguous.push_back(i);
    if (name.size() == symbols[i].name.size()) in_file[{name, files[i]}].add(symbols[i].address);
  }
  for (const size_t i : ambiguous) {
    const std::string_view file = files[i].substr(files[i].rfind('/') + 1);
    const auto found = in_file.find({whole_function(symbols[i].name), files[i]});
    const bool one = found != in_file.end() && !found->second.several;
    symbols[i].place = one && is_file_name(file) ? std::string(file) : hex_text(symbols[i].address);
  }
}

/// The versions of dynamic symbols that are not the default ([LSB] "Symbol Versioning": .gnu.version, .gnu.version_d).
class OldVersions {
 public:
  explicit OldVersions(Elf* elf) {
    GElf_Shdr header;
    Elf_Scn* definitions = find_symbol_section(elf, header, SHT_GNU_verdef);
    Elf_Data* data = definitions == nullptr ? nullptr : elf_getdata(definitions, nullptr);
    Elf_Scn* string_section = data == nullptr ? nullptr : elf_getscn(elf, header.sh_link);
    const Elf_Data* strings = string_section == nullptr ? nullptr : elf_getdata(string_section, nullptr);
    if (strings == nullptr) return;
    size_t at = 0;
    for (size_t i = 0; i < kMaxVersions; ++i) {
      GElf_Verdef definition;
      GElf_Verdaux name;
      if (at > kMaxOffset || gelf_getverdef(data, static_cast<int>(at), &definition) == nullptr) break;
      if (definition.vd_aux <= kMaxOffset && gelf_getverdaux(data, static_cast<int>(at + definition.vd_aux), &name) != nullptr)
        names_.emplace(definition.vd_ndx, string_at(strings, name.vda_name));
      if (definition.vd_next == 0) break;
      at += definition.vd_next;
    }
    Elf_Scn* numbers = find_symbol_section(elf, header, SHT_GNU_versym);
    numbers_ = numbers == nullptr ? nullptr : elf_getdata(numbers, nullptr);
  }
  /// Returns "@GLIBC_2.2.5" for the dynamic symbol with this index; empty if it has the default version or none.
  [[nodiscard]] std::string suffix(size_t symbol) const {
    constexpr uint16_t kHidden = 0x8000;
    GElf_Versym number = 0;
    if (numbers_ == nullptr || gelf_getversym(numbers_, static_cast<int>(symbol), &number) == nullptr || (number & kHidden) == 0) return {};
    const auto name = names_.find(number & ~kHidden);
    return name == names_.end() ? std::string() : "@" + std::string(name->second);
  }

 private:
  static constexpr size_t kMaxVersions = 1U << 12, kMaxOffset = 1U << 30;
  std::unordered_map<int, std::string_view> names_;  // by number
  Elf_Data* numbers_ = nullptr;
};

std::vector<ElfSymbol> symbols_of(Elf* elf, GElf_Word type, size_t limit) {
  std::vector<ElfSymbol> symbols;
  GElf_Shdr header;
  Elf_Scn* section = find_symbol_section(elf, header, type);
  if (section == nullptr || header.sh_entsize == 0) return symbols;
  Elf_Data* data = elf_getdata(section, nullptr);
  Elf_Scn* string_section = elf_getscn(elf, header.sh_link);
  const Elf_Data* strings = string_section == nullptr ? nullptr : elf_getdata(string_section, nullptr);
  GElf_Ehdr file_header;
  if (data == nullptr || strings == nullptr || gelf_getehdr(elf, &file_header) == nullptr) return symbols;
  const size_t count = std::min<size_t>({limit, data->d_size / header.sh_entsize, size_t{1} << 30});
  uint64_t name_bytes = 0;
  std::vector<std::string_view> files;  // of each symbol's source or object, which the symbol table names before its local symbols
  std::string_view file;
  std::optional<OldVersions> versions;
  if (type == SHT_DYNSYM) versions.emplace(elf);
  for (size_t i = 0; i < count; ++i) {
    GElf_Sym symbol;
    if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
    if (GELF_ST_TYPE(symbol.st_info) == STT_FILE) file = string_at(strings, symbol.st_name);
    if (!wanted(symbol)) continue;
    std::string name(string_at(strings, symbol.st_name));
    if (name.empty() || (family_of(file_header.e_machine) == CodeFamily::arm && is_mapping_symbol(name))) continue;
    if (versions) name += versions->suffix(i);
    const unsigned kind = GELF_ST_TYPE(symbol.st_info), binding = GELF_ST_BIND(symbol.st_info);
    if (kind == STT_GNU_IFUNC) name += kResolverMark;
    // [AAELF32] "Symbol values": bit 0 of a function's address says that it is Thumb code.
    const uint64_t address = symbol.st_value & ~uint64_t{file_header.e_machine == EM_ARM && kind != STT_NOTYPE};
    name_bytes += name.size();
    if (name_bytes > most_name_bytes(strings->d_size, count)) break;
    symbols.push_back({address, symbol.st_size, std::move(name), kind != STT_NOTYPE, binding != STB_LOCAL, {}, binding == STB_WEAK});
    files.push_back(file);
  }
  set_places(symbols, files);
  return symbols;
}

// Whether the dynamic linker stores a function's address for this relocation.
bool fills_slot(uint16_t machine, uint64_t type) {
  switch (machine) {
    case EM_X86_64:
      return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_IRELATIVE;
    case EM_386:
      return type == R_386_JMP_SLOT || type == R_386_GLOB_DAT || type == R_386_IRELATIVE;
    case EM_AARCH64:
      return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_IRELATIVE;
    default:
      return false;
  }
}

using SlotNames = std::unordered_map<uint64_t, std::string_view>;

// Returns the name of the indirect function whose resolver is at an address, else that of the first function there; `symbols` are sorted by
// address.
std::string_view resolved_at(const std::vector<ElfSymbol>& symbols, uint64_t address) {
  auto at = std::lower_bound(symbols.begin(), symbols.end(), address,
                             [](const ElfSymbol& symbol, uint64_t value) { return symbol.address < value; });
  std::string_view first;
  for (; at != symbols.end() && at->address == address; ++at) {
    const std::string_view name = at->name;
    if (name.ends_with(kResolverMark)) return name.substr(0, name.size() - kResolverMark.size());
    if (first.empty() && at->function) first = name;
  }
  return first;
}

// Takes a section's size from `budget`, which bounds what sections that overlap cost.
bool afford(uint64_t& budget, const GElf_Shdr& header) {
  if (header.sh_size > budget) return false;
  budget -= header.sh_size;
  return true;
}

// Adds the names that the relocations of one section give to the slots that they fill. The names live as long as `elf` and `symbols`.
void read_slots(Elf* elf, Elf_Scn* section, const GElf_Shdr& header, uint16_t machine, const std::vector<ElfSymbol>& known,
                SlotNames& slots, uint64_t& budget) {
  Elf_Scn* symbol_section = elf_getscn(elf, header.sh_link);
  GElf_Shdr symbol_header;
  if (header.sh_entsize == 0 || !afford(budget, header)) return;
  Elf_Data* data = elf_getdata(section, nullptr);
  if (data == nullptr) return;
  const bool has_symbols_header = symbol_section != nullptr && gelf_getshdr(symbol_section, &symbol_header) != nullptr;
  Elf_Data* symbols = has_symbols_header && afford(budget, symbol_header) ? elf_getdata(symbol_section, nullptr) : nullptr;
  const bool has_symbols = symbols != nullptr;
  Elf_Scn* string_section = has_symbols ? elf_getscn(elf, symbol_header.sh_link) : nullptr;
  const Elf_Data* strings = string_section == nullptr ? nullptr : elf_getdata(string_section, nullptr);
  const size_t count = std::min<size_t>(kMaxRelocations, data->d_size / header.sh_entsize);
  for (size_t i = 0; i < count && slots.size() < kMaxRelocations; ++i) {
    GElf_Rela entry{};
    GElf_Rel short_entry;
    if (header.sh_type == SHT_RELA) {
      if (gelf_getrela(data, static_cast<int>(i), &entry) == nullptr) return;
    } else {
      if (gelf_getrel(data, static_cast<int>(i), &short_entry) == nullptr) return;
      entry = {short_entry.r_offset, short_entry.r_info, 0};
    }
    if (!fills_slot(machine, GELF_R_TYPE(entry.r_info))) continue;
    GElf_Sym symbol;
    const uint64_t index = GELF_R_SYM(entry.r_info);
    if (index == 0) {
      const std::string_view name = resolved_at(known, static_cast<uint64_t>(entry.r_addend));
      if (!name.empty()) slots.emplace(entry.r_offset, name);
    } else if (has_symbols && index <= kMaxRelocations && gelf_getsym(symbols, static_cast<int>(index), &symbol) != nullptr) {
      if (const std::string_view name = string_at(strings, symbol.st_name); !name.empty()) slots.emplace(entry.r_offset, name);
    }
  }
}

// An entry of a procedure linkage table: where it begins in its section, and the address of the slot through which it jumps.
struct PltEntry {
  size_t at = 0, size_bytes = 0;
  uint64_t slot = 0;
};

// jmp *slot(%rip), jmp *slot or jmp *slot(%ebx) (FF 25, FF A3). All entries of a table have one size; the section header does not always
// contain it.
std::vector<PltEntry> x86_entries(Bytes code, uint64_t address, uint16_t machine, uint64_t got) {
  constexpr size_t kJumpBytes = 6, kUsualBytes = 16, kSmallBytes = 8;
  size_t size = kUsualBytes;
  std::vector<PltEntry> entries;
  for (size_t at = 0; at + kJumpBytes <= code.size(); ++at) {
    if (code[at] != std::byte{0xff}) continue;
    const bool is_direct = code[at + 1] == std::byte{0x25}, is_based = machine == EM_386 && code[at + 1] == std::byte{0xa3};
    if (!is_direct && !is_based) continue;
    const uint32_t displacement = read_u32(code, at + 2);
    uint64_t slot = displacement;
    if (machine == EM_X86_64)
      slot = address + at + kJumpBytes + static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(displacement)));
    if (is_based) slot = static_cast<uint32_t>(got + displacement);
    if (!entries.empty() && at - entries.back().at == kSmallBytes) size = kSmallBytes;
    entries.push_back({at, size, slot});
  }
  for (PltEntry& entry : entries) entry = {entry.at / size * size, size, entry.slot};
  return entries;
}

// adrp x16, page; ldr x17, [x16, #offset]; add; br x17; after a BTI where branches are protected.
std::vector<PltEntry> arm64_entries(Bytes code, uint64_t address) {
  constexpr uint32_t kAdrpX16 = 0x90000010, kAdrpMask = 0x9f00001f, kLoadX17 = 0xf9400211, kLoadMask = 0xffc003ff, kBtiC = 0xd503245f;
  constexpr size_t kEntryBytes = 16;
  std::vector<PltEntry> entries;
  for (size_t at = 0; at + 8 <= code.size(); at += 4) {
    const uint32_t adrp = read_u32(code, at), load = read_u32(code, at + 4);
    if ((adrp & kAdrpMask) != kAdrpX16 || (load & kLoadMask) != kLoadX17) continue;
    const uint64_t pages = ((adrp >> 5 & 0x7ffff) << 2) | (adrp >> 29 & 3);
    const uint64_t signed_pages = (pages ^ (1U << 20)) - (1U << 20);
    const uint64_t slot = ((address + at) & ~uint64_t{0xfff}) + (signed_pages << 12) + ((load >> 10 & 0xfff) << 3);
    const bool is_protected = at >= 4 && read_u32(code, at - 4) == kBtiC;
    entries.push_back({is_protected ? at - 4 : at, is_protected ? kEntryBytes + 4 : kEntryBytes, slot});
  }
  return entries;
}

DebugLink read_debug_link(Bytes content) {
  DebugLink link;
  const auto* text = reinterpret_cast<const char*>(content.data());
  const size_t length = content.empty() ? 0 : strnlen(text, content.size());
  const size_t crc_at = (length + 4) & ~size_t{3};
  if (length == 0 || length > kMaxLinkNameBytes || crc_at + 4 > content.size()) return link;
  link.name.assign(text, length);
  link.crc32 = read_u32(content, crc_at);
  return link;
}

}  // namespace

CodeFamily family_of(uint32_t elf_machine) {
  if (elf_machine == EM_X86_64 || elf_machine == EM_386) return CodeFamily::x86;
  return elf_machine == EM_AARCH64 || elf_machine == EM_ARM ? CodeFamily::arm : CodeFamily::unknown;
}

std::string other_machine(CodeFamily traced, uint32_t elf_machine) {
  const CodeFamily own = family_of(elf_machine);
  if (traced == CodeFamily::unknown || own == traced) return {};
  const auto name = [](CodeFamily family) { return family == CodeFamily::x86 ? "x86" : family == CodeFamily::arm ? "Arm" : "other"; };
  return std::string("is for ") + name(own) + " processors (e_machine " + std::to_string(elf_machine) + "), but the trace is of an " +
         name(traced) + " processor";
}

std::string build_id_in_notes(Bytes notes) {
  uint64_t at = 0;
  while (at + 12 <= notes.size()) {
    const uint64_t name_size = read_u32(notes, at), value_size = read_u32(notes, at + 4);
    const uint32_t type = read_u32(notes, at + 8);
    const uint64_t name_at = at + 12, value_at = name_at + ((name_size + 3) & ~uint64_t{3});
    if (value_at > notes.size() || value_size > notes.size() - value_at) break;
    if (type == kNoteBuildId && name_size == 4 && std::memcmp(notes.data() + name_at, "GNU", 4) == 0) {
      return normalize_build_id(hex_of(notes.subspan(value_at, value_size)));
    }
    at = value_at + ((value_size + 3) & ~uint64_t{3});
  }
  return {};
}

Result<std::shared_ptr<const ElfFile>> ElfFile::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  return open(std::move(file).value());
}

Result<std::shared_ptr<const ElfFile>> ElfFile::open(std::shared_ptr<const MappedFile> file) {
  std::shared_ptr<ElfFile> elf(new ElfFile());
  elf->file_ = std::move(file);
  if (!elf->parse()) return Error{ErrorCode::bad_magic, elf->path() + ": not an ELF file", 0};
  return std::shared_ptr<const ElfFile>(std::move(elf));
}

bool ElfFile::parse() {
  const Bytes bytes = file_->bytes();
  const ElfHandle elf = open_memory(bytes);
  GElf_Ehdr header;
  if (!elf || elf_kind(elf.get()) != ELF_K_ELF || gelf_getehdr(elf.get(), &header) == nullptr) return false;
  is_core_ = header.e_type == ET_CORE;
  is_relocatable_ = header.e_type == ET_REL;
  has_fixed_addresses_ = header.e_type == ET_EXEC;
  machine_ = header.e_machine;
  section_headers_end_bytes_ = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  entry_ = header.e_entry;
  is_64bit_ = gelf_getclass(elf.get()) == ELFCLASS64;
  size_t program_headers = 0;
  if (elf_getphdrnum(elf.get(), &program_headers) != 0) program_headers = 0;
  program_headers = std::min(program_headers, kMaxProgramHeaders);
  header_table_ = {header.e_phoff, header.e_phentsize, program_headers};
  // libelf reads the table as if its entries had their standard size.
  if (program_headers != 0 && header.e_phentsize != gelf_fsize(elf.get(), ELF_T_PHDR, 1, EV_CURRENT)) {
    damage_ = "its program headers have " + std::to_string(header.e_phentsize) + " bytes each, not " +
              std::to_string(gelf_fsize(elf.get(), ELF_T_PHDR, 1, EV_CURRENT));
    program_headers = 0;
  }
  if (!is_core_ && program_headers > kMaxHeadersOfCode) {
    damage_ = "it has " + std::to_string(program_headers) + " program headers, of which " + std::to_string(kMaxHeadersOfCode) + " are read";
    program_headers = kMaxHeadersOfCode;
  }
  for (size_t i = 0; i < program_headers; ++i) {
    GElf_Phdr program;
    if (gelf_getphdr(elf.get(), static_cast<int>(i), &program) == nullptr) break;
    if (program.p_type == PT_LOAD) {
      const uint64_t in_file = clamp(bytes, program.p_offset, program.p_filesz).size();
      if (program.p_filesz != 0)
        segments_end_bytes_ = std::max(segments_end_bytes_, program.p_offset + std::min(program.p_filesz, ~program.p_offset));
      segments_.push_back(
          {program.p_vaddr, program.p_offset, in_file, program.p_memsz, (program.p_flags & PF_X) != 0, (program.p_flags & PF_W) != 0});
    } else if (program.p_type == PT_DYNAMIC) {
      dynamic_address_ = program.p_vaddr;
    } else if (program.p_type == PT_NOTE && build_id_.empty()) {
      build_id_ = build_id_in_notes(clamp(bytes, program.p_offset, std::min<uint64_t>(program.p_filesz, kMaxNoteBytes)));
    }
  }
  if (damage_.empty() && segments_.empty() && header.e_phoff != 0 && !is_relocatable_)
    damage_ = "it has no PT_LOAD program header (e_phoff or e_phnum is wrong)";
  size_t names = 0;
  const bool has_names = elf_getshdrstrndx(elf.get(), &names) == 0;
  Elf_Scn* section = nullptr;
  while ((section = elf_nextscn(elf.get(), section)) != nullptr) {
    GElf_Shdr info;
    if (gelf_getshdr(section, &info) == nullptr) continue;
    if (info.sh_type == SHT_SYMTAB) has_symtab_ = true;
    const bool has_code = !is_relocatable_ && (info.sh_flags & SHF_EXECINSTR) != 0;
    if (has_code && info.sh_addr + info.sh_size > info.sh_addr && code_sections_.size() < kMaxCodeSections)
      code_sections_.emplace_back(info.sh_addr, info.sh_addr + info.sh_size);
    if ((info.sh_flags & SHF_EXECINSTR) != 0 && info.sh_size != 0)
      code_bytes_ = info.sh_type == SHT_NOBITS ? std::max(code_bytes_, CodeBytesIn::headers_only) : CodeBytesIn::file;
    const Bytes content = info.sh_type == SHT_NOBITS ? Bytes{} : clamp(bytes, info.sh_offset, info.sh_size);
    if (info.sh_type == SHT_NOTE && build_id_.empty())
      build_id_ = build_id_in_notes(content.first(std::min<size_t>(content.size(), kMaxNoteBytes)));
    const char* name = has_names ? elf_strptr(elf.get(), names, info.sh_name) : nullptr;
    if (name == nullptr) continue;
    if (std::strcmp(name, ".gnu_debuglink") == 0) debug_link_ = read_debug_link(content);
    if (std::strcmp(name, ".gnu_debugdata") == 0) mini_ = content;
    has_lines_ = has_lines_ || (!content.empty() && (std::strcmp(name, ".debug_line") == 0 || std::strcmp(name, ".zdebug_line") == 0));
  }
  return true;
}

std::vector<std::pair<uint64_t, uint64_t>> ElfFile::executable_pages() const {
  constexpr uint64_t kPage = 4096;
  std::vector<std::pair<uint64_t, uint64_t>> pages;
  for (const ElfSegment& segment : segments_) {
    const uint64_t end = segment.file_offset_bytes + segment.file_size_bytes;
    if (segment.executable && segment.file_size_bytes != 0)
      pages.emplace_back(segment.file_offset_bytes / kPage * kPage, (end + (kPage - 1)) / kPage * kPage);
  }
  std::sort(pages.begin(), pages.end());
  size_t kept = 0;
  for (const auto& range : pages) {
    if (kept != 0 && range.first <= pages[kept - 1].second) {
      pages[kept - 1].second = std::max(pages[kept - 1].second, range.second);
    } else {
      pages[kept++] = range;
    }
  }
  pages.resize(kept);
  return pages;
}

uint64_t ElfFile::lowest_address() const {
  uint64_t lowest = ~uint64_t{0};
  for (const ElfSegment& segment : segments_) lowest = std::min(lowest, segment.address);
  return segments_.empty() ? 0 : lowest;
}

bool ElfFile::address_of_offset(uint64_t file_offset_bytes, uint64_t& address) const {
  // A mapping starts at a page boundary, so its offset may lie up to a page before the segment's own.
  constexpr uint64_t kPage = 4096;
  for (const bool executable : {true, false}) {
    for (const ElfSegment& segment : segments_) {
      if (executable && !segment.executable) continue;
      const uint64_t first = segment.file_offset_bytes & ~(kPage - 1);
      if (segment.file_size_bytes == 0 || file_offset_bytes < first) continue;
      if (file_offset_bytes >= segment.file_offset_bytes + segment.file_size_bytes) continue;
      address = segment.address + (file_offset_bytes - segment.file_offset_bytes);
      return true;
    }
  }
  return false;
}

std::optional<uint64_t> ElfFile::code_section_end(uint64_t address) const {
  for (const auto& [first, end] : code_sections_) {
    if (first <= address && address < end) return end;
  }
  return code_sections_.empty() || code_sections_.size() >= kMaxCodeSections ? std::nullopt : std::optional(address);
}

std::vector<ElfSymbol> ElfFile::read_symbols(size_t limit) const {
  const ElfHandle elf = open_memory(file_->bytes());
  if (!elf) return {};
  std::vector<ElfSymbol> symbols = symbols_of(elf.get(), SHT_SYMTAB, limit);
  if (symbols.empty()) {
    symbols = symbols_of(elf.get(), SHT_DYNSYM, limit);
    const auto mini = read_mini();
    const ElfHandle inner = open_memory(mini.ok() ? Bytes(*mini) : Bytes());
    std::vector<ElfSymbol> more = inner ? symbols_of(inner.get(), SHT_SYMTAB, limit - symbols.size()) : std::vector<ElfSymbol>();
    symbols.insert(symbols.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  std::sort(symbols.begin(), symbols.end(),
            [](const ElfSymbol& a, const ElfSymbol& b) { return a.address != b.address ? a.address < b.address : a.name < b.name; });
  const auto is_same = [](const ElfSymbol& a, const ElfSymbol& b) { return a.address == b.address && a.name == b.name; };
  symbols.erase(std::unique(symbols.begin(), symbols.end(), is_same), symbols.end());
  return symbols;
}

Result<std::vector<std::byte>> ElfFile::read_mini() const {
  if (has_symtab_ || mini_.empty()) return std::vector<std::byte>();
  return unpack_xz(mini_);
}

std::vector<ElfSymbol> ElfFile::read_plt(const std::vector<ElfSymbol>& symbols) const {
  const ElfHandle elf = open_memory(file_->bytes());
  size_t names = 0;
  if (!elf || is_relocatable_ || elf_getshdrstrndx(elf.get(), &names) != 0) return {};
  SlotNames slots;
  struct Table {
    uint64_t address;
    Bytes code;
  };
  std::vector<Table> tables;
  uint64_t got = 0, budget = kReadsPerByte * file_->bytes().size();
  Elf_Scn* section = nullptr;
  while ((section = elf_nextscn(elf.get(), section)) != nullptr) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || (header.sh_flags & SHF_ALLOC) == 0 || header.sh_type == SHT_NOBITS) continue;
    if (header.sh_type == SHT_RELA || header.sh_type == SHT_REL) read_slots(elf.get(), section, header, machine_, symbols, slots, budget);
    const char* text = elf_strptr(elf.get(), names, header.sh_name);
    const std::string_view name = text == nullptr ? std::string_view{} : std::string_view(text);
    if (name == ".got.plt" || (name == ".got" && got == 0)) got = header.sh_addr;
    const bool is_plt = (header.sh_flags & SHF_EXECINSTR) != 0 && (name.starts_with(".plt") || name == ".iplt");
    if (is_plt && afford(budget, header))
      tables.push_back({header.sh_addr, clamp(file_->bytes(), header.sh_offset, std::min(header.sh_size, kMaxPltBytes))});
  }
  std::vector<ElfSymbol> entries;
  uint64_t name_bytes = 0;
  for (const Table& table : tables) {
    const auto found =
        machine_ == EM_AARCH64 ? arm64_entries(table.code, table.address) : x86_entries(table.code, table.address, machine_, got);
    for (const PltEntry& entry : found) {
      const auto slot = slots.find(entry.slot);
      if (slot == slots.end()) continue;
      name_bytes += slot->second.size();
      if (name_bytes > most_name_bytes(file_->bytes().size(), 0)) return entries;
      entries.push_back({table.address + entry.at, entry.size_bytes, std::string(slot->second).append(kPltMark), false, false, {}});
    }
  }
  return entries;
}

Result<std::vector<MemoryRange>> read_kcore(const std::string& path, CodeFamily traced, bool* cut) {
  auto elf = ElfFile::open(path);
  if (!elf.ok()) return elf.error();
  if (!(*elf)->is_core()) return Error{ErrorCode::unknown_format, path + ": not an ELF core", 0};
  if (const std::string other = other_machine(traced, (*elf)->machine()); !other.empty())
    return Error{ErrorCode::bad_format, path + " " + other, 0};
  if (!(*elf)->damage().empty()) return Error{ErrorCode::bad_format, path + " is damaged: " + (*elf)->damage(), 0};
  if (cut != nullptr) *cut = (*elf)->is_cut();
  constexpr size_t kMaxSegments = 4096;  // a machine's kcore has a few dozen
  if ((*elf)->segments().size() > kMaxSegments)
    return Error{ErrorCode::unknown_format,
                 path + ": " + std::to_string((*elf)->segments().size()) + " segments are not a copy of a kernel's memory", 0};
  std::vector<MemoryRange> ranges;
  for (const ElfSegment& segment : (*elf)->segments()) {
    CodeBytes code = piece_of((*elf)->file(), segment.file_offset_bytes, segment.file_size_bytes);
    if (!code.bytes.empty()) ranges.push_back({Ip{segment.address}, std::move(code)});
  }
  std::sort(ranges.begin(), ranges.end(), [](const MemoryRange& a, const MemoryRange& b) { return a.ip < b.ip; });
  return ranges;
}

Result<std::vector<MemoryRange>> read_running_kcore(const std::string& path, CodeFamily traced,
                                                    const std::vector<std::pair<Ip, uint64_t>>& wanted) {
  constexpr uint64_t kMaxBytes = 512ULL << 20;
  constexpr size_t kMaxSegments = 4096;
  const RegularFile file = open_regular(path);
  if (!file.fd.ok()) return Error{file.code(), path + ": " + file.why(), 0};
  const int fd = file.fd.get();
  static const bool ready = elf_version(EV_CURRENT) != EV_NONE;
  const ElfHandle elf(ready ? elf_begin(fd, ELF_C_READ, nullptr) : nullptr);
  size_t count = 0;
  if (elf == nullptr || gelf_getclass(elf.get()) != ELFCLASS64 || elf_getphdrnum(elf.get(), &count) != 0 || count > kMaxSegments)
    return Error{ErrorCode::unknown_format, path + ": contains no kernel memory", 0};
  GElf_Ehdr header;
  const std::string other = gelf_getehdr(elf.get(), &header) == nullptr ? std::string() : other_machine(traced, header.e_machine);
  if (!other.empty()) return Error{ErrorCode::bad_format, path + " " + other, 0};
  std::vector<GElf_Phdr> segments(count);
  for (size_t i = 0; i < count; ++i) {
    if (gelf_getphdr(elf.get(), static_cast<int>(i), &segments[i]) == nullptr) segments[i].p_type = PT_NULL;
  }
  std::vector<MemoryRange> ranges;
  uint64_t total = 0;
  for (const auto& [ip, size] : wanted) {
    for (const GElf_Phdr& segment : segments) {
      if (segment.p_type != PT_LOAD || ip.value < segment.p_vaddr || ip.value - segment.p_vaddr >= segment.p_filesz) continue;
      const uint64_t offset = ip.value - segment.p_vaddr, length = std::min(size, segment.p_filesz - offset);
      if (length > kMaxBytes - total) break;
      std::vector<std::byte> bytes(length);
      const ssize_t got = ::pread(fd, bytes.data(), length, static_cast<off_t>(segment.p_offset + offset));
      if (got == static_cast<ssize_t>(length)) ranges.push_back({ip, own_bytes(bytes)});
      total += length;
      break;
    }
  }
  return ranges;
}

}  // namespace ptd
