// The range of a file that the user names, or the segments that the file names.
#include "recording/image/image_files.h"

#include <algorithm>
#include <charconv>

#include "recording/image/words.h"

namespace ptd {
namespace {

Error bad(const RawImage& image, const std::string& why) { return {ErrorCode::bad_image_piece, image.path + why, 0}; }

bool parse_address(std::string_view text, uint64_t& address) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), address, 16);
  return status == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<RawImage> parse_image(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return Error{ErrorCode::bad_image_piece, "'" + std::string(text) + "' is neither FILE[,off=N,size=N]@ADDR nor an ELF file" + why, 0};
  };
  const size_t at = text.rfind('@');
  std::string_view rest = text.substr(0, at);
  RawImage image;
  image.path = std::string(rest.substr(0, rest.find(',')));
  if (image.path.empty()) return wrong("");
  rest.remove_prefix(image.path.size());
  if (at == std::string_view::npos && !rest.empty()) return wrong("");
  if (at != std::string_view::npos && !parse_address(text.substr(at + 1), image.load_address.emplace())) return wrong("");
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the comma
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(word.size());
    const bool offset = word.starts_with("off="), size = word.starts_with("size=");
    uint64_t value = 0;
    if ((!offset && !size) || !parse_number(word.substr(word.find('=') + 1), value)) return wrong("");
    if (size && value == 0) return wrong(": size=0 is empty; omit size= to use the rest of the file");
    (offset ? image.file_offset_bytes : image.size_bytes) = value;
  }
  return image;
}

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
  if (const std::string other = elf.ok() ? other_machine(family, (*elf)->machine()) : std::string(); !other.empty())
    return bad(image, " " + other);
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
  return std::ranges::any_of(elf.segments(),
                             [&](const ElfSegment& segment) { return segment.address - segment.file_offset_bytes == address; });
}

}  // namespace ptd
