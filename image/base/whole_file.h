// WholeFile: atomic output files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "image/base/fd.h"
#include "ptdecode/error.h"

namespace ptd {

/// A result on its way to the place that a user named. What a path leads to decides how:
///   - nothing, or a regular file: written beside it under a name of its own (with the process id, never through a link), which finish()
///     puts in its place. A symbolic link stays; what it leads to is replaced, or made. The permissions of what is replaced stay.
///     A link that another user put into a folder that all may write to is refused;
///   - a descriptor of this process (/dev/stdout, /dev/fd/63, process substitution) and "-", standard output: written straight, to the
///     descriptor itself, so that `>> file` appends;
///   - a device, a FIFO, another link of procfs: opened and written straight, never replaced.
/// One thread.
class WholeFile {
 public:
  /// `mode`: the permissions that a regular file may have at most, before the umask. Errors: file_open. A FIFO is waited for until somebody
  /// reads.
  static Result<std::unique_ptr<WholeFile>> open(const std::string& path, unsigned mode = 0666);
  /// Removes what was written unless finish() put it in its place.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// False once nothing more needs to be written: it failed, or the reader of what is written straight has had enough, which is no error.
  bool write(std::string_view text);
  /// Puts the file in its place. Errors: file_open, of any write() too.
  [[nodiscard]] Status finish();
  /// Where to write instead of write(): stays this object's.
  [[nodiscard]] int fd() const { return fd_; }
  /// True if it goes to something that is not replaced.
  [[nodiscard]] bool straight() const { return temporary_.empty(); }

 private:
  WholeFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  bool flush();
  [[nodiscard]] Error failed() const;

  int fd_;
  std::string path_;                // as it was named
  std::string target_, temporary_;  // a regular file's place, and where it is until finish(); "": written straight
  std::string pending_;
  int error_ = 0;
  bool closed_ = false;  // the reader went
};

/// Makes a file that only this user may read (mode 0600) and that grows where it is, so that a killed process leaves what it has written.
/// Follows and refuses links as WholeFile does; a regular file that is there is removed, a device or FIFO is opened. Errors: file_open.
[[nodiscard]] Result<Fd> create_private(const std::string& path);

}  // namespace ptd
