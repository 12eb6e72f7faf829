// Build ids: see mapped_file_id.h. The plugin links no ELF library.
#include "capture/emulate/plugin/mapped_file_id.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "image/base/mapped_file.h"

namespace ptd::emulate {
namespace {

constexpr uint64_t kMostNoteBytes = 64 * 1024;
constexpr int kMostSegments = 1024, kMostNotes = 16;

bool read_at(int fd, void* to, size_t bytes, uint64_t offset) {
  return offset <= INT64_MAX && pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string id_in_notes(const std::vector<char>& notes, uint64_t align) {
  const auto padded = [&](uint64_t bytes) { return (bytes + align - 1) / align * align; };
  for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note{};
    std::memcpy(&note, notes.data() + at, sizeof note);
    const uint64_t name = at + sizeof note, content = name + padded(note.n_namesz), end = content + note.n_descsz;
    if (end > notes.size()) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" && std::memcmp(notes.data() + name, "GNU", sizeof "GNU") == 0)
      return std::string(notes.data() + content, note.n_descsz);
    at = content + padded(note.n_descsz);
  }
  return {};
}

}  // namespace

std::string build_id_of(int fd) {
  Elf64_Ehdr head{};
  if (!read_at(fd, &head, sizeof head, 0) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_phentsize != sizeof(Elf64_Phdr))
    return {};
  int notes = 0;
  for (int i = 0; i < std::min<int>(head.e_phnum, kMostSegments) && notes < kMostNotes; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(fd, &segment, sizeof segment, head.e_phoff + static_cast<uint64_t>(i) * sizeof segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz == 0) continue;
    ++notes;
    std::vector<char> bytes(std::min(segment.p_filesz, kMostNoteBytes));
    if (!read_at(fd, bytes.data(), bytes.size(), segment.p_offset)) continue;
    std::string id = id_in_notes(bytes, segment.p_align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return {};
}

// /proc/self/maps and stat() name the same file differently on some file systems (overlayfs, btrfs), so a mapping is compared with one.
int open_mapped(const std::string& path, unsigned major, unsigned minor, unsigned long inode) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  const auto file = MappedFile::open(fd, {});
  const FileId found = file.ok() ? (*file)->mapped_id() : FileId();
  if (file.ok() && found.inode == inode && found.maj == major && found.min == minor) return fd;
  close(fd);
  return -1;
}

bool build_id_of(const std::string& path, unsigned major, unsigned minor, unsigned long inode, std::string& id) {
  const int fd = open_mapped(path, major, minor, inode);
  if (fd < 0) return false;
  id = build_id_of(fd);
  close(fd);
  return true;
}

}  // namespace ptd::emulate
