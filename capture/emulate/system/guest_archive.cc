// GuestArchive: entries of a newc archive.
#include "capture/emulate/system/guest_archive.h"

#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "capture/emulate/shared/guest_config.h"
#include "image/base/system_error.h"

namespace ptd::emulate {
namespace {

class ArchiveWriter {
 public:
  explicit ArchiveWriter(const std::string& path) : out_(path, std::ios::binary) {}
  void add(const std::string& name, unsigned mode, const std::string& content) {
    // magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    std::array<char, 111> head{};
    (void)std::snprintf(head.data(), head.size(), "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", ++inode_, mode, 0U, 0U, 1U,
                        0U, static_cast<unsigned>(content.size()), 0U, 0U, 0U, 0U, static_cast<unsigned>(name.size() + 1), 0U);
    put(head.data());
    put(name + '\0');
    pad();
    put(content);
    pad();
  }
  bool finish() {
    add("TRAILER!!!", 0, {});
    return static_cast<bool>(out_.flush());
  }

 private:
  void put(const std::string& bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    written_ += bytes.size();
  }
  void pad() { put(std::string((4 - written_ % 4) % 4, '\0')); }
  std::ofstream out_;
  size_t written_ = 0;
  unsigned inode_ = 0;
};

Result<std::string> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && content.empty()) return system_error("cannot read " + path, ErrorCode::read_failed);
  return content;
}

}  // namespace

Status write_guest_archive(const std::string& path, const std::string& guest, const std::string& config,
                           const std::vector<std::string>& modules) {
  ArchiveWriter archive(path);
  for (const char* folder : {"dev", "proc", "sys", "modules"}) archive.add(folder, S_IFDIR | 0755, {});
  const Result<std::string> init = content_of(guest);
  if (!init) return init.error();
  archive.add("init", S_IFREG | 0755, *init);
  archive.add(kGuestConfigFile, S_IFREG | 0600, config);
  unsigned number = 10;  // two digits: loaded in the order of the names
  for (const std::string& module : modules) {
    const Result<std::string> content = content_of(module);
    if (!content) return content.error();
    archive.add("modules/" + std::to_string(number++) + "-" + std::filesystem::path(module).filename().string(), S_IFREG | 0644, *content);
  }
  if (!archive.finish()) return system_error("cannot write " + path, ErrorCode::write_failed);
  return {};
}

}  // namespace ptd::emulate
