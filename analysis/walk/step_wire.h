// The blocks and steps of step files. Private to analysis/walk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/call_flow.h"
#include "image/base/mapped_file.h"
#include "image/base/whole_file.h"
#include "ptdecode/error.h"
#include "recording/bundle/bundle_wire.h"

namespace ptd {

inline constexpr std::string_view kStepsMagic = "PTDSTEPS", kAllStepsMagic = "PTDSTALL";
inline constexpr uint32_t kStepsVersion = 4;
inline constexpr size_t kStepBlockBytes = 1U << 20;
/// Kinds of blocks. `first` of a block: the number of its first step, in the file with all steps.
enum class StepBlock : uint64_t { head, steps, totals, end };

/// Writes and reads steps, each relative to the one before.
class StepCoder {
 public:
  /// Makes the next step independent of the ones before.
  void restart() { last_ = {}, fresh_ = true; }
  /// `extra`: added to the first number. Functions are given as numbers in the file.
  void write(ByteWriter& out, const FlowStep& step, uint64_t function, uint64_t from, uint64_t extra);
  /// `word`: the first number, without `extra`. `ids`: functions by number.
  FlowStep read(ByteReader& in, uint64_t word, const std::vector<FunctionId>& ids);
  /// The last step; groups change its time.
  FlowStep& last() { return last_; }
  static constexpr uint64_t kMostWord = ((static_cast<uint64_t>(FlowKind::switch_out) + 1) << 4) - 1;

 private:
  FlowStep last_;
  bool fresh_ = true;
};

/// Writes a block.
void put_step_block(WholeFile& file, StepBlock kind, uint64_t first, Bytes content);
/// Writes what a file begins with.
void put_step_header(WholeFile& file, std::string_view magic, uint64_t plan, uint32_t unit);

/// The blocks of a file.
class StepBlocks {
 public:
  struct Block {
    StepBlock kind = StepBlock::head;
    uint64_t first = 0;
    std::vector<std::byte> content;
  };
  /// Sets `plan` and `unit` to those of the file. Errors: those of MappedFile; bad_magic, unsupported_version, truncated, bad_format.
  [[nodiscard]] Status open(const std::string& path, std::string_view magic, uint64_t& plan, uint32_t& unit);
  /// The next block. Errors: truncated, bad_checksum, bad_format.
  [[nodiscard]] Result<Block> next();
  /// Passes blocks of steps as long as the one after them begins at `first` or before.
  void skip_to(uint64_t first);
  [[nodiscard]] Error damaged(ErrorCode code, const char* what) const { return Error{code, path() + ": " + what, at_}; }
  [[nodiscard]] const std::string& path() const { return file_->path(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  uint64_t at_ = 0;
};

}  // namespace ptd
