// Ground truth of a trace: see truth.h.
#include "cli/verify/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>

#include "image/base/mapped_file.h"

namespace ptd::cli {

Result<std::vector<Checkpoint>> read_truth(const std::string& path) {
  constexpr size_t kMostLineBytes = 256;
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);  // a FIFO or a device may not end
  if (!file) return file.error();
  const Bytes contents = (*file)->bytes();
  std::string_view rest(reinterpret_cast<const char*>(contents.data()), contents.size());
  std::vector<Checkpoint> truth;
  if (!rest.empty() && !rest.ends_with('\n') && !rest.ends_with(" end")) {
    return Error{ErrorCode::truncated, fmt::format("{}: the truth is cut: it ends inside a line", path), rest.size()};
  }
  while (!rest.empty()) {
    const size_t length = std::min(rest.find('\n'), rest.size());
    const std::string line(rest.substr(0, std::min(length, kMostLineBytes)));
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.empty() || line.front() == '#') continue;
    Checkpoint point;
    char last[32] = "";
    unsigned long long count = 0, ips = 0, bytes = 0, ip = 0;
    const bool has_sign = line.find_first_of("+-") != std::string::npos;  // which sscanf would accept
    if (has_sign || std::sscanf(line.c_str(), "%llu %llx %llx %31s", &count, &ips, &bytes, last) != 4) {
      return Error{ErrorCode::bad_format, fmt::format("{}: '{}' is not a checkpoint", path, line.substr(0, 80)), 0};
    }
    if (std::sscanf(last, "%llx", &ip) != 1 || std::string_view(last) == "end") ip = 0;
    point = Checkpoint{count, ips, bytes, ip};
    if (!truth.empty() && point.count <= truth.back().count) {
      return Error{ErrorCode::contradictory_record, fmt::format("{}: checkpoints are not in order", path), 0};
    }
    truth.push_back(point);
  }
  if (truth.empty()) return Error{ErrorCode::missing_part, fmt::format("{}: no checkpoints", path), 0};
  return truth;
}

int32_t cpu_of_path(const std::string& path) {
  const size_t at = path.rfind("cpu");
  int cpu = -1;
  if (at != std::string::npos && std::sscanf(path.c_str() + at, "cpu%d", &cpu) == 1) return cpu;
  return -1;
}

void TruthCheck::instruction(Ip ip, Bytes bytes, bool uncertain) {
  ip_hash_ = fnv1a(std::as_bytes(std::span(&ip.value, 1)), ip_hash_);
  byte_hash_ = fnv1a(bytes, byte_hash_);
  last_ip_ = ip.value;
  flagged_ += uncertain ? 1 : 0;
  if (next_ < truth_.size() && ++count_ == truth_[next_].count) {
    compare();
  } else if (next_ >= truth_.size()) {
    ++count_;
  }
}

void TruthCheck::compare() {
  const Checkpoint& want = truth_[next_];
  if (want.ip_hash == ip_hash_ && want.byte_hash == byte_hash_) {
    ++right_;
    right_instructions_ += want.count - (next_ == 0 ? 0 : truth_[next_ - 1].count);
  } else if (!has_difference_) {
    has_difference_ = true;
    difference_ = {want, Checkpoint{count_, ip_hash_, byte_hash_, last_ip_}};
  }
  ip_hash_ = want.ip_hash;  // the next window is compared independently
  byte_hash_ = want.byte_hash;
  ++next_;
}

}  // namespace ptd::cli
