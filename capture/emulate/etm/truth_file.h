// Ground truth files: the instructions that really ran, compressed (docs/FORMAT-truth.md).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/emulate/unit/truth_log.h"
#include "perfio/output_file.h"
#include "perfio/zstd_stream.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

/// What a block of a truth file is.
struct TruthBlock {
  uint64_t ip = 0;
  std::vector<uint8_t> lengths;  ///< bytes of each instruction
  std::vector<std::byte> bytes;
};

/// Calls `on_record(tag, fields)` for each whole record of a raw log (TruthLog), and `on_passed(bytes)` for stretches of it that are done.
void for_each_log_record(Bytes log, const std::function<void(uint64_t tag, const std::array<uint64_t, 3>& field)>& on_record,
                         const std::function<void(Bytes)>& on_passed);

/// Writes one truth file from raw logs (TruthLog), which name blocks by the numbers of a BlockStore.
class TruthFileWriter {
 public:
  using Lookup = std::function<const TruthBlock*(uint64_t number)>;
  static Result<std::unique_ptr<TruthFileWriter>> create(const std::string& path);
  /// Appends the records of a log up to its last whole one; `lookup` gives the blocks that the log does not define, whose numbers are
  /// this log's own.
  /// `stream_base_bytes` is added to the offsets of PSBs. `on_passed` is called with stretches of the log that are done. A log that ends
  /// early (killed) is fine. Errors: of the file system; file_format for a log that names an unknown block.
  Status append(Bytes log, const Lookup& lookup, uint64_t stream_base_bytes, const std::function<void(Bytes)>& on_passed);
  Status finish();

 private:
  TruthFileWriter() = default;
  Status write_out(size_t at_least);
  void put_definition(uint64_t ip, Bytes lengths, Bytes code);
  bool take_definition(Bytes& log, const std::array<uint64_t, 3>& field);
  uint32_t local_number(uint64_t number, const Lookup& lookup, bool& known);
  std::unique_ptr<perfio::OutputFile> file_;
  std::unique_ptr<perfio::ZstdCompressor> compressor_;
  std::vector<std::byte> raw_, packed_;
  std::vector<uint32_t> numbers_;  ///< of this log: local number + 1, 0 if not used yet
  uint32_t next_ = 0;
};

/// One record; `block` is set for block and part and lives as long as the reader.
struct TruthRecord {
  TruthTag tag = TruthTag::end;
  const TruthBlock* block = nullptr;
  uint32_t first = 0, count = 0;       ///< instructions of the block that retired
  uint64_t offset_bytes = 0, tsc = 0;  ///< psb
  TruthEvent event = TruthEvent::software_interrupt;
  uint64_t ip = 0;  ///< event
};

/// Reads a truth file record by record. Memory is bounded by the blocks that the file defines, and these by its size.
class TruthFileReader {
 public:
  /// True if the file begins as a truth file does.
  [[nodiscard]] static bool is_truth_file(const std::string& path);
  /// Errors: file_open; file_format for another version.
  static Result<std::unique_ptr<TruthFileReader>> open(const std::string& path);
  ~TruthFileReader();
  /// The next record (definitions are kept inside); false at the end or at damage, which error() then tells.
  bool next(TruthRecord& record);
  [[nodiscard]] const std::string& error() const;

 private:
  struct State;
  explicit TruthFileReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ptd::emulate
