// PerfReader: reads a perf.data file, pipe or directory as records in time order, features and AUX payloads.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/features.h"
#include "perfio/format/records.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// The damage found while reading; everything before it is kept.
struct ReadDamage {
  /// Bytes that were skipped because a record header is damaged, up to where records follow again.
  struct Hole {
    uint64_t offset_bytes = 0, size_bytes = 0;
    uint32_t file = 0;  ///< see Record::file
  };
  std::vector<Hole> holes;  ///< those of one file in order
  /// A file that ends before what it announced.
  struct Cut {
    uint32_t file = 0;
    uint64_t offset_bytes = 0;  ///< where reading ended: the file's size if all of it was read
  };
  std::vector<Cut> cuts;              ///< at most one a file
  std::vector<std::string> files;     ///< their names, by Record::file; empty if the recording is one file
  uint32_t file = 0;                  ///< the one that is being read
  bool in_header = false;             ///< the header of file 0 is damaged or unfinished, and records were read without it
  bool unfinished = false;            ///< the recorder did not write the size of the records: a header with size 0
  uint64_t bad_records = 0;           ///< skipped one by one
  uint64_t oversized_records = 0;     ///< of a wrong size: what follows their content is read as the records that it is
  uint64_t late_records = 0;          ///< delivered after a record of a later time, because the recording or the buffer's bound forced it
  std::vector<std::string> messages;  ///< one sentence each, with offset; at most 32
  uint64_t unknown_records = 0;       ///< of types that a newer kernel or perf writes: skipped, and no damage
  std::set<uint32_t> unknown_types;   ///< at most 16

  [[nodiscard]] bool cut() const { return !cuts.empty(); }
  /// Returns how sentences name a file.
  [[nodiscard]] std::string name_of(uint32_t number) const { return number < files.size() ? files[number] : "the file"; }
  /// Returns a sentence on the records of unknown types; empty if there are none.
  [[nodiscard]] std::string unknown_text() const;
};

/// Limits of the sort buffer. The defaults fit every recording from perf.
struct ReadLimits {
  uint64_t max_queued_records = 1U << 20;
  uint64_t max_queued_bytes = 512ULL << 20;  ///< decompressed bytes held for records that wait; mapped ones cost nothing
  bool allow_outside = false;                ///< links in a recording's folder may lead out of it
};

/// Opens and reads once; records come sorted by time within FINISHED_ROUND bounds (a bounded buffer), records without time in file order.
/// The mapping (or, for a pipe, a spooled temporary file) lives as long as the reader; AuxtraceRecord payloads view it.
class PerfReader {
 public:
  /// `path`: perf.data file, a perf.data directory (holding `data`), or "-" for standard input.
  static Result<std::unique_ptr<PerfReader>> open(const std::string& path) { return open(path, ReadLimits()); }
  static Result<std::unique_ptr<PerfReader>> open(const std::string& path, const ReadLimits& limits);
  virtual ~PerfReader() = default;

  [[nodiscard]] virtual const std::vector<EventAttr>& attrs() const = 0;
  /// In the pipe form, features are records and are complete only after read().
  [[nodiscard]] virtual const Features& features() const = 0;
  /// Paths of PATH/kcore_dir* if the recording has them (directory form), sorted: the host's first, then guests' (kcore_dir__PID).
  [[nodiscard]] virtual const std::vector<std::string>& kcore_dirs() const = 0;
  [[nodiscard]] virtual uint64_t size_bytes() const = 0;
  /// The mapped file (directory form: `data`), for tools that copy bytes. Valid as long as the reader.
  [[nodiscard]] virtual Bytes file_bytes() const = 0;
  /// Returns all mapped files of the recording, read-only. Valid as long as the reader.
  [[nodiscard]] virtual std::vector<Bytes> mappings() const = 0;
  /// True for the pipe form.
  [[nodiscard]] virtual bool is_pipe() const = 0;
  /// Calls `on_record` for each record in order; returning false stops. An unreadable rest ends reading with ok, and damage() reports it.
  virtual Status read(const std::function<bool(const Record&)>& on_record) = 0;
  [[nodiscard]] virtual const ReadDamage& damage() const = 0;
};

}  // namespace ptd::perfio
