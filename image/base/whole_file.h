// WholeFile: atomic output files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "image/base/fd.h"
#include "ptdecode/error.h"

namespace ptd {

inline constexpr std::string_view kBundleMagic = "PTDBUNDL";  ///< the first bytes of a bundle

/// What a recording or its code begins with.
enum class FileKind : uint8_t {
  other,
  recording,  ///< perf.data, in either byte order
  bundle,
  program,  ///< ELF: a program, a library, debug information, kcore
  jitdump,
};

/// Returns the kind of a regular file by its first bytes; `other` for anything else, and if the file cannot be read.
[[nodiscard]] FileKind file_kind(const std::string& path);
/// Returns "a recording" and so on; "" for `other`.
[[nodiscard]] std::string_view name_of(FileKind kind);

/// How an output file treats a file that is already at its path.
struct OutputRules {
  unsigned mode = 0666;             ///< the maximum permissions of a regular file, before the umask
  FileKind kind = FileKind::other;  ///< what is written: files of this kind may be replaced
  bool keep_old = false;            ///< the file at the path is renamed to PATH.old, as perf does
};

/// Of recordings.
inline constexpr OutputRules kRecordingOutput{0600, FileKind::recording, true};

/// Refuses a path that cannot be written because of its folder (not with keep_old), or whose file must not be lost: a file that this
/// process has read (read_files.h), and a recording, bundle, program, library or jitdump that is not of `rules.kind`. With keep_old, a file
/// that was read is allowed, and PATH.old, which is lost, is checked too. Errors: bad_output, write_failed.
[[nodiscard]] Status check_output(const std::string& path, const OutputRules& rules = {});

/// Refuses the path of a recording if the program to be recorded is there, or at PATH.old and would be replaced by the file at `path`. A
/// script has no kind that check_output() knows. Errors: bad_output.
[[nodiscard]] Status check_not_program(const std::string& path, const std::string& program);

/// Renames `path` to PATH.old. Errors: write_failed, permission_denied.
[[nodiscard]] Status keep_as_old(const std::string& path);
/// The same for the place of a recording, a file or perf's directory form; an earlier PATH.old is lost. Returns false if nothing is there,
/// or a device. Errors: also bad_output, for a directory that is no recording.
[[nodiscard]] Result<bool> keep_old_recording(const std::string& path);

/// An output file at a path that a user named. What exists at the path decides how it is written:
///   - nothing, or a regular file: written to a temporary file next to it (named with the process id, never through a link), which
///     finish() renames. A replaced file keeps its permissions;
///   - a symbolic link to a regular file or to nothing: the link itself is replaced, and the file it names is never written. A link that
///     another user created in a world-writable folder is refused;
///   - a descriptor of this process (/dev/stdout, /dev/fd/63, process substitution) and "-", standard output: written directly to the
///     descriptor, so that `>> file` appends;
///   - a device, a FIFO, another procfs link, or a symbolic link to one: opened and written directly, never replaced.
/// Not thread-safe.
class WholeFile {
 public:
  /// Errors: those of check_output(); file_open. Opening a FIFO waits for a reader.
  static Result<std::unique_ptr<WholeFile>> open(const std::string& path, const OutputRules& rules = {});
  /// Removes the temporary file unless finish() has renamed it.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// Returns false once nothing more needs to be written: a write failed, or the reader of a pipe has closed it, which is not an error.
  bool write(std::string_view text);
  /// Renames the file to its final path. Errors: file_open, also for an earlier failed write(); those of check_output(), for a file that
  /// was read only after open(). After an error, the path has its earlier file.
  [[nodiscard]] Status finish();
  /// Returns the descriptor, for writing without write(). It stays owned by this object.
  [[nodiscard]] int fd() const { return fd_; }
  /// Returns true if the output is written directly, without a temporary file.
  [[nodiscard]] bool straight() const { return temporary_.empty(); }

 private:
  WholeFile(int fd, std::string path, const OutputRules& rules) : fd_(fd), path_(std::move(path)), rules_(rules) {}
  bool replace();
  bool flush();
  [[nodiscard]] Error failed() const;

  int fd_;
  std::string path_;  // as the user gave it
  OutputRules rules_;
  std::string temporary_;  // its path until finish(); "": written directly
  std::string pending_;
  int error_ = 0;
  bool closed_ = false;  // the reader closed the pipe
};

/// Creates a file that only this user may read (mode 0600) and that is written in place, so that the data of a killed process remains.
/// Replaces and refuses links like WholeFile. An existing regular file is removed; a device or FIFO is opened. Errors: file_open.
[[nodiscard]] Result<Fd> create_private(const std::string& path);

/// Removes the temporary files of this process's WholeFiles that are not finished (of 16 at most). Async-signal-safe: for a handler that
/// ends the process.
void remove_unfinished_files();
/// Makes SIGTERM, SIGHUP and SIGQUIT do so before they end the process, if they have their default action. For a program's main(); a
/// library must not change the actions of its host.
void remove_temporaries_on_signals();

}  // namespace ptd
