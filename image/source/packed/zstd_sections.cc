// Sections of ELF files that are compressed with zstd (ELFCOMPRESS_ZSTD).
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <zstd.h>

#include <cstring>
#include <span>

#include "image/base/interrupt.h"
#include "image/base/mapped_file.h"
#include "image/source/packed/unpack.h"

namespace ptd {
namespace {

constexpr uint32_t kZstd = 2;  // ELFCOMPRESS_ZSTD

/// A file in memory, mapped to be written.
class MemoryFile {
 public:
  explicit MemoryFile(uint64_t size_bytes) : fd_(::memfd_create("ptdecode-sections", MFD_CLOEXEC)) {
    if (!fd_.ok() || ::ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0) return;
    void* at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (at != MAP_FAILED) bytes_ = {static_cast<std::byte*>(at), size_bytes};
  }
  ~MemoryFile() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }  ///< empty if there is no memory
  /// Gives the memory of a part back.
  void drop(uint64_t offset, uint64_t size) const {
    (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size));
  }
  [[nodiscard]] Fd release() { return std::move(fd_); }

 private:
  Fd fd_;
  std::span<std::byte> bytes_;
};

template <class Section>
struct Packed {
  uint64_t header_at = 0;  // of the section header
  Section before{}, after{};
  Bytes content;  // compressed, within the file
};

template <class Header, class Section, class Chdr>
class ZstdSections {
 public:
  ZstdSections(Bytes file, uint64_t written) : file_(file), end_(aligned(file.size())), most_(most_unpacked_bytes(written)) {}

  Result<Fd> unpack() {
    if (!find()) return Error{ErrorCode::bad_compression, "its sections would uncompress to far more than their size", 0};
    if (packed_.empty()) return Fd();
    if (file_.size() > most_) return Error{ErrorCode::bad_compression, "it is far larger than what was written of it", 0};
    MemoryFile copy(end_);
    if (copy.bytes().empty()) return Error{ErrorCode::out_of_memory, "no memory for its sections", 0};
    std::memcpy(copy.bytes().data(), file_.data(), file_.size());
    for (const Packed<Section>& each : packed_) copy.drop(each.before.sh_offset, each.before.sh_size);
    for (const Packed<Section>& each : packed_) {
      check_interrupt();
      const auto output = copy.bytes().subspan(each.after.sh_offset, each.after.sh_size);
      if (ZSTD_decompress(output.data(), output.size(), each.content.data(), each.content.size()) != output.size())
        return Error{ErrorCode::bad_compression, "compressed data is damaged", 0};
      std::memcpy(copy.bytes().data() + each.header_at, &each.after, sizeof each.after);
    }
    return copy.release();
  }

 private:
  static constexpr uint64_t kAlign = 16;
  static uint64_t aligned(uint64_t at) { return (at + kAlign - 1) / kAlign * kAlign; }

  /// Returns false if the sections would take too much memory or time: those of a valid file do not overlap.
  bool find() {
    const auto header = number_at<Header>(file_, 0);
    if (header.e_shoff == 0 || header.e_shoff >= file_.size() || header.e_shentsize != sizeof(Section)) return true;
    const uint64_t in_file = (file_.size() - header.e_shoff) / sizeof(Section);
    const uint64_t count =
        std::min<uint64_t>(header.e_shnum != 0 ? header.e_shnum : number_at<Section>(file_, header.e_shoff).sh_size, in_file);
    uint64_t packed_left = file_.size(), left = most_;
    for (uint64_t i = 0; i < count; ++i) {
      Packed<Section> each;
      each.header_at = header.e_shoff + i * sizeof(Section);
      each.before = each.after = number_at<Section>(file_, each.header_at);
      const Section& section = each.before;
      if ((section.sh_flags & SHF_COMPRESSED) == 0 || section.sh_type == SHT_NOBITS) continue;
      if (section.sh_offset > file_.size() || section.sh_size > file_.size() - section.sh_offset || section.sh_size < sizeof(Chdr))
        continue;
      const auto about = number_at<Chdr>(file_, section.sh_offset);
      if (about.ch_type != kZstd) continue;
      if (section.sh_size > packed_left || about.ch_size > left) return false;
      packed_left -= section.sh_size;
      left -= about.ch_size;
      each.content = file_.subspan(section.sh_offset + sizeof(Chdr), section.sh_size - sizeof(Chdr));
      each.after.sh_flags &= ~decltype(each.after.sh_flags){SHF_COMPRESSED};
      each.after.sh_offset = static_cast<decltype(each.after.sh_offset)>(end_);
      each.after.sh_size = about.ch_size;
      each.after.sh_addralign = about.ch_addralign;
      if (each.after.sh_offset != end_) return false;  // a 32-bit file
      end_ = aligned(end_ + about.ch_size);
      packed_.push_back(each);
    }
    return true;
  }

  Bytes file_;
  uint64_t end_;   // of the copy
  uint64_t most_;  // bytes of all sections, uncompressed, and of the file
  std::vector<Packed<Section>> packed_;
};

}  // namespace

Result<Fd> unpack_zstd_sections(int fd, const std::string& path) {
  const auto file = MappedFile::open(fd, path);
  if (!file.ok()) return file.error();
  const Bytes bytes = (*file)->bytes();
  const uint64_t written = written_bytes(fd);
  if (bytes.size() < EI_NIDENT || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0 || bytes[EI_DATA] != std::byte{ELFDATA2LSB}) return Fd();
  if (bytes[EI_CLASS] == std::byte{ELFCLASS64}) return ZstdSections<Elf64_Ehdr, Elf64_Shdr, Elf64_Chdr>(bytes, written).unpack();
  if (bytes[EI_CLASS] == std::byte{ELFCLASS32}) return ZstdSections<Elf32_Ehdr, Elf32_Shdr, Elf32_Chdr>(bytes, written).unpack();
  return Fd();
}

}  // namespace ptd
