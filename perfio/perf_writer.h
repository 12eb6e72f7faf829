// PerfWriter: writes a perf.data file or directory record by record; its memory does not grow with the recording.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perfio/format/feature_encode.h"
#include "perfio/output_file.h"
#include "perfio/perf_reader.h"
#include "perfio/zstd_stream.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// Options that are needed before the first record.
struct WriterOptions {
  std::vector<EventAttr> attrs;  ///< with ids. perf 6.1 wants PERF_SAMPLE_IP in the sample_type of an Intel PT event
  bool directory = false;        ///< PATH/data, so that add_kcore_dir() works; else PATH is the file
  int compression_level = 0;     ///< above 0: kernel records go into COMPRESSED records (zstd)
  bool pipe = false;             ///< the pipe form, to `fd`: nothing is written twice
  int fd = -1;                   ///< open already, instead of PATH, which is its name in messages then
};

/// The data of a record besides its payload.
struct RecordContext {
  SampleId sample_id;
  uint32_t attr_index = 0;  ///< whose sample_type shapes the trailer
  uint16_t misc = 0;        ///< cpumode (kMiscKernel, kMiscUser, ...); bits that the payload implies are added
};

struct IdIndexEntry {
  uint64_t id = 0, idx = 0;
  int64_t cpu = -1, tid = -1;
};

/// Writes files that stock perf reads. create() writes the header with a data size of 0: a file without finish() looks like one whose
/// recorder was killed. Errors: of the file system, or `usage` for a record that cannot be written (too long). Not thread-safe.
class PerfWriter {
 public:
  static Result<std::unique_ptr<PerfWriter>> create(const std::string& path, const WriterOptions& options);
  ~PerfWriter();

  Status add_mmap(const MmapRecord& record, const RecordContext& context);   ///< MMAP
  Status add_mmap2(const MmapRecord& record, const RecordContext& context);  ///< MMAP2, with build id if there is one
  /// SWITCH or SWITCH_CPU_WIDE.
  Status add_switch(const SwitchRecord& record, const RecordContext& context) { return add(record, context); }
  Status add_sample(const OtherSample& record, const RecordContext& context) { return add(record, context); }
  Status add_text_poke(const TextPokeRecord& record, const RecordContext& context) { return add(record, context); }
  Status add_lost(const LostRecord& record, const RecordContext& context) { return add(record, context); }  ///< LOST or LOST_SAMPLES
  Status add_aux(const AuxRecord& record, const RecordContext& context) { return add(record, context); }
  Status add_auxtrace_info(const AuxtraceInfoRecord& record) { return add(record, {}); }
  Status add_auxtrace_error(const AuxtraceErrorRecord& record) { return add(record, {}); }
  Status add_time_conv(const TimeConvRecord& record) { return add(record, {}); }
  /// Writes record.payload after the record, padded with zeros (PT: PAD packets) to 8 bytes, and notes it in the index; size_bytes is set
  /// from the payload. A reference of 0 is replaced by 1: perf 6.1 crashes on 0.
  Status add_auxtrace(const AuxtraceRecord& record) { return add_auxtrace(record, {}); }
  /// Same with a payload in two parts, as in a ring that wraps.
  Status add_auxtrace(const AuxtraceRecord& record, Bytes second_piece);
  Status add_id_index(const std::vector<IdIndexEntry>& entries);
  Status add_finished_round();
  Status add_finished_init();
  /// Writes any payload by its type; MmapRecord as MMAP2.
  Status add(const Payload& payload, const RecordContext& context);
  /// Writes a complete record as bytes, with the data after it (AUXTRACE, HEADER_TRACING_DATA). The header must match its size.
  Status add_raw(Bytes record, Bytes payload = {});

  /// Sets the feature sections that finish() writes: the fields of `features` that are set, and EVENT_DESC from the names of attrs. The
  /// AUXTRACE index, COMPRESSED and DIR_FORMAT are added automatically.
  void set_features(const Features& features);
  /// Sets one section as bytes; replaces one with the same bit.
  void set_feature_bytes(uint32_t bit, Bytes bytes);
  /// Directory form: copies the files kcore, kallsyms and modules (those that exist) of `source_dir` to PATH/`name`.
  Status add_kcore_dir(const std::string& source_dir, const std::string& name = "kcore_dir");

  /// Writes everything added so far to the file, in whole records. A partial write is truncated again.
  Status flush();
  /// Returns the size of the file including buffers; after flush() exactly its length.
  [[nodiscard]] uint64_t size_bytes() const { return file_->size_bytes(); }
  /// After another process wrote the file through the same object before a fork(): truncates it to `size_bytes`, its size after a flush(),
  /// and continues there.
  Status continue_from(uint64_t size_bytes);

  /// Writes the feature sections and the final header, and closes. If the features do not fit (a full disk), the file is
  /// complete without them and an error is returned.
  Status finish();

 private:
  PerfWriter(std::unique_ptr<OutputFile> file, std::string path, WriterOptions options);
  Status write_start();
  Status write_record(Bytes record);
  Status flush_compressed();
  Status write_compressed(Bytes compressed);
  Status write_features();
  Status write_pipe_start();
  Status write_pipe_features();
  void add_own_features();
  [[nodiscard]] std::vector<std::byte> header(uint64_t data_size_bytes) const;
  [[nodiscard]] const EventAttr& attr_of(uint32_t index) const;

  std::unique_ptr<OutputFile> file_;
  std::string path_;
  WriterOptions options_;
  EventAttr no_attr_;
  size_t attr_bytes_ = 0;
  uint64_t attrs_offset_ = 0, data_offset_ = 0;
  std::vector<AuxtraceIndexEntry> index_;
  FeatureSections features_;
  std::unique_ptr<ZstdCompressor> compressor_;
  std::vector<std::byte> to_compress_;
  std::vector<std::byte> scratch_;
  bool finished_ = false;
};

/// Copies the files kcore, kallsyms and modules (those that exist) from one directory to another, which is created.
[[nodiscard]] Status copy_kcore_dir(const std::string& from, const std::string& to);

}  // namespace ptd::perfio
