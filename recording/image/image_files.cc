// pieces_of(): the range that the user names, or the segments that the file names.
#include "recording/image/image_files.h"

#include <algorithm>

namespace ptd {
namespace {

Error bad(const RawImage& image, const std::string& why) { return {ErrorCode::bad_image_piece, image.path + why, 0}; }

}  // namespace

std::vector<ImagePiece> segments_of(const std::shared_ptr<const MappedFile>& file, const ElfFile& elf) {
  std::vector<ImagePiece> pieces;
  for (const ElfSegment& segment : elf.segments()) {
    const uint64_t size = std::min(segment.file_size_bytes, ~segment.address);
    if (segment.executable && size != 0) pieces.push_back({file, segment.file_offset_bytes, size, segment.address});
  }
  return pieces;
}

Result<std::vector<ImagePiece>> pieces_of(const RawImage& image, CodeFamily family) {
  auto file = MappedFile::open(image.path);
  if (!file.ok()) return file.error();
  const auto elf = ElfFile::open(*file);
  if (const std::string other = elf.ok() ? other_machine(family, (*elf)->machine()) : std::string(); !other.empty()) return bad(image, " " + other);
  if (!image.load_address) {
    if (!elf.ok()) return bad(image, ": no ELF file, so it needs the address of its first byte");
    if (!(*elf)->has_fixed_addresses()) return bad(image, ": the file may be loaded anywhere, so it needs an address");
    std::vector<ImagePiece> pieces = segments_of(*file, **elf);
    if (pieces.empty()) return bad(image, ": the file has no code");
    return pieces;
  }
  const uint64_t file_size = (*file)->bytes().size(), rest = file_size - std::min(image.file_offset_bytes, file_size);
  const uint64_t size = image.size_bytes == 0 ? rest : image.size_bytes;
  if (size == 0 || size > rest)
    return Error{ErrorCode::bad_image_piece, image.path + ": the image piece is empty or reaches beyond the file", image.file_offset_bytes};
  if (size > ~*image.load_address) return bad(image, ": the image piece wraps around the address space");
  return std::vector<ImagePiece>{{*file, image.file_offset_bytes, size, *image.load_address}};
}

bool may_be_memory(const ElfFile& elf, uint64_t address) {
  if (!elf.has_fixed_addresses() || !elf.fills_file()) return true;
  return std::ranges::any_of(elf.segments(), [&](const ElfSegment& segment) { return segment.address - segment.file_offset_bytes == address; });
}

}  // namespace ptd
