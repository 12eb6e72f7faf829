// Helpers for tests of code sources: temporary files, a small ELF file built by hand.
#pragma once

#include <elf.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "image/source/elf_header.h"
#include "ptdecode/types.h"

namespace ptd::image_test {

/// A temporary directory that is removed with the object.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ptd-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) == nullptr ? std::string() : pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Writes a file below the directory, parents included; returns its full path.
  std::string write(const std::string& name, Bytes bytes) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return file.string();
  }
  std::string write(const std::string& name, const std::string& text) const {
    return write(name, std::as_bytes(std::span(text.data(), text.size())));
  }

 private:
  std::string path_;
};

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

struct SmallSymbol {
  std::string name;
  uint64_t address = 0, size_bytes = 0;
};

struct SmallElf {
  uint16_t type = ET_EXEC;
  uint64_t address = 0x400000;      ///< of file offset 0
  std::vector<std::byte> build_id;  ///< raw
  std::vector<std::byte> code;      ///< located at file offset kCodeOffset
  std::vector<SmallSymbol> symbols;
  static constexpr uint64_t kCodeOffset = 0x200;

  /// ELF header, PT_LOAD over the whole file (RX), PT_NOTE with the build id, code, and section headers with a symbol table.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> note;
    append(note, Elf64_Nhdr{4, static_cast<Elf64_Word>(build_id.size()), NT_GNU_BUILD_ID});
    for (const char c : {'G', 'N', 'U', '\0'}) note.push_back(static_cast<std::byte>(c));
    note.insert(note.end(), build_id.begin(), build_id.end());
    const uint64_t note_at = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);

    std::vector<std::byte> tables;  // symbols, their strings
    std::string strings(1, '\0');
    append(tables, Elf64_Sym{});
    for (const SmallSymbol& symbol : symbols) {
      Elf64_Sym entry{};
      entry.st_name = static_cast<Elf64_Word>(strings.size());
      entry.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
      entry.st_shndx = 1;
      entry.st_value = symbol.address;
      entry.st_size = symbol.size_bytes;
      append(tables, entry);
      strings += symbol.name + '\0';
    }
    const uint64_t symbols_at = kCodeOffset + code.size(), symbols_size = tables.size();
    const uint64_t strings_at = symbols_at + symbols_size, sections_at = strings_at + strings.size();

    Elf64_Ehdr header = elf_header(type, EM_X86_64, 2);
    header.e_shoff = sections_at;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 4;
    header.e_shstrndx = 3;
    Elf64_Phdr load{PT_LOAD, PF_R | PF_X, 0, address, address, sections_at, sections_at, 0x1000};
    Elf64_Phdr notes{PT_NOTE, PF_R, note_at, address + note_at, address + note_at, note.size(), note.size(), 4};

    std::vector<std::byte> out;
    append(out, header);
    append(out, load);
    append(out, notes);
    out.insert(out.end(), note.begin(), note.end());
    out.resize(kCodeOffset);
    out.insert(out.end(), code.begin(), code.end());
    out.insert(out.end(), tables.begin(), tables.end());
    for (const char c : strings) out.push_back(static_cast<std::byte>(c));
    Elf64_Shdr text{0, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, address + kCodeOffset, kCodeOffset, code.size(), 0, 0, 16, 0};
    Elf64_Shdr symtab{0, SHT_SYMTAB, 0, 0, symbols_at, symbols_size, 3, 1, 8, sizeof(Elf64_Sym)};
    Elf64_Shdr strtab{0, SHT_STRTAB, 0, 0, strings_at, strings.size(), 0, 0, 1, 0};
    append(out, Elf64_Shdr{});
    append(out, text);
    append(out, symtab);
    append(out, strtab);
    return out;
  }
};

inline std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

/// Returns the corpus directory, "" if absent.
inline std::string corpus_dir() {
  const char* env = std::getenv("PTDECODE_CORPUS");
  const std::string dir = env != nullptr ? env : PTD_SOURCE_DIR "/../shared/corpus";
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

}  // namespace ptd::image_test
