// ElfWriter: see elf_writer.h. Source: elf(5).
#include "recording/data/elf_writer.h"

#include <elf.h>

#include <algorithm>

namespace ptd {

namespace {

void put(std::string& to, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) to += static_cast<char>(value >> (8 * i));
}

}  // namespace

/// A section header.
struct ElfWriter::Part {
  uint64_t name = 0, type = 0, flags = 0, address = 0, offset = 0, size = 0, link = 0, info = 0, align = 1, entry = 0;
};

void ElfWriter::add_function(uint64_t address, uint64_t size_bytes, std::string_view name) {
  functions_.push_back({address, size_bytes, strings_.size()});
  strings_ += name.substr(0, name.find('\0'));
  strings_ += '\0';
}

void ElfWriter::put_part(std::string& to, const Part& part) const {
  put(to, part.name, 4);
  put(to, part.type, 4);
  for (const uint64_t value : {part.flags, part.address, part.offset, part.size}) put(to, value, word_bytes_);
  put(to, part.link, 4);
  put(to, part.info, 4);
  put(to, part.align, word_bytes_);
  put(to, part.entry, word_bytes_);
}

std::string ElfWriter::symbols() const {
  std::string out(word_bytes_ == 8 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym), '\0');
  for (const Function& function : functions_) {
    const auto after = std::upper_bound(regions_.begin(), regions_.end(), function.address,
                                        [](uint64_t address, const Region& region) { return address < region.address; });
    if (after == regions_.begin() || function.address - std::prev(after)->address >= std::prev(after)->size_bytes) continue;
    const auto section = static_cast<uint64_t>(after - regions_.begin());
    constexpr uint64_t kInfo = STB_GLOBAL << 4 | STT_FUNC;
    put(out, function.name, 4);
    if (word_bytes_ == 8) {
      put(out, kInfo | section << 16, 4);
      put(out, function.address, 8);
      put(out, function.size_bytes, 8);
    } else {
      put(out, function.address, 4);
      put(out, function.size_bytes, 4);
      put(out, kInfo | section << 16, 4);
    }
  }
  return out;
}

// Program headers of the regions with bytes, which are in the file from `bytes_at` on.
std::string ElfWriter::segments(uint64_t bytes_at) const {
  std::string out;
  for (const Region& region : regions_) {
    if (region.bytes.empty()) continue;
    put(out, PT_LOAD, 4);
    if (word_bytes_ == 8) put(out, PF_R | PF_X, 4);
    for (const uint64_t value : {bytes_at, region.address, region.address, uint64_t{region.bytes.size()}, region.size_bytes})
      put(out, value, word_bytes_);
    if (word_bytes_ == 4) put(out, PF_R | PF_X, 4);
    put(out, 1, word_bytes_);
    bytes_at += region.bytes.size();
  }
  return out;
}

std::string ElfWriter::text() const {
  constexpr std::string_view kNames("\0.text\0.symtab\0.strtab\0.shstrtab\0", 33);
  constexpr uint64_t kTextName = 1, kSymtabName = 7, kStrtabName = 15, kNamesName = 23;
  const bool wide = word_bytes_ == 8;
  const uint64_t header = wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr), segment = wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
  const uint64_t entry = wide ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr), symbol = wide ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
  const auto loaded =
      static_cast<uint64_t>(std::count_if(regions_.begin(), regions_.end(), [](const Region& region) { return !region.bytes.empty(); }));
  const uint64_t sections = regions_.size() + 4, bytes_at = header + loaded * segment;
  std::string body = segments(bytes_at), parts;
  put_part(parts, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  uint64_t at = bytes_at;
  for (const Region& region : regions_) {
    put_part(parts, {kTextName, region.bytes.empty() ? uint64_t{SHT_NOBITS} : SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, region.address, at,
                     region.size_bytes, 0, 0, 1, 0});
    body.append(reinterpret_cast<const char*>(region.bytes.data()), region.bytes.size());
    at += region.bytes.size();
  }
  body.resize((body.size() + 7) / 8 * 8 + header % 8, '\0');
  const std::string names = symbols();
  put_part(parts, {kSymtabName, SHT_SYMTAB, 0, 0, header + body.size(), names.size(), sections - 2, 1, 8, symbol});
  body += names;
  put_part(parts, {kStrtabName, SHT_STRTAB, 0, 0, header + body.size(), strings_.size(), 0, 0, 1, 0});
  body += strings_;
  put_part(parts, {kNamesName, SHT_STRTAB, 0, 0, header + body.size(), kNames.size(), 0, 0, 1, 0});
  body += kNames;
  body.resize((body.size() + 7) / 8 * 8 + header % 8, '\0');

  std::string file = std::string(ELFMAG) + static_cast<char>(wide ? ELFCLASS64 : ELFCLASS32) + static_cast<char>(ELFDATA2LSB) +
                     static_cast<char>(EV_CURRENT) + std::string(EI_NIDENT - EI_OSABI, '\0');
  put(file, ET_EXEC, 2);
  put(file, machine_, 2);
  put(file, EV_CURRENT, 4);
  for (const uint64_t value : {uint64_t{0}, loaded == 0 ? uint64_t{0} : header, header + body.size()}) put(file, value, word_bytes_);
  put(file, 0, 4);
  for (const uint64_t value : {header, segment, loaded, entry, sections, sections - 1}) put(file, value, 2);
  return file + body + parts;
}

}  // namespace ptd
