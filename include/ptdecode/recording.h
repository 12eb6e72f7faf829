// Recording: what a user opens. Joins perfio (records), image (timeline) and decoder (flow).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/context_track.h"
#include "ptdecode/error.h"
#include "ptdecode/export.h"
#include "ptdecode/pt/decoder.h"
#include "ptdecode/symbols.h"
#include "ptdecode/timeline.h"

namespace ptd {

struct OpenRequest;
struct RecordingData;

/// A piece of a file that is said to stand in a process's memory from the start.
struct AssumedMapping {
  int32_t pid = -1;
  std::string path;
  uint64_t file_offset_bytes = 0, size_bytes = 0;  ///< size 0: to the end of the file
  uint64_t address = 0;
};

/// How to open. Every default is what a user wants without saying anything.
struct OpenOptions {
  std::string path = "perf.data";  ///< perf.data file or directory, "-" (pipe), bundle, LLDB bundle trace.json, CoreSight snapshot
  std::vector<std::string> symfs;  ///< roots below which recorded paths are looked up first, in order
  std::vector<std::string> debug_dirs = {"/usr/lib/debug"};
  std::map<int32_t, std::vector<std::string>> process_symfs;  ///< the same for what one process, or one that it started, had mapped
  std::string build_id_cache;                                 ///< default: $HOME/.debug
  std::vector<std::string> stashes;                           ///< where kept code is looked for, in order: usual_stashes() or others
  bool debuginfod = false;                                    ///< ask the servers of DEBUGINFOD_URLS for files that are not found
  std::string running_kernel;  ///< "/": kernel code that the recording lacks may come from this machine, if it still runs that boot
  std::vector<std::string> kcore_after;  ///< directories with a later copy of the kernel's text (kcore, kallsyms, modules)
  bool use_time = true;                  ///< false: timeless
  uint64_t slack_ns = 0;                 ///< see DecoderOptions::slack_ns
  bool freeze = false;                   ///< ignore edits: every address keeps its first version
  bool exact_only = false;               ///< see DecoderOptions::exact_only
  bool anchors = true;                   ///< use sync IPIs and the poker's own code
  std::vector<AssumedMapping> assumed;   ///< files that stand where no record says so; their code is marked assumed
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

/// A raw capture without a container.
struct RawImage {
  std::string path;
  uint64_t file_offset_bytes = 0, size_bytes = 0;  ///< size 0: to the end of the file
  uint64_t load_address = 0;
};
struct RawOptions {
  std::string pt_path;
  pt::CpuId cpu;
  std::vector<RawImage> images;
  std::string pages_dump, pages_addresses;  ///< page dump and its little-endian u64 addresses
  uint32_t tsc_ctc_ratio_n = 0, tsc_ctc_ratio_d = 0;
  uint8_t mtc_period = 0, max_nonturbo_ratio = 0;
};

struct StreamInfo {
  int32_t cpu = -1, tid = -1;
  uint32_t idx = 0;
  uint64_t size_bytes = 0;
  Interval time;
  // CoreSight; of Intel PT empty
  std::string source, core;  ///< names of the trace source and of the core that it traces
  arm::Protocol protocol = arm::Protocol::none;
  uint8_t trace_id = 0;
};

struct ThreadInfo {
  int32_t pid = -1, tid = -1;
  std::string comm;
};

/// An executable mapping whose bytes are not at hand.
struct MissingImage {
  std::string path, build_id, reason;  ///< reason: not found, wrong build id, anonymous, ...
  uint64_t gaps = 0;                   ///< filled by who decodes
};

/// Where `ptdecode record` keeps code and the command line looks for it: this user's folder, as the environment says, and the machine's.
[[nodiscard]] PTD_API std::vector<std::string> usual_stashes();

struct LostRecords {
  uint64_t records = 0;
  uint64_t count = 0;
  uint64_t aux_truncated = 0, aux_partial = 0, aux_collision = 0;
};

class PTD_API Recording {
 public:
  static Result<std::unique_ptr<Recording>> open(const OpenOptions& options);
  static Result<std::unique_ptr<Recording>> open_raw(const RawOptions& raw, const OpenOptions& options);
  ~Recording();

  [[nodiscard]] const std::vector<StreamInfo>& streams() const;
  [[nodiscard]] const Timeline& timeline() const;
  [[nodiscard]] const ContextTrack& contexts() const;
  [[nodiscard]] const Symbolizer& symbolizer() const;
  [[nodiscard]] const pt::DecoderOptions& decoder_options() const;
  /// Configuration of a stream's trace source; null for Intel PT.
  [[nodiscard]] const arm::TraceConfig* arm_config(uint32_t stream) const;
  /// Where a byte of a stream stands in the buffer that several sources share; the stream offset itself for Intel PT.
  [[nodiscard]] uint64_t buffer_offset(uint32_t stream, uint64_t offset_bytes) const;
  [[nodiscard]] const std::map<int32_t, std::string>& thread_names() const;  ///< tid -> last comm
  /// Returns the name of a thread at a moment. `valid`, if given, gets moments at which the answer surely is the same.
  [[nodiscard]] std::string comm_at(int32_t tid, TimeNs when, Interval* valid = nullptr) const;
  [[nodiscard]] const std::vector<MissingImage>& missing_images() const;
  /// The timeline's findings, and where the trace's clock contradicts itself. Looks all of the trace through.
  [[nodiscard]] std::vector<Finding> findings() const;
  [[nodiscard]] const LostRecords& lost() const;
  [[nodiscard]] const std::vector<std::string>& warnings() const;  ///< one sentence each (cut file, bad records, ...)
  /// Made from perf's records, be it by way of a bundle; else from raw trace, an LLDB bundle or a CoreSight snapshot.
  [[nodiscard]] bool from_perf() const;
  [[nodiscard]] std::string description() const;  ///< host, kernel, cpu, command line if known

  /// A segment is named by the stream offset at which it begins. They are found as they are asked for: to begin somewhere in a stream of
  /// many GB takes as long as in a short one.
  ///
  /// Gives the first segment that begins at `at` or behind it, and moves `at` on, so that the next call gives the next one; false: there is
  /// none. The bytes stay valid until `scratch` is reused (segments that straddle records are assembled in it) and as long as the
  /// recording.
  ///
  ///     for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) ...
  bool next_segment(uint32_t stream, uint64_t& at, AuxSegment& segment, std::vector<std::byte>& scratch) const;
  /// Where the first segment begins that may hold `t` or anything later; the stream's end if there is none.
  [[nodiscard]] uint64_t segment_at(uint32_t stream, TimeNs t) const;
  /// Where each segment begins. Looks the whole stream through.
  [[nodiscard]] std::vector<uint64_t> segment_starts(uint32_t stream) const;
  static constexpr uint64_t kStreamEnd = ~uint64_t{0};  ///< behind every segment

  /// A decoder for the segments of this stream, for callers that pull: begin() with a segment, then next() until it returns false. One per
  /// thread; must not outlive the recording. Null: there is no such stream.
  [[nodiscard]] std::unique_ptr<FlowDecoder> make_decoder(uint32_t stream) const;

  /// Decodes the segments of one stream that begin in [first_offset, last_offset); `sink` gets each batch with the decoder that made it;
  /// false stops.
  using Sink = std::function<bool(const Batch&, const FlowDecoder&, const AuxSegment&)>;
  Status decode(uint32_t stream, uint64_t first_offset, uint64_t last_offset, const Sink& sink) const;
  /// The same on `threads` threads, each with a decoder of its own: what the sink gets is the same, in the same order, on the caller's
  /// thread; only the node ids belong to the decoder that comes with the batch. It may look at that decoder's blocks(), nothing else of
  /// it. At most about kHeldBytes of output wait for their turn.
  Status decode_parallel(uint32_t stream, uint64_t first_offset, uint64_t last_offset, unsigned threads, const Sink& sink) const;
  static constexpr uint64_t kHeldBytes = 128ULL << 20;

 private:
  friend const RecordingData& data_of(const Recording& recording);
  friend Result<std::unique_ptr<Recording>> open_recording(const OpenRequest& request);
  friend Result<std::unique_ptr<Recording>> open_raw_recording(const RawOptions& raw, const OpenRequest& request);
  Recording();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
