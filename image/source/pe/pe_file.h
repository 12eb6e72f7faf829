// PeFile: headers, sections, base relocations and symbols of a PE image (.exe, .dll). Source: [PE].
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image/base/mapped_file.h"
#include "ptdecode/error.h"
#include "ptdecode/timeline.h"
#include "ptdecode/types.h"

namespace ptd {

/// One entry of the section table. Addresses are relative to the image's base (RVAs).
struct PeSection {
  std::string name;
  uint32_t address = 0;            ///< VirtualAddress
  uint32_t size_bytes = 0;         ///< in memory
  uint32_t file_offset_bytes = 0;  ///< PointerToRawData
  uint32_t file_size_bytes = 0;    ///< at most size_bytes: what follows is zero in memory
  bool executable = false;
};

/// A named address of an executable section.
struct PeSymbol {
  uint32_t address = 0;  ///< RVA
  std::string name;      ///< as in the file (mangled); of i386 without the leading underscore of C
  bool function = false;
};

/// The code of one function, or of a part of it, as the table of unwind information (.pdata) gives it.
struct PeFunction {
  uint32_t first = 0, end = 0;  ///< RVAs
  bool is_part = false;         ///< its unwind information continues that of another entry
};

/// What the relocated code of all modules together may take, and the tables of relocations that are read for it.
struct PeBudget {
  uint64_t copy_bytes = 512ULL << 20, table_bytes = 256ULL << 20;
};

/// An executable section with the bytes that it has in a process.
struct PeCode {
  uint32_t address = 0;     ///< RVA
  uint32_t size_bytes = 0;  ///< in memory
  CodeBytes bytes;          ///< the part that is in the file, relocated
};

/// An open PE file; immutable. Hostile files give an Error or less content, never a crash. No memory depends on a claim of the file: tables
/// are read up to the end of the file, and names up to a limit.
class PeFile {
 public:
  /// Error messages are sentence fragments: "is not a PE file", ... Errors: bad_magic; unsupported (neither x86-64 nor i386); truncated;
  /// contradictory_record (sections overlap, are not in order, or lie outside of the image).
  static Result<std::shared_ptr<const PeFile>> open(std::shared_ptr<const MappedFile> file);

  [[nodiscard]] bool is_64bit() const { return is_64bit_; }
  [[nodiscard]] uint64_t image_base() const { return image_base_; }    ///< the base for which the file is linked
  [[nodiscard]] uint32_t image_bytes() const { return image_bytes_; }  ///< SizeOfImage
  [[nodiscard]] uint32_t timestamp() const { return timestamp_; }      ///< TimeDateStamp; of a reproducible build, a hash
  [[nodiscard]] const std::vector<PeSection>& sections() const { return sections_; }
  [[nodiscard]] const MappedFile& file() const { return *file_; }
  /// Returns the name under which symbol servers keep the file: TimeDateStamp and SizeOfImage, in hex.
  [[nodiscard]] std::string key() const;

  /// Returns the executable sections as they are in a process that has the image at `base`. A section with base relocations is a copy. The
  /// sizes of copies and tables are subtracted from `budget`. Errors (sentence fragments): contradictory_record: the base relocations are
  /// damaged, or stripped although the base is not the linked one; too_large: the budget is exhausted.
  [[nodiscard]] Result<std::vector<PeCode>> code_at(uint64_t base, PeBudget& budget) const;
  /// Returns the symbols of executable sections by address, functions first: those of the COFF symbol table and the exports. At most
  /// `limit`.
  [[nodiscard]] std::vector<PeSymbol> symbols(size_t limit) const;
  /// Returns the RVAs at which other modules and Windows enter the code: the entry point and the exports, those without a name too.
  [[nodiscard]] std::vector<uint32_t> entries() const;
  /// Returns whether the file has a COFF symbol table.
  [[nodiscard]] bool has_symtab() const { return coff_symbols_ != 0 && coff_count_ != 0 && coff_symbols_ < file_->bytes().size(); }
  /// Returns the bytes of an RVA range that is in the file as a whole; else none.
  [[nodiscard]] Bytes at(uint64_t address, uint64_t size_bytes) const;
  /// Returns the executable section that contains the RVA `address`; null: none.
  [[nodiscard]] const PeSection* code_of(uint64_t address) const;
  /// Returns the functions of .pdata in executable sections, by address; empty for i386. At most `limit`.
  [[nodiscard]] std::vector<PeFunction> functions(size_t limit) const;

 private:
  struct Table {
    uint32_t address = 0, size_bytes = 0;
  };
  PeFile() = default;
  Status read_headers();
  Status read_sections(uint64_t at, uint64_t count);
  [[nodiscard]] Table directory(uint32_t index) const;
  [[nodiscard]] const PeSection* section_of(uint64_t address) const;
  [[nodiscard]] bool is_exported_code(uint32_t address) const;
  [[nodiscard]] std::string text_at(uint64_t address) const;
  struct Symbols;
  void add_coff_symbols(Symbols& symbols) const;
  void add_exports(Symbols& symbols) const;
  using Copies = std::vector<std::shared_ptr<std::vector<std::byte>>>;  // one a section; null: none
  Status relocate(uint64_t base, Copies& copies, PeBudget& budget) const;
  Status relocate_block(Bytes entries, uint32_t page, uint64_t delta, Copies& copies, PeBudget& budget) const;
  Status copy_section(const PeSection& section, Copies& copies, PeBudget& budget) const;

  std::shared_ptr<const MappedFile> file_;
  bool is_64bit_ = false, relocs_stripped_ = false;
  uint64_t image_base_ = 0;
  uint32_t image_bytes_ = 0, header_bytes_ = 0, timestamp_ = 0, section_alignment_ = 0, entry_ = 0;
  uint32_t coff_symbols_ = 0, coff_count_ = 0;  // of the file header
  std::vector<Table> directories_;
  std::vector<PeSection> sections_;
};

}  // namespace ptd
