// Files that belong to a recording.
#include "recording/data/own_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "recording/data/image_log.h"

namespace ptd {

OwnFiles::OwnFiles(std::string folder, const OpenRequest& options)
    : folder_(folder.empty() ? "." : std::move(folder)), roots_(options.symfs), share_(options.image_log && options.image_log->share) {}

OwnFiles OwnFiles::any() {
  OpenRequest options;
  options.symfs = {"/"};
  return {{}, options};
}

OwnFiles::Opened OwnFiles::open(const std::string& path) const {
  Opened opened;
  const std::string name = name_below(folder_, path);
  RegularFile regular = open_beneath(folder_, name.empty() ? path : name);
  std::error_code error;
  for (size_t i = 0; i < roots_.size() && regular.outside; ++i)
    regular = roots_[i] == "/" ? open_regular(path) : open_beneath(roots_[i], std::filesystem::absolute(path, error).string());
  opened.outside = regular.outside;
  auto file = MappedFile::open(regular, path);
  if (file.ok()) {
    opened.file = std::move(file).value();
  } else {
    opened.code = file.error().code;
    opened.why = regular.fd.ok() ? "cannot be read" : regular.why();
  }
  return opened;
}

OwnFiles::Opened OwnFiles::open_code(const std::string& path) const {
  static constexpr std::string_view kElfMagic = "\177ELF";
  Opened opened = open(path);
  if (!opened.outside || opened.file || share_) return opened;
  const auto file = MappedFile::open(open_recorded(path), path);
  if (!file.ok()) return opened;
  const Bytes bytes = (*file)->bytes();
  if (bytes.size() < kElfMagic.size() || std::memcmp(bytes.data(), kElfMagic.data(), kElfMagic.size()) != 0) return opened;
  return {*file, {}, opened.code, true};
}

std::string own_folder(const std::string& recording) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(recording, error).lexically_normal();
  return std::filesystem::is_directory(path, error) ? path.string() : path.string() + ".jit";
}

perfio::ReadLimits read_limits(const OpenRequest& options) {
  perfio::ReadLimits limits;
  limits.allow_outside = std::find(options.symfs.begin(), options.symfs.end(), "/") != options.symfs.end();
  return limits;
}

}  // namespace ptd
