// CodeModel: the bytes that a reader of the recording expects at an address; bytes that differ must be recorded.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "image/base/mapped_file.h"

namespace ptd::emulate {

/// A file mapped by the program.
struct UserMap {
  uint64_t ip = 0, size_bytes = 0, file_offset_bytes = 0;
  uint32_t major = 0, minor = 0;
  uint64_t inode = 0;
  uint32_t prot = 0;
  std::string path;
  /// Of read_build_id(), when the mapping was made; "": the file has none; null: it could not be read.
  std::optional<std::string> build_id;
  int64_t written_at_ns = 0;  ///< when it was last written to at that time, since the epoch; 0: unknown
  [[nodiscard]] uint64_t end() const { return ip + size_bytes; }
};

/// One address space as the records so far describe it: files (MMAP2) and generated code (jitdump), the newest on top. No record reports
/// munmap, so nothing is removed. Copies share the files.
class CodeModel {
 public:
  void add_file(const UserMap& map);
  /// The record of a mapping that exists already (mprotect): its memory keeps code that was written to it.
  void add_file_again(const UserMap& map);
  /// Returns the file that was mapped; null if it is no longer there, if its path names another file now, or if it was written to since and
  /// has no build id. A reader uses none of these.
  std::shared_ptr<const MappedFile> file_of(const UserMap& map);
  /// Whether the file that was mapped, or another one with its inode, is there and was written to since.
  [[nodiscard]] bool is_rewritten(const UserMap& map);
  /// True if a reader would find these bytes at `ip`.
  [[nodiscard]] bool shows(uint64_t ip, Bytes code) const;
  /// The bytes are reported from now on.
  void add_code(uint64_t ip, Bytes code);
  /// Calls f(ip, bytes) for each run of code in [first, last] that is in no file.
  template <class F>
  void for_each_code(uint64_t first, uint64_t last, F&& f) const {
    for (auto page = pages_.lower_bound(first / kPageBytes); page != pages_.end() && page->first <= last / kPageBytes; ++page) {
      const uint64_t base = page->first * kPageBytes;
      const size_t stop = std::min<uint64_t>(kPageBytes - 1, last - base) + 1;
      for (size_t at = first > base ? first - base : 0; at < stop;) {
        size_t end = at;
        while (end < stop && page->second.known[end]) ++end;
        if (end > at) f(base + at, Bytes(page->second.bytes).subspan(at, end - at));
        at = end + 1;
      }
    }
  }

 private:
  struct Opened;
  const Opened* opened_of(const UserMap& map);
  static constexpr uint64_t kPageBytes = 4096;
  struct Page {
    std::array<std::byte, kPageBytes> bytes{};
    std::array<bool, kPageBytes> known{};
  };
  struct File {
    uint64_t end = 0, file_offset_bytes = 0;
    std::shared_ptr<const MappedFile> file;
  };
  void cut(uint64_t first, uint64_t end);
  std::map<uint64_t, File> files_;  // by start; they do not overlap
  std::map<uint64_t, Page> pages_;
  struct Opened {
    std::shared_ptr<const MappedFile> file;
    FileId id;
    std::string build_id;  ///< of read_build_id()
  };
  std::unordered_map<std::string, Opened> opened_;
};

}  // namespace ptd::emulate
