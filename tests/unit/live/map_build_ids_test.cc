// Build ids of mapped files: compared with libelf, and for files that are truncated or inconsistent.
#include "capture/live/kernel/map_build_ids.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "capture/live/kernel/start_scan.h"
#include "image/source/build_id.h"
#include "image/source/build_id_note.h"
#include "image/source/elf_file.h"

namespace ptd::live {
namespace {

/// A file in memory.
class Held {
 public:
  explicit Held(const std::string& bytes) : fd_(memfd_create("elf", MFD_CLOEXEC)) { (void)!write(fd_, bytes.data(), bytes.size()); }
  ~Held() { close(fd_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  [[nodiscard]] std::string id() const { return hex_of(read_build_id(fd_)); }

 private:
  int fd_;
};

template <class T>
void put(std::string& to, size_t at, const T& value) {
  if (to.size() < at + sizeof(value)) to.resize(at + sizeof(value));
  std::memcpy(to.data() + at, &value, sizeof(value));
}

/// Returns an ELF file with one PT_NOTE segment, after a note of another kind.
template <class Header, class Segment>
std::string made(unsigned char elf_class, uint32_t id_bytes, uint64_t claimed_bytes = 0) {
  Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  header.e_phentsize = sizeof(Segment);
  std::string notes;
  put(notes, 0, Elf64_Nhdr{3, 5, 1});
  notes += std::string("XY\0\0", 4) + std::string("12345\0\0\0", 8);
  put(notes, notes.size(), Elf64_Nhdr{4, id_bytes, NT_GNU_BUILD_ID});
  notes += std::string("GNU\0", 4);
  for (uint32_t i = 0; i < id_bytes; ++i) notes += static_cast<char>(i + 1);
  Segment segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = static_cast<decltype(segment.p_filesz)>(claimed_bytes != 0 ? claimed_bytes : notes.size());
  std::string file;
  put(file, 0, header);
  put(file, sizeof(header), segment);
  return file + notes;
}

TEST(MapBuildIds, OfOwnMappingsAreLibelfs) {
  MapBuildIds ids;
  std::set<std::string> paths;
  (void)scan_process(getpid(), [&](const perfio::Payload& payload, const perfio::RecordContext&) {
    const auto* map = std::get_if<perfio::MmapRecord>(&payload);
    if (map == nullptr || !map->path.starts_with('/')) return Status();
    const auto elf = ElfFile::open(map->path);
    if (elf.ok()) {
      EXPECT_EQ(hex_of(ids.of(*map)), (*elf)->build_id()) << map->path;
    }
    if (elf.ok() && !(*elf)->build_id().empty()) paths.insert(map->path);
    perfio::MmapRecord other = *map;
    other.inode += 1;
    other.addr += 4096;  // no such mapping: falls back to the path, which is another file's
    EXPECT_EQ(MapBuildIds().of(other), "");
    return Status();
  });
  EXPECT_GE(paths.size(), 3U) << "program, libc, libstdc++";
}

TEST(MapBuildIds, OfBothClasses) {
  const std::string want = "0102030405060708090a0b0c0d0e0f1011121314";
  EXPECT_EQ((Held(made<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, 20)).id()), want);
  EXPECT_EQ((Held(made<Elf32_Ehdr, Elf32_Phdr>(ELFCLASS32, 20)).id()), want);
  EXPECT_EQ((Held(made<Elf32_Ehdr, Elf32_Phdr>(ELFCLASS32, 8)).id()), want.substr(0, 16));
  EXPECT_EQ((Held(made<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, 21)).id()), "") << "longer than a record takes";
}

/// Returns the file of made() with the notes in a section of the same place and no segment.
template <class Header, class Segment, class Section>
std::string with_section(unsigned char elf_class) {
  std::string file = made<Header, Segment>(elf_class, 20);
  Header header{};
  Segment segment{};
  std::memcpy(&header, file.data(), sizeof(header));
  std::memcpy(&segment, file.data() + header.e_phoff, sizeof(segment));
  Section section{};
  section.sh_type = SHT_NOTE;
  section.sh_offset = segment.p_offset;
  section.sh_size = segment.p_filesz;
  segment.p_type = PT_NULL;
  put(file, header.e_phoff, segment);
  header.e_shoff = static_cast<decltype(header.e_shoff)>(file.size());
  header.e_shnum = 2;
  header.e_shentsize = sizeof(section);
  put(file, 0, header);
  put(file, file.size(), Section{});
  put(file, file.size(), section);
  return file;
}

TEST(MapBuildIds, OfASectionThatNoSegmentContains) {
  const std::string want = "0102030405060708090a0b0c0d0e0f1011121314";
  EXPECT_EQ((Held(with_section<Elf32_Ehdr, Elf32_Phdr, Elf32_Shdr>(ELFCLASS32)).id()), want);
  const std::string whole = with_section<Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr>(ELFCLASS64);
  EXPECT_EQ(Held(whole).id(), want);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(Held(whole.substr(0, size)).id(), "") << size;
  for (size_t at = 0; at < whole.size(); ++at) {  // each byte wrong in turn: the result is some id, or none
    std::string spoiled = whole;
    spoiled[at] = static_cast<char>(~spoiled[at]);
    EXPECT_LE(Held(spoiled).id().size(), 40U);
  }
}

TEST(MapBuildIds, OfFilesThatAreCutOrLie) {
  const std::string whole = made<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, 20);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(Held(whole.substr(0, size)).id(), "") << size;
  for (size_t at = 0; at < whole.size(); ++at) {  // each byte wrong in turn: the result is some id, or none
    std::string spoiled = whole;
    spoiled[at] = static_cast<char>(~spoiled[at]);
    EXPECT_LE(Held(spoiled).id().size(), 40U);
  }
  EXPECT_EQ((Held(made<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, 20, ~0ULL)).id()), "");
  EXPECT_EQ((Held(made<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, 20, 60000)).id()), "");
  EXPECT_EQ(Held("#!/bin/sh\n").id(), "");
}

}  // namespace
}  // namespace ptd::live
