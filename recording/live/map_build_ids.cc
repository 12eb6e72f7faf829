// MapBuildIds: see map_build_ids.h.
#include "recording/live/map_build_ids.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <vector>

namespace ptd::live {
namespace {

constexpr size_t kMostNoteBytes = 64 << 10, kMostSegments = 256;
constexpr size_t kMostIdBytes = 20;  // of an MMAP2 record

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

template <class Header, class Segment>
std::string id_of(int fd) {
  Header header{};
  if (!read_at(fd, 0, &header, sizeof(header)) || header.e_phentsize != sizeof(Segment) || header.e_phnum > kMostSegments) return {};
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!read_at(fd, header.e_phoff + i * sizeof(segment), &segment, sizeof(segment))) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz == 0 || segment.p_filesz > kMostNoteBytes) continue;
    std::vector<std::byte> notes(static_cast<size_t>(segment.p_filesz));
    if (!read_at(fd, segment.p_offset, notes.data(), notes.size())) continue;
    std::string id = id_in_notes(notes);
    if (!id.empty()) return id;
  }
  return {};
}

int open_mapped(const perfio::MmapRecord& map) {
  constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const std::string process = "/proc/" + std::to_string(map.pid);
  std::array<char, 64> range{};
  std::snprintf(range.data(), range.size(), "/map_files/%llx-%llx", static_cast<unsigned long long>(map.addr),  // NOLINT: format
                static_cast<unsigned long long>(map.addr + map.size_bytes));
  int fd = open((process + range.data()).c_str(), kHow);
  const bool by_mapping = fd >= 0;
  if (!by_mapping) fd = open((process + "/root" + map.path).c_str(), kHow);
  struct stat info {};
  if (fd < 0) return -1;
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const bool same = info.st_ino == map.inode && major(info.st_dev) == map.maj && minor(info.st_dev) == map.min;
  if (regular && (by_mapping || same)) return fd;
  close(fd);
  return -1;
}

}  // namespace

std::string read_build_id(int fd) {
  std::array<unsigned char, EI_NIDENT> ident{};
  if (!read_at(fd, 0, ident.data(), ident.size()) || std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return {};
  constexpr unsigned char kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  if (ident[EI_DATA] != kOrder) return {};
  if (ident[EI_CLASS] == ELFCLASS64) return id_of<Elf64_Ehdr, Elf64_Phdr>(fd);
  return ident[EI_CLASS] == ELFCLASS32 ? id_of<Elf32_Ehdr, Elf32_Phdr>(fd) : std::string();
}

const std::string& MapBuildIds::of(const perfio::MmapRecord& map) {
  if (map.inode == 0 || map.pid <= 0 || !map.path.starts_with('/')) return none_;
  const auto known = known_.find({map.maj, map.min, map.inode});
  if (known != known_.end()) return known->second;
  const int fd = open_mapped(map);
  if (fd < 0) return none_;
  std::string id = read_build_id(fd);
  close(fd);
  if (known_.size() >= kMostFiles) known_.clear();
  return known_[{map.maj, map.min, map.inode}] = std::move(id);
}

}  // namespace ptd::live
