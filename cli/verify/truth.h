// Ground truth of a trace: checkpoints over the executed instructions, and the running comparison with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/base/fnv.h"
#include "ptdecode/error.h"
#include "ptdecode/flow.h"

namespace ptd::cli {

/// After `count` instructions: FNV-1a-64 over their little-endian 8-byte addresses, the same over their bytes, the last address.
struct Checkpoint {
  uint64_t count = 0, ip_hash = 0, byte_hash = 0, last_ip = 0;
};

/// Reads "count hash hash last-ip tsc" lines; '#' starts a comment; the last line's address may be "end".
[[nodiscard]] Result<std::vector<Checkpoint>> read_truth(const std::string& path);
/// N of "...cpuN...", or -1.
[[nodiscard]] int32_t cpu_of_path(const std::string& path);

/// Follows a decode and compares at every checkpoint. Each window between checkpoints is compared independently, as long as the number of
/// instructions fits.
class TruthCheck {
 public:
  explicit TruthCheck(std::vector<Checkpoint> truth) : truth_(std::move(truth)) {}
  void instruction(Ip ip, Bytes bytes, bool uncertain);
  /// No more instructions come.
  void end() { ended_ = true; }

  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] uint64_t expected_count() const { return truth_.empty() ? 0 : truth_.back().count; }
  /// Returns false if the last line's address is not "end": the file may be cut after a line.
  [[nodiscard]] bool has_end() const { return !truth_.empty() && truth_.back().last_ip == 0; }
  [[nodiscard]] uint64_t flagged() const { return flagged_; }
  [[nodiscard]] size_t right_windows() const { return right_; }
  [[nodiscard]] size_t windows() const { return truth_.size(); }
  [[nodiscard]] uint64_t right_instructions() const { return right_instructions_; }
  [[nodiscard]] bool equal() const { return ended_ && right_ == truth_.size() && count_ == expected_count(); }
  /// The first window that differs; null if none does.
  struct Difference {
    Checkpoint want, got;
  };
  [[nodiscard]] const Difference* first_difference() const { return has_difference_ ? &difference_ : nullptr; }

 private:
  void compare();

  std::vector<Checkpoint> truth_;
  size_t next_ = 0, right_ = 0;
  uint64_t count_ = 0, flagged_ = 0, right_instructions_ = 0;
  uint64_t ip_hash_ = kFnvStart, byte_hash_ = kFnvStart, last_ip_ = 0;
  Difference difference_;
  bool has_difference_ = false, ended_ = false;
};

}  // namespace ptd::cli
