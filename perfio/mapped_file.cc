// Mapping and spooling.
#include "perfio/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "image/base/fd.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

Error system_error(const std::string& what) { return Error{ErrorKind::file_open, what + ": " + std::strerror(errno), 0}; }

bool write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

/// False as soon as the first bytes are those of no recording: then the rest, perhaps endless, need not be read to refuse it.
bool may_be_recording(const char* data, size_t size) {
  uint64_t magic = 0;
  if (size < sizeof magic) return true;
  std::memcpy(&magic, data, sizeof magic);
  return magic == kPerfMagic2 || magic == kPerfMagic2Swapped || magic == kPerfMagic1;
}

Result<Fd> spool(int from, const std::string& path) {
  const char* directory = std::getenv("TMPDIR");
  std::string name = std::string(directory != nullptr && *directory != '\0' ? directory : "/tmp") + "/ptdecode-XXXXXX";
  Fd to(::mkostemp(name.data(), O_CLOEXEC));
  if (to.get() < 0) return system_error("cannot create a temporary file at " + name);
  ::unlink(name.c_str());
  std::vector<char> buffer(1U << 18);
  size_t filled = 0;
  bool first = true, more = true;
  while (more) {
    const ssize_t got = ::read(from, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read " + path);
    filled += static_cast<size_t>(got);
    more = got != 0;
    if (more && first && filled < sizeof(uint64_t)) continue;  // a pipe may give its magic in pieces
    if (first && !may_be_recording(buffer.data(), filled)) more = false;
    first = false;
    if (!write_all(to.get(), buffer.data(), filled)) return system_error("cannot spool " + path + " to " + name);
    filled = 0;
  }
  return to;
}

// Advice that does not fit (memory of a test, no mapping) is refused by the system and changes nothing.
void advise(Bytes bytes, int advice) { (void)::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), advice); }

}  // namespace

ScatteredRead::ScatteredRead(Bytes mapping) : mapping_(mapping) {
  if (mapping_.size() >= kScatteredBytes) advise(mapping_, MADV_RANDOM);
}

ScatteredRead::~ScatteredRead() {
  if (mapping_.size() >= kScatteredBytes) advise(mapping_, MADV_NORMAL);
}

uint64_t read_window(Bytes mapping, uint64_t offset_bytes) {
  constexpr uint64_t kWindow = 256U << 10, kPage = 4096;
  if (mapping.size() < kScatteredBytes || offset_bytes >= mapping.size()) return ~uint64_t{0};
  const uint64_t first = offset_bytes / kPage * kPage, end = std::min<uint64_t>(first + kWindow, mapping.size());
  advise(mapping.subspan(first, end - first), MADV_WILLNEED);
  return end;
}

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const bool standard_input = path == "-";
  Fd fd(standard_input ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error("cannot open " + path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return system_error("cannot stat " + path);
  if (S_ISDIR(status.st_mode)) return Error{ErrorKind::file_open, path + " is a directory", 0};
  if (!S_ISREG(status.st_mode)) {
    auto spooled = spool(fd.get(), path);
    if (!spooled) return spooled.error();
    fd = std::move(spooled.value());
    if (standard_input && ::dup2(fd.get(), STDIN_FILENO) < 0) return system_error("cannot save the data from standard input");
  }
  return map(fd.get(), path);
}

Result<std::unique_ptr<MappedFile>> MappedFile::open(const RegularFile& file, const std::string& path) {
  if (!file.fd.ok()) return Error{ErrorKind::file_open, "cannot open " + path + ": " + file.why(), 0};
  return map(file.fd.get(), path);
}

Result<std::unique_ptr<MappedFile>> MappedFile::map(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error("cannot stat " + path);
  std::unique_ptr<MappedFile> file(new MappedFile());
  if (status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return system_error("cannot map " + path);
    file->bytes_ = Bytes(static_cast<const std::byte*>(at), size);
  }
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace ptd::perfio
