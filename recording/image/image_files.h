// Files with code that the user gives by address. Private to recording.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "image/base/mapped_file.h"
#include "image/source/elf_file.h"
#include "ptdecode/recording.h"

namespace ptd {

/// A range of a file at its address.
struct ImagePiece {
  std::shared_ptr<const MappedFile> file;
  uint64_t file_offset_bytes = 0, size_bytes = 0;  ///< not empty, inside the file
  uint64_t address = 0;                            ///< the piece ends below 2^64
};

/// "FILE[,off=N][,size=N]@ADDR", or "FILE"; numbers decimal or 0x hex, ADDR hex with or without 0x. Error: bad_image_piece, which says what
/// is wrong.
[[nodiscard]] Result<RawImage> parse_image(std::string_view text);

/// Opens a file, and returns its range at the address given, or without one the executable segments of an ELF file. Errors: those of
/// MappedFile::open; bad_image_piece for a range outside the file or the address space, for a file for another processor than `family`, and
/// without an address for a file that is no ELF file, or one that may lie anywhere.
[[nodiscard]] Result<std::vector<ImagePiece>> pieces_of(const RawImage& image, CodeFamily family);

/// Returns the executable segments of a file with bytes.
[[nodiscard]] std::vector<ImagePiece> segments_of(const std::shared_ptr<const MappedFile>& file, const ElfFile& elf);

/// Returns whether the file can be a copy of memory that begins at `address`. False for the file of a program that says that its bytes lie
/// elsewhere.
[[nodiscard]] bool may_be_memory(const ElfFile& elf, uint64_t address);

}  // namespace ptd
