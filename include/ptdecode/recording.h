// Recording: opens recordings and decodes their streams.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

/// A piece of a file that the user maps into a process from the start, without a record of the mapping. Its code is marked `assumed`.
struct AssumedMapping {
  int32_t pid = -1;
  std::string path;
  uint64_t file_offset_bytes = 0, size_bytes = 0;  ///< size 0: to the end of the file
  uint64_t address = 0;
};

/// A file with code, for a trace that names no mappings.
struct RawImage {
  std::string path;
  uint64_t file_offset_bytes = 0, size_bytes = 0;  ///< size 0: to the end of the file
  /// Of the first byte of that range. Without it: the segments of an ELF file where it says that they lie.
  std::optional<uint64_t> load_address;
};

/// How to open a recording. The defaults read a perf.data file of the current directory.
struct OpenOptions {
  std::string path = "perf.data";  ///< perf.data file or directory, "-" (pipe), bundle, LLDB bundle trace.json, CoreSight snapshot
  std::vector<std::string> symfs;  ///< roots below which recorded paths are looked up first, in order
  std::vector<std::string> debug_dirs = {"/usr/lib/debug"};
  std::map<int32_t, std::vector<std::string>> process_symfs;  ///< the same for the mappings of one process (pid) and of those it starts
  std::string build_id_cache;                                 ///< default: $HOME/.debug
  std::vector<std::string> stashes;                           ///< folders with saved code, in order; see usual_stashes()
  bool debuginfod = false;                                    ///< query the servers of DEBUGINFOD_URLS for files that are not found
  std::string running_kernel;  ///< "/": missing kernel code may come from this machine if it still runs the recorded boot
  /// Later copies of the kernel's text: directories (kcore, kallsyms, modules), or dumps of memory (vmcore).
  std::vector<std::string> kcore_after;
  /// Virtual machines of a host's recording: a folder with the root file system of each guest at DIR/PID, where PID is the host process
  /// that runs it. Its /proc (kallsyms, modules, kcore) has the kernel. A file that cannot be read is never an Error: it is a warning, and
  /// its code a Gap.
  std::string guestmount;
  /// Names and modules of the guest that no other source names: copies of its /proc/kallsyms and /proc/modules. Code is read from a copy of
  /// its /proc/kcore in the same folder. Without one, it is read from guestvmlinux and marked `assumed`.
  std::string guestkallsyms, guestmodules, guestvmlinux;
  bool use_time = true;   ///< false: ignore all times; the packets alone choose between versions of code
  uint64_t slack_ns = 0;  ///< see DecoderOptions::slack_ns
  /// Ticks per second of the trace's clock, at most 10^12, for recordings that do not name it: raw captures (TSC) and CoreSight snapshots
  /// and capture files (timestamps). 0: unknown; their times are then ticks, and calls and tables have none. Other recordings refuse it.
  uint64_t clock_hz = 0;
  bool freeze = false;                  ///< ignore edits: every address keeps its first version
  bool exact_only = false;              ///< see DecoderOptions::exact_only
  bool anchors = true;                  ///< use sync IPIs and the poker's own code
  std::vector<AssumedMapping> assumed;  ///< files to map in addition; their code is marked `assumed`
  /// Files with code, for a raw capture or in addition to the dumps of a CoreSight snapshot, which count first. Other recordings refuse
  /// them.
  std::vector<RawImage> images;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;  ///< called while opening, on the caller's thread; may be empty
};

/// A raw capture: Intel PT bytes without a container, or a dump of Windows' driver ipt.sys. Sources: [SDM] "CPUID leaf 15H",
/// "IA32_RTIT_CTL", [winipt].
struct RawOptions {
  std::string pt_path;  ///< file with the trace bytes
  /// instead: a dump, as ipttool writes it, with a ring for each thread of one process and the settings of its clocks.
  std::string winipt_path;
  pt::CpuId cpu;
  /// List of the modules of a Windows process, see docs/RECORDING.md. Their PE files are searched below OpenOptions::symfs and in the
  /// list's folder. A file that is missing, or that is not the listed one, is a Finding and a MissingImage.
  std::string modules_path;
  std::string pages_dump, pages_addresses;            ///< page dump and its little-endian u64 addresses
  uint32_t tsc_ctc_ratio_n = 0, tsc_ctc_ratio_d = 0;  ///< TSC ticks per crystal tick, as a fraction; 0: unknown, or from a dump
  std::optional<uint8_t> mtc_period;                  ///< IA32_RTIT_CTL.MTCFreq; without it from a dump, or measured from the packets
  uint8_t max_nonturbo_ratio = 0;                     ///< nominal frequency ratio; 0: unknown
};

/// One trace stream: the trace of one cpu, or of one thread.
struct StreamInfo {
  int32_t cpu = -1, tid = -1;  ///< one of them is known, the other is -1
  uint32_t idx = 0;            ///< index of the AUX buffer in the recording
  uint64_t size_bytes = 0;     ///< of trace
  Interval time;               ///< from the first PSB with a known time to the last AUX record, AUX sample or timing packet
  // For CoreSight; empty for Intel PT.
  std::string source, core;  ///< names of the trace source and of the core that it traces
  arm::Protocol protocol = arm::Protocol::none;
  uint8_t trace_id = 0;
};

/// A thread and its last name.
struct ThreadInfo {
  int32_t pid = -1, tid = -1;
  std::string comm;
};

/// An executable mapping whose code bytes were not found.
struct MissingImage {
  std::string path, build_id, reason;  ///< reason: not found, wrong build id, anonymous, ...
  uint64_t gaps = 0;                   ///< left 0 by Recording; for callers that count the gaps of a decode
};

/// Returns the folders in which `ptdecode record` saves code: the user's (PTDECODE_STASH, or below XDG_CACHE_HOME) and the machine's.
[[nodiscard]] PTD_API std::vector<std::string> usual_stashes();

/// Records that the kernel reported as lost (PERF_RECORD_LOST), and flags of AUX records.
struct LostRecords {
  uint64_t lost_records = 0;  ///< LOST records
  uint64_t records = 0;       ///< the records that these count
  uint64_t aux_truncated = 0, aux_partial = 0, aux_collision = 0;
};

/// An opened recording: its streams of trace, the code image over time, and the threads that ran.
///
/// Opening reads all sideband records, builds the timeline, and examines the ends of the trace. Decoding happens in decode(),
/// decode_parallel(), StreamCursor and make_decoder(). Files stay mapped until the recording is destroyed.
///
/// Threads: any number of threads may call const functions of one recording at the same time. Each decoder and each scratch buffer belongs
/// to one thread. Lifetime: references and segments are valid as long as the recording, unless stated otherwise. Damage of the trace is
/// never an Error: it becomes a Gap in the flow, or a warning.
class PTD_API Recording {
 public:
  /// Opens a perf.data file or directory, a pipe, a bundle, LLDB's trace.json or a CoreSight snapshot. Errors: not_found,
  /// permission_denied and others of the group file_open if the file cannot be read; the group file_format if it is none of these or
  /// contradicts itself; the group file_cut if its header is cut; unsupported_trace and others of that group for another kind of trace.
  static Result<std::unique_ptr<Recording>> open(const OpenOptions& options);
  /// Opens a raw capture. Errors: contradictory_options, bad_image_piece; no_trace without a PSB; unsupported_version of a dump; bad_format
  /// and too_large of a list of modules; else as open().
  static Result<std::unique_ptr<Recording>> open_raw(const RawOptions& raw, const OpenOptions& options);
  ~Recording();

  [[nodiscard]] const std::vector<StreamInfo>& streams() const;
  [[nodiscard]] const Timeline& timeline() const;
  [[nodiscard]] const ContextTrack& contexts() const;
  [[nodiscard]] const Symbolizer& symbolizer() const;
  [[nodiscard]] const pt::DecoderOptions& decoder_options() const;
  /// Returns whether times are nanoseconds. If the frequency of the trace's clock is not known (OpenOptions::clock_hz), they are ticks,
  /// which order the flow of streams and give no durations.
  [[nodiscard]] bool has_time_conversion() const;
  /// Returns the configuration of a stream's trace source; null for Intel PT.
  [[nodiscard]] const arm::TraceConfig* arm_config(uint32_t stream) const;
  /// Converts a stream offset to the offset in the formatted buffer that several CoreSight sources share. Returns it unchanged for Intel
  /// PT.
  [[nodiscard]] uint64_t buffer_offset(uint32_t stream, uint64_t offset_bytes) const;
  [[nodiscard]] const std::map<int32_t, std::string>& thread_names() const;  ///< tid -> last comm
  /// Returns the name of thread `tid` at time `when`, "" if it is unknown. `valid`, if not null, gets an interval in which the answer is
  /// the same.
  [[nodiscard]] std::string comm_at(int32_t tid, TimeNs when, Interval* valid = nullptr) const;
  [[nodiscard]] const std::vector<MissingImage>& missing_images() const;
  /// Returns the findings of the timeline, and those on the clock of the trace. Reads the whole trace.
  [[nodiscard]] std::vector<Finding> findings() const;
  [[nodiscard]] const LostRecords& lost() const;
  [[nodiscard]] const std::vector<std::string>& warnings() const;  ///< one sentence each (cut file, bad records, ...)
  /// Returns true if the recording was made by perf or `ptdecode record`, even if it was converted to a bundle.
  [[nodiscard]] bool from_perf() const;
  [[nodiscard]] std::string description() const;  ///< host, kernel, cpu, command line if known

  /// Finds the first segment that begins at stream offset `at` or after it, and moves `at` past its beginning, so that the next call finds
  /// the next one. Returns false if there is none. Segments are found lazily, so starting in the middle of many GB costs no more than in a
  /// short trace. The bytes are valid until `scratch` is reused, and as long as the recording.
  ///
  ///     for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) ...
  bool next_segment(uint32_t stream, uint64_t& at, AuxSegment& segment, std::vector<std::byte>& scratch) const;
  /// Returns the offset of the first segment that may hold time `t` or later; the end of the stream if there is none.
  [[nodiscard]] uint64_t segment_at(uint32_t stream, TimeNs t) const;
  /// Returns the offset of every segment. Reads the whole stream.
  [[nodiscard]] std::vector<uint64_t> segment_starts(uint32_t stream) const;
  static constexpr uint64_t kStreamEnd = ~uint64_t{0};  ///< greater than the offset of every segment

  /// Returns a decoder for the segments of this stream, for callers that pull: begin() with a segment, then next() until it returns false.
  /// One per thread; must not outlive the recording. Null: there is no such stream.
  [[nodiscard]] std::unique_ptr<FlowDecoder> make_decoder(uint32_t stream) const;

  /// Decodes the segments of one stream that begin in [first_offset, last_offset). `sink` gets each batch with the decoder that made it,
  /// and returns false to stop. Error: no_such_stream.
  using Sink = std::function<bool(const Batch&, const FlowDecoder&, const AuxSegment&)>;
  Status decode(uint32_t stream, uint64_t first_offset, uint64_t last_offset, const Sink& sink) const;
  /// Same as decode(), on `threads` threads with one decoder each. `sink` gets the same batches in the same order, on the caller's thread.
  /// Node ids belong to the decoder that comes with the batch; `sink` may use that decoder's blocks() and nothing else of it. At most about
  /// kHeldBytes of output wait for their turn.
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
