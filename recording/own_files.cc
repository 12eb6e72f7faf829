// Files that belong to a recording.
#include "recording/own_files.h"

#include <algorithm>
#include <filesystem>

namespace ptd {

OwnFiles::Opened OwnFiles::open(const std::string& path) const {
  Opened opened;
  const std::string name = name_below(folder_, path);
  RegularFile regular = open_beneath(folder_, name.empty() ? path : name);
  std::error_code error;
  for (size_t i = 0; i < roots_.size() && regular.outside; ++i)
    regular = roots_[i] == "/" ? open_regular(path) : open_beneath(roots_[i], std::filesystem::absolute(path, error).string());
  opened.outside = regular.outside;
  auto file = MappedFile::open(regular, path);
  if (file.ok()) opened.file = std::move(file).value();
  if (!opened.file) opened.why = regular.fd.ok() ? "cannot be read" : regular.why();
  return opened;
}

std::string own_folder(const std::string& recording) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(recording, error).lexically_normal();
  return std::filesystem::is_directory(path, error) ? path.string() : path.string() + ".jit";
}

perfio::ReadLimits read_limits(const OpenOptions& options) {
  perfio::ReadLimits limits;
  limits.allow_outside = std::find(options.symfs.begin(), options.symfs.end(), "/") != options.symfs.end();
  return limits;
}

}  // namespace ptd
