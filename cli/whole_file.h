// WholeFile: an output file that is there in whole or not at all.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "cli/exit_status.h"
#include "cli/options.h"
#include "cli/output.h"

namespace ptd::cli {

/// Written beside its place and moved there at the end. Not thread-safe.
class WholeFile {
 public:
  explicit WholeFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {}
  ~WholeFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(part_.c_str());
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  [[nodiscard]] bool open() { return (file_ = std::fopen(part_.c_str(), "wb")) != nullptr; }
  bool write(std::string_view text) {
    good_ = good_ && std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    return good_;
  }
  /// Puts the file in its place; false if anything could not be written.
  [[nodiscard]] bool finish() {
    good_ = std::fclose(std::exchange(file_, nullptr)) == 0 && good_;
    good_ = good_ && std::rename(part_.c_str(), path_.c_str()) == 0;
    if (!good_) std::remove(part_.c_str());
    return good_;
  }

 private:
  const std::string path_, part_;
  std::FILE* file_ = nullptr;
  bool good_ = true;
};

/// Says that `path` cannot be written; the exit status.
inline int cannot_write(const std::string& path) { return report_error({ErrorKind::file_open, path + ": cannot be written", 0}); }

/// Writes a result to `path`, to standard output if that is empty; the exit status. A reader of standard output that has had enough is
/// fine.
inline int write_result(const std::string& path, std::string_view text) {
  if (path.empty()) {
    Output& output = standard_output();
    output.write(text);
    output.flush();
    return output.error() != 0 ? report_error({ErrorKind::file_open, "standard output cannot be written", 0}) : kExitOk;
  }
  WholeFile file(path);
  if (!file.open()) return cannot_write(path);
  file.write(text);
  return file.finish() ? kExitOk : cannot_write(path);
}

}  // namespace ptd::cli
