// AnnounceRing: a memfd of another process.
#include "capture/announce/announce_ring.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "announce/ptd_announce.h"
#include "image/base/system_error.h"

namespace ptd::announce {
namespace {

constexpr uint64_t kMostRingBytes = 256U << 20, kLeastRingBytes = 4096, kMostMaps = 1U << 18, kPageBytes = 4096;
constexpr uint64_t kSlotBytes = sizeof(ptd_announce_slot);
constexpr uint64_t kMostRecordBytes = sizeof(ptd_announce_record) + PTD_ANNOUNCE_CHUNK_BYTES;

std::string proc(int32_t pid, const std::string& name) { return "/proc/" + std::to_string(pid) + "/" + name; }

// The process's own number for itself: the last of "NSpid:	outer	...	inner".
int32_t inner_pid(int32_t pid) {
  std::ifstream status(proc(pid, "status"));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream words(line.substr(6));
    int32_t number = pid;
    while (words >> number) {
    }
    return number;
  }
  return pid;
}

// The device of all memfds. A process chooses the name that its mapping shows, but not this.
uint64_t memfd_device() {
  static std::atomic<uint64_t> device{0};
  if (device == 0) {  // also after a failure, for which this process may have had too many files open
    const Fd fd(memfd_create(PTD_ANNOUNCE_MEMFD, MFD_CLOEXEC));
    struct stat info {};
    if (fd.ok() && fstat(fd.get(), &info) == 0) device = info.st_dev;
  }
  return device;
}

// Opens a file of another process: O_NONBLOCK, because the process may hold a lease on it, which would delay the open.
Fd open_again(const std::string& path) { return Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)); }

bool is_place(int fd, const RingPlace& place) {
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_dev == place.device && info.st_ino == place.inode;
}

// The folder in /proc of the process, or of one of its threads if the first one has ended: that has no memory.
std::string memory_folder(int32_t pid) {
  const auto has_memory = [](const std::string& folder) {
    std::array<char, 2> start{};
    return readlink((folder + "exe").c_str(), start.data(), start.size()) >= 0;
  };
  std::string folder = proc(pid, "");
  if (has_memory(folder)) return folder;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder + "task", error), end; !error && at != end; at.increment(error)) {
    if (const std::string thread = "/proc/" + at->path().filename().string() + "/"; has_memory(thread)) return thread;
  }
  return folder;
}

// Opens the mapped file through the process's descriptors; root can also open it through the mapping if they are closed.
Fd open_place(int32_t pid, const RingPlace& place) {
  std::error_code error;
  const std::string process = memory_folder(pid), folder = process + "fd";
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat info {};
    if (stat(at->path().c_str(), &info) != 0 || info.st_dev != place.device || info.st_ino != place.inode) continue;
    Fd fd = open_again(at->path());
    if (fd.ok() && is_place(fd.get(), place)) return fd;
  }
  std::array<char, 64> range{};
  (void)std::snprintf(range.data(), range.size(), "map_files/%llx-%llx", static_cast<unsigned long long>(place.address),
                      static_cast<unsigned long long>(place.end));
  Fd fd = open_again(process + range.data());
  return fd.ok() && is_place(fd.get(), place) ? std::move(fd) : Fd();
}

// Pages that a process could take away while they are read would end the reader: only what is sealed is mapped.
bool is_safe(int fd, uint32_t uid) {
  struct stat info {};
  struct statfs system {};
  if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0) return false;
  const int seals = fcntl(fd, F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  return S_ISREG(info.st_mode) && system.f_type == TMPFS_MAGIC && seals >= 0 && (seals & kNeeded) == kNeeded && info.st_uid == uid;
}

Error untrusted(int32_t pid) {
  return Error{ErrorCode::untrusted_file,
               "the announcements of process " + std::to_string(pid) + " are not in a sealed memfd of its user: not read", 0};
}

bool lock(int fd) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

template <class T>
T load(const T& place) {
  return __atomic_load_n(&place, __ATOMIC_ACQUIRE);
}

}  // namespace

bool has_ended(int32_t pid) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(proc(pid, "task"), error), end; !error && at != end; at.increment(error)) {
    std::array<char, 128> start{};  // number, name of at most 64 bytes, state
    const Fd file(::open((at->path() / "stat").c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t got = file.ok() ? ::read(file.get(), start.data(), start.size()) : -1;
    if (got < 0 && (errno == ENOENT || errno == ESRCH)) continue;  // it ended meanwhile
    const std::string_view text(start.data(), got > 0 ? static_cast<size_t>(got) : 0);
    const size_t state = text.rfind(") ");
    if (state == std::string_view::npos || state + 2 >= text.size() || (text[state + 2] != 'Z' && text[state + 2] != 'X')) return false;
  }
  return !error || error == std::errc::no_such_file_or_directory || error == std::errc::no_such_process;
}

bool is_readable(int32_t pid) { return std::ifstream(memory_folder(pid) + "maps").peek() != std::ifstream::traits_type::eof(); }

std::vector<RingPlace> find_rings(int32_t pid) {
  std::vector<RingPlace> places;
  std::ifstream maps(memory_folder(pid) + "maps");
  uint64_t lines = 0;
  for (std::string line; lines < kMostMaps && std::getline(maps, line); ++lines) {
    if (line.find("/memfd:" PTD_ANNOUNCE_MEMFD " (deleted)") == std::string::npos) continue;
    unsigned long long first = 0, end = 0, offset = 0, inode = 0;
    unsigned major_number = 0, minor_number = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx %*4s %llx %x:%x %llu", &first, &end, &offset, &major_number, &minor_number, &inode) != 6 ||
        offset != 0)
      continue;
    const RingPlace place{first, end, makedev(major_number, minor_number), inode};
    if (place.device == memfd_device()) places.push_back(place);
  }
  return places;
}

Result<std::unique_ptr<AnnounceRing>> AnnounceRing::open(int32_t pid, const RingPlace& place) {
  std::unique_ptr<AnnounceRing> ring(new AnnounceRing);
  ring->place_ = place;
  ring->fd_ = open_place(pid, place);
  struct stat process {};
  if (!ring->fd_.ok() || stat(proc(pid, "").c_str(), &process) != 0)
    return Error{ErrorCode::permission_denied, "the announcements of process " + std::to_string(pid) + " cannot be opened", 0};
  if (Status status = ring->map(pid, process.st_uid); !status) return status.error();
  return ring;
}

Result<std::unique_ptr<AnnounceRing>> AnnounceRing::adopt(int32_t pid, uint32_t uid, Fd file) {
  std::unique_ptr<AnnounceRing> ring(new AnnounceRing);
  struct stat info {};
  // Checked before it is opened: opening a device, which an O_PATH descriptor may be of, can have effects or block.
  if (fcntl(file.get(), F_GET_SEALS) < 0 || fstat(file.get(), &info) != 0) return untrusted(pid);
  ring->place_ = {0, 0, info.st_dev, info.st_ino};
  // Its lock is on the open file, which the process shares: the reader opens its own, which ends with it.
  ring->fd_ = open_again(proc(getpid(), "fd/" + std::to_string(file.get())));
  if (!ring->fd_.ok()) return system_error("the announcements of process " + std::to_string(pid), ErrorCode::read_failed);
  if (Status status = ring->map(pid, uid); !status) return status.error();
  return ring;
}

Status AnnounceRing::map(int32_t pid, uint32_t uid) {
  const std::string name = "the announcements of process " + std::to_string(pid);
  if (!is_safe(fd_.get(), uid)) return untrusted(pid);
  ptd_announce_header header{};
  struct stat info {};
  if (pread(fd_.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) || fstat(fd_.get(), &info) != 0 ||
      std::memcmp(header.magic, PTD_ANNOUNCE_MAGIC, sizeof header.magic) != 0)
    return Error{ErrorCode::bad_header, name + " have no valid header: not read", 0};
  if (header.version != PTD_ANNOUNCE_VERSION)
    return Error{ErrorCode::bad_version,
                 name + " are in version " + std::to_string(header.version) + " of the format; this program knows version " +
                     std::to_string(PTD_ANNOUNCE_VERSION),
                 0};
  const auto size = static_cast<uint64_t>(info.st_size);
  const bool is_power = header.ring_bytes != 0 && (header.ring_bytes & (header.ring_bytes - 1)) == 0;
  if (!is_power || header.ring_bytes < kLeastRingBytes || header.ring_bytes > kMostRingBytes || header.ring_offset % 4096 != 0 ||
      header.ring_offset < sizeof header || header.ring_offset > size || header.ring_bytes > size - header.ring_offset ||
      size > 2 * kMostRingBytes)
    return Error{ErrorCode::bad_header, name + " have a header that contradicts the size of the ring: not read", 0};
  if (!lock(fd_.get())) return Error{ErrorCode::busy, name + " are read by another recorder", 0};
  void* const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) return system_error(name + " cannot be mapped", ErrorCode::out_of_memory);
  base_ = static_cast<char*>(base);
  mapped_bytes_ = size;
  ring_offset_ = header.ring_offset;
  ring_bytes_ = header.ring_bytes;
  instance_ = header.instance;
  owner_ = static_cast<int32_t>(header.pid);
  from_start_ = (header.flags & PTD_ANNOUNCE_HEADER_FROM_START) != 0;
  tail_ = header.tail - header.tail % 8;
  return {};
}

AnnounceRing::~AnnounceRing() {
  if (base_ != nullptr) (void)munmap(base_, mapped_bytes_);
}

bool AnnounceRing::is_of(int32_t pid) const { return inner_pid(pid) == owner_; }

#define RING_HEADER (*reinterpret_cast<ptd_announce_header*>(base_))

void AnnounceRing::ask_forked() { (void)__atomic_fetch_or(&RING_HEADER.word, PTD_ANNOUNCE_WORD_FORKED, __ATOMIC_ACQ_REL); }

uint64_t AnnounceRing::enable(bool continues) {
  const bool on = (load(RING_HEADER.word) & PTD_ANNOUNCE_WORD_RING) != 0;
  const bool whole = on && (continues || (from_start_ && tail_ == 0));  // everything that it announced is in the ring
  const uint64_t first = whole ? 0 : given_out();
  if (!whole) {
    // What an earlier reader left is not read.
    const uint64_t head = load(RING_HEADER.head);
    tail_ = head - head % 8;
    release();
  }
  // First the channel, then the question: an answer must find the channel on.
  (void)__atomic_fetch_or(&RING_HEADER.word, PTD_ANNOUNCE_WORD_RING, __ATOMIC_ACQ_REL);
  if (!whole) (void)__atomic_fetch_add(&RING_HEADER.generation, 1, __ATOMIC_ACQ_REL);
  return first;
}

void AnnounceRing::disable() {
  (void)__atomic_fetch_and(&RING_HEADER.word, ~(PTD_ANNOUNCE_WORD_RING | PTD_ANNOUNCE_WORD_FORKED), __ATOMIC_ACQ_REL);
}

void AnnounceRing::copy_out(uint64_t position, void* to, uint64_t size_bytes) const {
  if (size_bytes == 0) return;
  const uint64_t at = position & (ring_bytes_ - 1), first = std::min(size_bytes, ring_bytes_ - at);
  std::memcpy(to, base_ + ring_offset_ + at, first);
  std::memcpy(static_cast<char*>(to) + first, base_ + ring_offset_, size_bytes - first);
}

// Takes the record at the tail, if it is complete. Its size is copied once, so that it cannot change after it was checked.
bool AnnounceRing::take(const std::function<void(Bytes record)>& on_record) {
  const auto* stamp = reinterpret_cast<const uint64_t*>(base_ + ring_offset_ + (tail_ & (ring_bytes_ - 1)));
  if (load(*stamp) != (tail_ | 1)) return false;
  ptd_announce_slot slot{};
  copy_out(tail_, &slot, sizeof slot);
  if (slot.record_bytes > kMostRecordBytes || slot.record_bytes > ring_bytes_ - kSlotBytes) return false;
  record_.resize(slot.record_bytes);
  copy_out(tail_ + kSlotBytes, record_.data(), slot.record_bytes);
  tail_ += (kSlotBytes + slot.record_bytes + 7) / 8 * 8;
  on_record(record_);
  return true;
}

uint64_t AnnounceRing::read(const std::function<void(Bytes record)>& on_record, uint64_t most) {
  uint64_t count = 0;
  while (count < most && take(on_record)) ++count;
  return count;
}

void AnnounceRing::release() { __atomic_store_n(&RING_HEADER.tail, tail_, __ATOMIC_RELEASE); }

// Returns the first position from `position` on, at most `end`, whose page was written. To read a hole would allocate its page.
uint64_t AnnounceRing::past_hole(uint64_t position, uint64_t end) const {
  const uint64_t at = position & (ring_bytes_ - 1), rest = std::min(ring_bytes_ - at, end - position);
  const auto offset = static_cast<off_t>(ring_offset_ + at);
  const off_t data = lseek(fd_.get(), offset, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? position + rest : position;
  return position + std::min(rest, static_cast<uint64_t>(data - offset));
}

uint64_t AnnounceRing::read_rest(const std::function<void(Bytes record)>& on_record) {
  const uint64_t first = tail_, end = tail_ + ring_bytes_;
  uint64_t searched = 0, read = tail_;
  for (uint64_t next = tail_; tail_ < end; tail_ = next) {
    const bool new_page = tail_ % kPageBytes == 0 || tail_ == first;
    next = new_page ? past_hole(tail_, end) : tail_;
    if (next != tail_) continue;
    if (take(on_record)) {
      next = read = tail_;
    } else {
      next += 8;
      searched += 8;
    }
  }
  tail_ = read;
  return searched;
}

uint64_t AnnounceRing::given_out() const { return load(RING_HEADER.next_seq); }

}  // namespace ptd::announce
