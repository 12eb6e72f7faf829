// Machine: the memory of an x86-64 kernel of a few pages, with page tables, VMCOREINFO and kallsyms tables built by hand, as an ELF dump.
#pragma once

#include <dlfcn.h>
#include <elf.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/image/source_support.h"

namespace ptd::image_test {

inline constexpr uint64_t kPage = 4096, kTextBase = 0xffffffff80000000, kModuleBase = 0xffffffffc0000000, kDirectBase = 0xffff888000000000;
inline constexpr uint64_t kDumpedText = kTextBase + 16 * kPage, kModule = kModuleBase + 2 * kPage;

/// Memory of 32 pages from physical address 0. Pages 1 to 5 and 8 are page tables, 6, 7 and 9 to 11 kallsyms, 16 and 17 text, 19 to 21 a
/// module.
class Machine {
 public:
  Machine() : memory_(32 * kPage) {
    constexpr uint64_t kPresent = 0x63;
    const auto entry = [&](uint64_t table, uint64_t index, uint64_t page) { put(table * kPage + index * 8, page * kPage | kPresent); };
    entry(1, 511, 2);
    entry(2, 510, 3);
    entry(2, 511, 4);
    entry(3, 0, 5);
    entry(4, 0, 8);
    for (uint64_t page = 0; page < 32; ++page) {
      entry(5, page, page);
    }
    entry(8, 2, 20);
    entry(8, 3, 21);
    entry(8, 5, 19);  // after a page that is not mapped
    std::memset(&memory_[16 * kPage], 0x90, 2 * kPage);
    std::memset(&memory_[19 * kPage], 0x91, kPage);
    std::memset(&memory_[20 * kPage], 0xcc, 2 * kPage);
  }

  /// Writes the tables of `names` (type and name) with one token per letter, at `offsets` from `base`.
  void put_names(const std::vector<std::string>& names, const std::vector<int32_t>& offsets, uint64_t base, uint8_t first_length_bits = 0) {
    constexpr uint64_t kNames = 6 * kPage, kTokens = 7 * kPage, kIndex = 7 * kPage + 0x800, kOffsets = 9 * kPage, kBase = 10 * kPage,
                       kCount = 11 * kPage;
    uint64_t at = kNames;
    for (const std::string& name : names) {
      memory_[at++] = static_cast<char>(name.size() | first_length_bits);
      if (first_length_bits != 0) memory_[at++] = 0;
      for (const char letter : name) memory_[at++] = letter;
    }
    for (uint16_t token = 0; token < 256; ++token) {
      const uint16_t place = token * 2;
      memory_[kTokens + place] = static_cast<char>(token);
      std::memcpy(&memory_[kIndex + token * 2U], &place, sizeof place);
    }
    std::memcpy(&memory_[kOffsets], offsets.data(), offsets.size() * sizeof(int32_t));
    put(kBase, base);
    put(kCount, names.size());
    symbol("kallsyms_num_syms", kCount);
    symbol("kallsyms_relative_base", kBase);
    symbol("kallsyms_offsets", kOffsets);
    symbol("kallsyms_names", kNames);
    symbol("kallsyms_token_table", kTokens);
    symbol("kallsyms_token_index", kIndex);
  }
  /// After put_names(): makes `letters` letters of the token `number`, at `place` (from 0x200 to 0x800) of the tokens.
  void put_token(uint8_t number, uint16_t place, size_t letters) {
    std::memset(&memory_[7 * kPage + place], 'x', letters);
    memory_[7 * kPage + place + letters] = 0;
    std::memcpy(&memory_[7 * kPage + 0x800 + number * 2U], &place, sizeof place);
  }
  void symbol(const std::string& name, uint64_t physical) {
    std::array<char, 24> hex{};
    std::snprintf(hex.data(), hex.size(), "%lx", static_cast<unsigned long>(kTextBase + physical));
    info_ += "SYMBOL(" + name + ")=" + hex.data() + "\n";
  }
  void line(const std::string& text) { info_ += text + "\n"; }

  /// Returns an ELF dump with one segment of memory.
  [[nodiscard]] std::vector<std::byte> dump() const {
    const std::string name("VMCOREINFO\0\0", 12);
    const std::string info =
        "OSRELEASE=6.1.0-test\nPAGESIZE=4096\nNUMBER(phys_base)=0\nNUMBER(pgtable_l5_enabled)=0\nNUMBER(KERNEL_IMAGE_SIZE)=1073741824\n" +
        info_;
    std::vector<std::byte> out;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_CORE;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = sizeof header;
    header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    append(out, header);
    const std::string padded = info + std::string((4 - info.size() % 4) % 4, '\0');
    Elf64_Phdr note{}, load{};
    note.p_type = PT_NOTE;
    note.p_offset = sizeof header + 2 * sizeof note;
    note.p_filesz = sizeof(Elf64_Nhdr) + name.size() + padded.size();
    load.p_type = PT_LOAD;
    load.p_offset = kPage * 2;
    load.p_vaddr = kDirectBase;
    load.p_filesz = load.p_memsz = memory_.size();
    load.p_align = kPage;
    append(out, note);
    append(out, load);
    append(out, Elf64_Nhdr{11, static_cast<Elf64_Word>(info.size()), 0});
    for (const char c : name + padded) out.push_back(static_cast<std::byte>(c));
    out.resize(load.p_offset);
    for (const char c : memory_) out.push_back(static_cast<std::byte>(c));
    return out;
  }

 private:
  void put(uint64_t at, uint64_t value) { std::memcpy(&memory_[at], &value, sizeof value); }
  std::vector<char> memory_;
  std::string info_ = "SYMBOL(swapper_pg_dir)=ffffffff80001000\nSYMBOL(init_top_pgt)=ffffffff80001000\n";
};

inline bool has_kdumpfile() { return ::dlopen("libkdumpfile.so.10", RTLD_NOW) != nullptr; }

}  // namespace ptd::image_test
