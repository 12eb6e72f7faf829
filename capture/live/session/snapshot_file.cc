// Snapshots as files: see snapshot_file.h.
#include "capture/live/session/snapshot_file.h"

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "image/base/system_error.h"
#include "image/base/whole_file.h"

namespace ptd::live {
namespace {

Status copy_all(int from, int to, const std::string& name) {
  std::vector<char> buffer(1U << 20);
  for (off_t at = 0;;) {
    const ssize_t got = pread(from, buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("the snapshot", ErrorCode::read_failed);
    if (got == 0) return {};
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = write(to, buffer.data() + done, static_cast<size_t>(got - done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return system_error("cannot write " + name, ErrorCode::write_failed);
      done += put;
    }
    at += got;
  }
}

}  // namespace

Status save_snapshot(int memory, const std::string& output) {
  if (output == "-") return copy_all(memory, 1, "standard output");
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(output, kRecordingOutput);
  if (!file) return file.error();
  if (Status status = copy_all(memory, (*file)->fd(), output); !status) return status;
  return (*file)->finish();
}

}  // namespace ptd::live
