// Perf map reader.
#include "image/source/perf_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "image/base/read_files.h"
#include "image/base/system_error.h"

namespace ptd {
namespace {

constexpr size_t kMostNameBytes = 4096;

// Removes a hex number and the following blank from the front.
bool take_hex(std::string_view& text, uint64_t& value) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

bool parse_line(std::string_view text, PerfMapLine& line) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (!take_hex(text, line.address) || !take_hex(text, line.size_bytes)) return false;
  line.name = text.substr(0, kMostNameBytes);
  return !line.name.empty() && line.size_bytes != 0 && line.size_bytes <= ~line.address;
}

Error cannot(ErrorCode code, const std::string& path, const std::string& why) { return Error{code, path + ": " + why, 0}; }

}  // namespace

std::string perf_map_path(int32_t pid) { return "/tmp/perf-" + std::to_string(pid) + ".map"; }

Result<std::string> read_own_perf_map(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ELOOP) return cannot(ErrorCode::not_regular_file, path, "a symbolic link");
  if (fd < 0) return cannot(code_of_errno(errno), path, "cannot be opened");
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } const closer{fd};
  struct stat info {};
  note_read_file(fd);
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return cannot(ErrorCode::not_regular_file, path, "not a regular file");
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return cannot(ErrorCode::untrusted_file, path, "belongs neither to this user nor to root");
  if (static_cast<uint64_t>(info.st_size) > kMostPerfMapBytes) return cannot(ErrorCode::too_large, path, "too large");
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(fd, text.data() + done, text.size() - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

void read_perf_map(std::string_view text, const std::function<bool(const PerfMapLine&)>& on_line) {
  while (!text.empty()) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    const size_t before = text.rfind('\n');  // the line before, or npos
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    PerfMapLine line;
    if (parse_line(text.substr(begin), line) && !on_line(line)) return;
    text = text.substr(0, begin);
  }
}

}  // namespace ptd
