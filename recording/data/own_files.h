// OwnFiles: opens the files that belong to a recording. Private to recording.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "image/base/mapped_file.h"
#include "perfio/perf_reader.h"
#include "recording/data/open_request.h"

namespace ptd {

/// Opens files that a recording's description (a snapshot's ini, trace.json) names: those in the folder of the description, and those below
/// a root that the user gives. Thread-safe.
class OwnFiles {
 public:
  /// `folder`: of the description; "" for the working directory. `options`: their symfs roots count, and whether a bundle is made.
  OwnFiles(std::string folder, const OpenRequest& options);
  /// Opens any file that the user names.
  static OwnFiles any();

  struct Opened {
    std::shared_ptr<const MappedFile> file;   ///< null: see why
    std::string why;                          ///< a sentence fragment for people
    ErrorCode code = ErrorCode::read_failed;  ///< of why
    bool outside = false;                     ///< not read because it lies outside of the folder
  };
  /// `path`: absolute, or relative to the working directory.
  [[nodiscard]] Opened open(const std::string& path) const;
  /// Same for a file with code. An ELF file outside the folder is read too, with `outside` set, because snapshots share images. Such a file
  /// never goes into a bundle.
  [[nodiscard]] Opened open_code(const std::string& path) const;

 private:
  std::string folder_;
  std::vector<std::string> roots_;
  bool share_ = false;  ///< the bytes are for a bundle
};

/// Returns the folder of a recording: the directory itself, or for a file FILE the folder FILE.jit from `ptdecode record --emulate`.
[[nodiscard]] std::string own_folder(const std::string& recording);

/// Returns the PerfReader options for a recording.
[[nodiscard]] perfio::ReadLimits read_limits(const OpenRequest& options);

}  // namespace ptd
