// The files that this process has read, so that no output replaces one of them.
#pragma once

#include <string>

namespace ptd {

/// While an object exists, the process notes which regular files it reads; after the last one, it forgets them. The command line has one
/// for its whole run, and the library has one in each call that reads a recording and writes a file. Any thread.
class ReadFilesScope {
 public:
  ReadFilesScope();
  ~ReadFilesScope();
  ReadFilesScope(const ReadFilesScope&) = delete;
  ReadFilesScope& operator=(const ReadFilesScope&) = delete;
};

/// Notes the file of a descriptor, by device and inode. Every function that opens an input calls it.
void note_read_file(int fd);
/// Same for the file at a path, which counts as an input without being opened.
void note_read_file(const std::string& path);

/// Returns whether the file at `path` was noted, by this or another name of it.
[[nodiscard]] bool was_read(const std::string& path);

}  // namespace ptd
