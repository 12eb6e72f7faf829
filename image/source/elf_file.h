// ElfFile: program headers, build id and symbols of an ELF file. The only file that includes libelf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "image/base/mapped_file.h"
#include "image/source/code_bytes.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// The processors for which code is made. Code of others than the traced ones is never decoded.
enum class CodeFamily : uint8_t { unknown, x86, arm };
/// Returns the family of e_machine of an ELF file, or of the same number in a jitdump.
[[nodiscard]] CodeFamily family_of(uint32_t elf_machine);
/// Returns why a file with this e_machine has no code of a trace of the family `traced`, a sentence fragment; "" if it may have, or if
/// `traced` is unknown.
[[nodiscard]] std::string other_machine(CodeFamily traced, uint32_t elf_machine);

/// One PT_LOAD program header.
struct ElfSegment {
  uint64_t address = 0;            ///< p_vaddr
  uint64_t file_offset_bytes = 0;  ///< p_offset
  uint64_t file_size_bytes = 0;    ///< p_filesz, cut at the end of the file
  uint64_t memory_size_bytes = 0;  ///< p_memsz
  bool executable = false;
  bool writable = false;
};

/// The place of the program headers in a file.
struct ElfHeaderTable {
  uint64_t file_offset_bytes = 0;  ///< e_phoff
  uint64_t entry_bytes = 0, entries = 0;
};

/// Returns whether a symbol of an Arm file only says where code ($a, $t, $x) or data ($d, also "$d.1") begins. Sources: [AAELF32] and
/// [AAELF64] "Mapping symbols".
[[nodiscard]] constexpr bool is_mapping_symbol(std::string_view name) {
  return name.size() >= 2 && name[0] == '$' && std::string_view("atdx").find(name[1]) != std::string_view::npos &&
         (name.size() == 2 || name[2] == '.');
}

/// A function or other named address of .symtab or .dynsym.
struct ElfSymbol {
  uint64_t address = 0;  ///< st_value, before relocation
  uint64_t size_bytes = 0;
  /// As in the file (mangled); of .dynsym, with the version if that is not the default: "cfree@GLIBC_2.2.5"; with kResolverMark.
  std::string name;
  bool function = false;
  bool global = false;  ///< or weak
  std::string place;    ///< as Symbol::place
  bool weak = false;
};

/// The names of a symbol table are read up to this length each, and up to this total: names that overlap much more are a hostile table.
inline constexpr uint64_t kMaxSymbolNameBytes = 4096;
[[nodiscard]] constexpr uint64_t most_name_bytes(uint64_t string_table_bytes, uint64_t symbols) {
  return 4 * string_table_bytes + 64 * symbols;
}

/// Name and checksum of a separate debug file (.gnu_debuglink).
struct DebugLink {
  std::string name;
  uint32_t crc32 = 0;
};

/// An open ELF file; immutable. Hostile files give an Error or less content, never a crash.
class ElfFile {
 public:
  /// Errors: file_open; file_format (not a 32-bit or 64-bit ELF file).
  static Result<std::shared_ptr<const ElfFile>> open(const std::string& path);
  /// Same for a file that is already mapped.
  static Result<std::shared_ptr<const ElfFile>> open(std::shared_ptr<const MappedFile> file);

  [[nodiscard]] const std::string& path() const { return file_->path(); }
  [[nodiscard]] const std::shared_ptr<const MappedFile>& file() const { return file_; }
  [[nodiscard]] const std::vector<ElfSegment>& segments() const { return segments_; }
  [[nodiscard]] const std::string& build_id() const { return build_id_; }  ///< hex, "" if it has none
  [[nodiscard]] const DebugLink& debug_link() const { return debug_link_; }
  [[nodiscard]] bool is_core() const { return is_core_; }
  /// Returns whether the file ends before one of its segments.
  [[nodiscard]] bool is_cut() const { return segments_end_bytes_ > file_->bytes().size(); }
  /// Returns the file offset at which the last segment ends, which may be after the end of the file.
  [[nodiscard]] uint64_t segments_end_bytes() const { return segments_end_bytes_; }
  /// Returns whether the file is a separate debug file: it names sections of code, but has the bytes of none.
  [[nodiscard]] bool lacks_code() const { return code_bytes_ == CodeBytesIn::headers_only; }
  [[nodiscard]] bool is_relocatable() const { return is_relocatable_; }
  /// Returns whether its segments can lie at their p_vaddr only (ET_EXEC).
  [[nodiscard]] bool has_fixed_addresses() const { return has_fixed_addresses_; }
  /// Returns whether nothing follows its segments and section headers, as in a file that a linker writes. A copy of memory may go on.
  [[nodiscard]] bool fills_file() const { return std::max(segments_end_bytes_, section_headers_end_bytes_) >= file_->bytes().size(); }
  [[nodiscard]] uint16_t machine() const { return machine_; }  ///< e_machine
  [[nodiscard]] uint64_t entry() const { return entry_; }
  [[nodiscard]] bool is_64bit() const { return is_64bit_; }
  /// Returns why program headers are not read, or not all, a sentence fragment; "" if they are.
  [[nodiscard]] const std::string& damage() const { return damage_; }
  [[nodiscard]] const ElfHeaderTable& header_table() const { return header_table_; }
  [[nodiscard]] uint64_t dynamic_address() const { return dynamic_address_; }  ///< p_vaddr of PT_DYNAMIC, 0 if there is none

  /// Returns the file offsets [first, end) of the pages that executable segments map, sorted and disjoint.
  [[nodiscard]] std::vector<std::pair<uint64_t, uint64_t>> executable_pages() const;
  /// Returns the lowest p_vaddr of a PT_LOAD, 0 if there is none.
  [[nodiscard]] uint64_t lowest_address() const;
  /// Returns the p_vaddr of the first PT_LOAD, 0 if there is none. In a vmlinux with .data..percpu at address 0, it is not the lowest.
  [[nodiscard]] uint64_t first_address() const { return segments_.empty() ? 0 : segments_.front().address; }
  /// Gives the address (p_vaddr) of a file offset in a PT_LOAD, preferably an executable one. Returns false if none contains it.
  bool address_of_offset(uint64_t file_offset_bytes, uint64_t& address) const;
  /// Returns the first address after the section of code that contains `address`, and `address` itself if none does (a symbol there names
  /// no code). Nothing if the file has no section headers of code, or too many.
  [[nodiscard]] std::optional<uint64_t> code_section_end(uint64_t address) const;
  /// Reads .symtab, or .dynsym and read_mini() if that gives nothing, sorted by address, without undefined, section and file symbols.
  /// At most `limit` symbols, and up to most_name_bytes(). Reads the whole table on each call; the caller should keep the result.
  [[nodiscard]] std::vector<ElfSymbol> read_symbols(size_t limit = 4U << 20) const;
  /// Returns a symbol "NAME@plt" for each entry of the procedure linkage tables (.plt, .plt.sec, .plt.got, .iplt), unsorted. The name is
  /// that of the relocation for the slot through which the entry jumps; for a slot that a resolver fills (IRELATIVE), it is that of the
  /// function whose resolver this is, or of the first function there, in `symbols`, which are sorted by address. Known: x86-64, i386,
  /// AArch64. At most 1,048,576 entries.
  [[nodiscard]] std::vector<ElfSymbol> read_plt(const std::vector<ElfSymbol>& symbols) const;
  [[nodiscard]] bool has_symtab() const { return has_symtab_; }
  /// Returns the ELF file with the symbols that .dynsym lacks: .gnu_debugdata, uncompressed. Empty if there is none, or a .symtab.
  /// Errors: as unpack_xz().
  [[nodiscard]] Result<std::vector<std::byte>> read_mini() const;
  /// Returns whether the file has the bytes of a DWARF line table.
  [[nodiscard]] bool has_lines() const { return has_lines_; }

 private:
  ElfFile() = default;
  bool parse();
  std::shared_ptr<const MappedFile> file_;
  std::vector<ElfSegment> segments_;
  std::vector<std::pair<uint64_t, uint64_t>> code_sections_;  ///< first address and end; empty for relocatable files
  std::string build_id_;
  DebugLink debug_link_;
  Bytes mini_;  ///< of the file: .gnu_debugdata, compressed
  enum class CodeBytesIn : uint8_t { no_section, headers_only, file };
  CodeBytesIn code_bytes_ = CodeBytesIn::no_section;
  uint64_t segments_end_bytes_ = 0, section_headers_end_bytes_ = 0;
  bool is_core_ = false, is_relocatable_ = false, has_fixed_addresses_ = false, has_symtab_ = false, has_lines_ = false;
  uint16_t machine_ = 0;
  uint64_t entry_ = 0, dynamic_address_ = 0;
  bool is_64bit_ = false;
  ElfHeaderTable header_table_;
  std::string damage_;
};

/// Opens the content of each file once, under however many paths it is found. Not thread-safe.
class KnownElfs {
 public:
  struct Known {
    std::shared_ptr<const MappedFile> file;  ///< under the first path
    std::shared_ptr<const ElfFile> elf;      ///< null: no ELF file
  };
  [[nodiscard]] const Known& of(std::shared_ptr<const MappedFile> file) {
    const auto [known, is_new] = files_.try_emplace(file->identity());
    if (is_new) {
      known->second.file = std::move(file);
      if (auto elf = ElfFile::open(known->second.file); elf.ok()) known->second.elf = std::move(*elf);
    }
    return known->second;
  }

 private:
  std::map<std::pair<uint64_t, uint64_t>, Known> files_;  // by identity
};

/// Returns the build id in a blob of ELF notes ("GNU", type 3), as in /sys/kernel/notes; "" if there is none.
[[nodiscard]] std::string build_id_in_notes(Bytes notes);

/// Returns the PT_LOAD ranges of an ELF core such as perf's kcore copy, in address order. Errors as for ElfFile::open; not a core; of
/// a machine of another family than `traced`; damaged.
/// Sets `cut` if the file ends before one of the ranges; the part that exists is returned.
Result<std::vector<MemoryRange>> read_kcore(const std::string& path, CodeFamily traced = CodeFamily::unknown, bool* cut = nullptr);

/// Copies the parts of the running kernel's memory (/proc/kcore, which is as large as the address space and cannot be mapped) that are
/// within `wanted` (address and size), at most 512 MiB. Errors: file_open, file_format, bad_format (of a machine of another family than
/// `traced`).
Result<std::vector<MemoryRange>> read_running_kcore(const std::string& path, CodeFamily traced,
                                                    const std::vector<std::pair<Ip, uint64_t>>& wanted);

}  // namespace ptd
