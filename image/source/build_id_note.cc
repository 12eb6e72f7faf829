// Reads the build id from the notes of an open file.
#include "image/source/build_id_note.h"

#include <elf.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {
namespace {

constexpr size_t kMostNoteBytes = 64 << 10, kMostSegments = 256, kMostSections = 1024;
constexpr size_t kMostIdBytes = 20;  // in an MMAP2 record

bool read_at(int fd, uint64_t offset, void* to, size_t size) {
  return offset < (1ULL << 62) && pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

/// [ELF] "Note Section": name and descriptor, each padded to four bytes.
std::string id_in_notes(Bytes notes) {
  constexpr size_t kWord = 4;
  for (size_t at = 0; notes.size() - at >= sizeof(Elf64_Nhdr);) {
    Elf64_Nhdr head;
    std::memcpy(&head, notes.data() + at, sizeof(head));
    at += sizeof(head);
    const uint64_t name = (uint64_t{head.n_namesz} + kWord - 1) / kWord * kWord,
                   text = (uint64_t{head.n_descsz} + kWord - 1) / kWord * kWord;
    if (name + text > notes.size() - at) return {};
    const auto* bytes = reinterpret_cast<const char*>(notes.data() + at);
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof(ELF_NOTE_GNU) &&
        std::memcmp(bytes, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0)
      return head.n_descsz <= kMostIdBytes ? std::string(bytes + name, head.n_descsz) : std::string();
    at += static_cast<size_t>(name + text);
  }
  return {};
}

std::string id_at(int fd, uint64_t offset, uint64_t size) {
  if (size == 0 || size > kMostNoteBytes) return {};
  std::vector<std::byte> notes(static_cast<size_t>(size));
  return read_at(fd, offset, notes.data(), notes.size()) ? id_in_notes(notes) : std::string();
}

// The linker of Go puts the build id into a section that no PT_NOTE segment contains.
template <class Section, class Header>
std::string id_in_sections(int fd, const Header& header) {
  if (header.e_shentsize != sizeof(Section)) return {};
  for (size_t i = 0; i < header.e_shnum && i < kMostSections; ++i) {
    Section section{};
    if (!read_at(fd, header.e_shoff + i * sizeof(section), &section, sizeof(section))) return {};
    if (section.sh_type != SHT_NOTE) continue;
    std::string id = id_at(fd, section.sh_offset, section.sh_size);
    if (!id.empty()) return id;
  }
  return {};
}

template <class Header, class Segment, class Section>
std::string id_of(int fd) {
  Header header{};
  if (!read_at(fd, 0, &header, sizeof(header)) || header.e_phentsize != sizeof(Segment) || header.e_phnum > kMostSegments) return {};
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!read_at(fd, header.e_phoff + i * sizeof(segment), &segment, sizeof(segment))) return {};
    if (segment.p_type != PT_NOTE) continue;
    std::string id = id_at(fd, segment.p_offset, segment.p_filesz);
    if (!id.empty()) return id;
  }
  return id_in_sections<Section>(fd, header);
}

}  // namespace

std::string read_build_id(int fd) {
  std::array<unsigned char, EI_NIDENT> ident{};
  if (!read_at(fd, 0, ident.data(), ident.size()) || std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return {};
  constexpr unsigned char kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  if (ident[EI_DATA] != kOrder) return {};
  if (ident[EI_CLASS] == ELFCLASS64) return id_of<Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr>(fd);
  return ident[EI_CLASS] == ELFCLASS32 ? id_of<Elf32_Ehdr, Elf32_Phdr, Elf32_Shdr>(fd) : std::string();
}

}  // namespace ptd
