// Writes a trace bundle of LLDB: see lldb_write.h.
#include "recording/lldb/lldb_write.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "image/base/whole_file.h"
#include "ptdecode/flow_cursor.h"
#include "recording/bundle/bundle_scan.h"
#include "recording/data/image_log.h"
#include "recording/data/json_text.h"
#include "recording/data/recording_data.h"
#include "recording/lldb/lldb_code.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

std::string hex_text(uint64_t value) {
  std::string digits;
  for (; value != 0 || digits.empty(); value >>= 4) digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
  return "0x" + digits;
}

std::string seconds(TimeNs time) {
  std::string digits = std::to_string(time.value);
  digits.insert(0, digits.size() < 10 ? 10 - digits.size() : 0, '0');
  return digits.insert(digits.size() - 9, ".");
}

/// A process of the bundle, with its threads.
struct Process {
  explicit Process(const Recording& recording) : code(recording) {}
  ProcessCode code;
  std::map<int32_t, std::string> threads;  ///< tid -> its file of trace, "" for traces of cpus
};

/// Creates a folder next to `path` that finish() renames, and removes it unless it did.
class NewFolder {
 public:
  static Result<std::unique_ptr<NewFolder>> create(const std::string& path) {
    std::error_code failed;
    if (fs::exists(fs::symlink_status(path, failed)) && !(fs::is_directory(path, failed) && fs::is_empty(path, failed)))
      return Error{ErrorCode::already_exists, path + " exists: name a new folder for LLDB's bundle, or an empty one", 0};
    const fs::path clean = fs::path(path).lexically_normal();
    const std::string plain = (clean.has_filename() ? clean : clean.parent_path()).string();
    std::string made = plain + ".XXXXXX";
    if (mkdtemp(made.data()) == nullptr) return Error{ErrorCode::write_failed, path + ": the folder cannot be created", 0};
    return std::unique_ptr<NewFolder>(new NewFolder(plain, made));
  }
  ~NewFolder() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  [[nodiscard]] Status write(const std::string& name, std::string_view text) const {
    Result<std::unique_ptr<WholeFile>> out = WholeFile::open(file(name), {0600});
    if (!out) return out.error();
    (void)(*out)->write(text);  // finish() says what failed
    return (*out)->finish();
  }
  Status finish() {
    std::error_code failed;
    fs::rename(temporary_, path_, failed);
    if (failed) return Error{ErrorCode::write_failed, path_ + ": " + failed.message(), 0};
    temporary_.clear();
    return {};
  }

 private:
  NewFolder(std::string path, std::string temporary) : path_(std::move(path)), temporary_(std::move(temporary)) {}
  std::string path_, temporary_;
};

/// The same conversion for TSCs of 56 bits, which are all that LLDB knows. Limitation: in a trace in which they wrap, it is that of one
/// side.
TimeConversion lldb_clock(const TimeConversion& time) {
  if (!time.valid() || !time.cap_user_time_short) return time;
  TimeConversion made = time;
  made.cap_user_time_short = false;
  const Tsc middle{time.time_cycles + (time.time_mask / 2 + 1)};
  made.time_zero = 0;  // that of `time` may be negative
  made.time_zero = time.time_zero + made.to_ns(Tsc{middle.value & ~time.time_mask}).value;
  made.time_cycles = made.time_mask = 0;
  return made;
}

/// Ticks as LLDB computes them from nanoseconds ([LLDB] LinuxPerfZeroTscConversion::ToTSC).
uint64_t lldb_tsc(const TimeConversion& time, uint64_t ns) {
  const uint64_t since = ns - time.time_zero;
  return ((since / time.time_mult) << time.time_shift) + ((since % time.time_mult) << time.time_shift) / time.time_mult;
}

class LldbWriter {
 public:
  LldbWriter(const Recording& recording, LldbReport& report)
      : recording_(recording), data_(data_of(recording)), report_(report), kernel_(recording) {}

  Status check() const;
  Status scan(Interval time);
  [[nodiscard]] Status check_code() const;
  Status write(const NewFolder& folder);

 private:
  static constexpr int32_t kKernelBlocks = -2;
  /// A block in a process: looked at once.
  struct Seen {
    int32_t pid = 0;  ///< or kKernelBlocks
    NodeId node = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  struct SeenHash {
    size_t operator()(const Seen& seen) const { return (uint64_t{static_cast<uint32_t>(seen.pid)} << 32 | seen.node) * 0x9E3779B97F4A7C15; }
  };
  [[nodiscard]] bool has_cpus() const { return recording_.streams().front().cpu >= 0; }
  void take_blocks(std::span<const Block> blocks, const FlowCursor& cursor, const BlockTable& table,
                   std::unordered_set<Seen, SeenHash>& seen);
  Process& process(int32_t pid) { return processes_.try_emplace(pid, recording_).first->second; }
  Status write_trace(const NewFolder& folder, uint32_t stream, const std::string& name);
  [[nodiscard]] std::string switches(int32_t cpu) const;
  Status write_modules(const NewFolder& folder, const ProcessCode& code, JsonText& json);
  Status write_process(const NewFolder& folder, int32_t pid, const Process& process, JsonText& json);
  Status write_code(const NewFolder& folder, const std::string& name, const ProcessCode& code) const;
  void put_cpu(JsonText& json) const;

  const Recording& recording_;
  const RecordingData& data_;
  LldbReport& report_;
  std::vector<SegmentSpan> spans_;
  ProcessCode kernel_;                    // the same for all processes
  std::map<int32_t, Process> processes_;  // by pid
  std::map<const ElfFile*, std::string> copied_;
  std::string kernel_name_;  // file of the kernel's code, "" without
};

Status LldbWriter::check() const {
  const std::vector<StreamInfo>& streams = recording_.streams();
  if (streams.empty()) return Error{ErrorCode::not_recorded, "the recording has no trace", 0};
  if (!data_.arm.empty())
    return Error{ErrorCode::unsupported_trace, "LLDB's bundle holds Intel PT only, and this is a trace of CoreSight", 0};
  std::set<std::pair<int32_t, int32_t>> seen;
  for (const StreamInfo& stream : streams) {
    if (stream.cpu < 0 && stream.tid < 0)
      return Error{ErrorCode::not_recorded, "the recording does not say which thread or cpu was traced, and LLDB's bundle needs it", 0};
    if ((stream.cpu >= 0) != has_cpus())
      return Error{ErrorCode::unsupported, "LLDB's bundle holds traces of threads or traces of cpus, and this recording has both", 0};
    if (!seen.emplace(stream.cpu, stream.tid).second)
      return Error{ErrorCode::unsupported, "LLDB's bundle holds one trace for each thread or cpu, and this recording has several for one",
                   0};
  }
  if (has_cpus() && !data_.decoder.config.time.valid())
    return Error{ErrorCode::not_recorded,
                 "LLDB's bundle needs the conversion of TSC to time for traces of cpus, and the recording has none", 0};
  return {};
}

void LldbWriter::take_blocks(std::span<const Block> blocks, const FlowCursor& cursor, const BlockTable& table,
                             std::unordered_set<Seen, SeenHash>& seen) {
  const int32_t pid = cursor.context().pid;
  const uint64_t count = instructions_of(blocks);
  report_.instructions += count;
  if (pid <= 0) report_.left_out_instructions += count;
  for (const Block& block : blocks) {
    const BlockInfo& info = table.info(block.node);
    const bool is_kernel = is_kernel_half(info.ip);
    if (!seen.insert({is_kernel ? kKernelBlocks : pid, block.node}).second) continue;
    (is_kernel ? kernel_ : process(pid).code).add(info, cursor.context().space, cursor.now());
  }
  if (pid > 0 && cursor.context().tid > 0) process(pid).threads.try_emplace(cursor.context().tid);
}

Status LldbWriter::scan(Interval time) {
  bool has_trace = false;
  for (uint32_t stream = 0; stream < recording_.streams().size(); ++stream) {
    const SegmentSpan& span = spans_.emplace_back(spans_of(recording_, stream, time));
    std::unordered_set<Seen, SeenHash> seen;
    FlowCursor cursor;
    const Status status =
        recording_.decode(stream, span.first, span.end, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
          has_trace = has_trace || segment.time.overlaps(time);
          cursor.begin(batch);
          for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
            if (item == FlowItem::blocks) take_blocks(cursor.blocks(), cursor, decoder.blocks(), seen);
          }
          return true;
        });
    if (!status) return status;
  }
  if (!has_trace) return Error{ErrorCode::bad_time_window, "the recording has no trace at that time", 0};
  const bool has_user =
      std::any_of(processes_.begin(), processes_.end(), [](const auto& each) { return each.second.code.has_user_code(); });
  report_.is_kernel = has_cpus() && !has_user && kernel_.has_other_code();
  if (report_.is_kernel) report_.left_out_instructions = 0;
  for (auto& [pid, each] : processes_) each.code.finish();
  return {};
}

// LLDB would decode other code than that which ran, and say nothing.
Status LldbWriter::check_code() const {
  uint64_t conflicts = kernel_.conflicts();
  const LldbConflict* first = kernel_.conflict() ? &*kernel_.conflict() : nullptr;
  for (const auto& [pid, process] : processes_) {
    if (pid <= 0 || !process.code.conflict()) continue;
    conflicts += process.code.conflicts();
    if (first == nullptr || process.code.conflict()->when < first->when) first = &*process.code.conflict();
  }
  if (first == nullptr) return {};
  const std::string when = has_cpus() || data_.decoder.config.time.valid() ? " at " + seconds(first->when) + " s" : "";
  return Error{ErrorCode::unsupported,
               "LLDB's bundle holds one content for each address, and " + std::to_string(conflicts) +
                   " blocks of code that ran have another: the code at " + hex_text(first->ip.value) + " " + first->what + " (here" + when +
                   "). Choose a part of the recording with --time, or write a bundle of ptdecode",
               0};
}

Status LldbWriter::write_trace(const NewFolder& folder, uint32_t stream, const std::string& name) {
  Result<std::unique_ptr<WholeFile>> out = WholeFile::open(folder.file(name), {0600});
  if (!out) return out.error();
  std::vector<std::byte> scratch;
  AuxSegment segment;
  // Whole segments alone: bytes after a loss, up to the next PSB, would be read as if they followed what is before the loss.
  for (uint64_t at = spans_[stream].first; at < spans_[stream].end && recording_.next_segment(stream, at, segment, scratch);) {
    if (segment.stream_offset_bytes >= spans_[stream].end) break;
    const Bytes bytes = segment.bytes.first(segment.bytes.size() - segment.tail_bytes);
    report_.trace_bytes += bytes.size();
    if (!(*out)->write({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) break;
  }
  return (*out)->finish();
}

// PERF_RECORD_SWITCH_CPU_WIDE with a trailer of pid, tid and time. LLDB refuses records that are not later than those before them.
std::string LldbWriter::switches(int32_t cpu) const {
  constexpr uint32_t kSwitchCpuWide = 15;
  constexpr uint16_t kSwitchOut = 1U << 13, kBytes = 32;
  std::string out;
  const auto put = [&out](uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i));
  };
  const auto put_task = [&put](const Context& task) {
    put(static_cast<uint32_t>(task.pid), 4);
    put(static_cast<uint32_t>(task.tid), 4);
  };
  Context before;
  std::optional<uint64_t> last;
  const TimeConversion time = lldb_clock(data_.decoder.config.time);
  for (const ContextTrack::Switch& each : recording_.contexts().switches(cpu)) {
    const bool out_of = each.to.tid < 0;  // to a task that is not known
    if (out_of && before.tid < 0) continue;
    const uint64_t tsc = lldb_tsc(time, each.time.value);
    if (last && tsc <= *last) {
      out.resize(out.size() - kBytes);
    }
    put(kSwitchCpuWide, 4);
    put(out_of ? kSwitchOut : 0, 2);
    put(kBytes, 2);
    put_task(out_of ? each.to : before);
    put_task(out_of ? before : each.to);
    put(each.time.value, 8);
    last = last ? std::max(*last, tsc) : tsc;
    before = each.to;
  }
  return out;
}

void LldbWriter::put_cpu(JsonText& json) const {
  const pt::Config& config = data_.decoder.config;
  json.key("cpuInfo").open('{');
  json.pair("vendor", config.cpu.family == 0 ? "unknown" : "GenuineIntel");
  json.pair("family", config.cpu.family);
  json.pair("model", unsigned{config.cpu.model});
  json.pair("stepping", unsigned{config.cpu.stepping});
  json.close('}');
  const TimeConversion time = lldb_clock(config.time);
  if (!time.valid()) return;
  json.key("tscPerfZeroConversion").open('{');
  json.pair("timeMult", time.time_mult);
  json.pair("timeShift", time.time_shift);
  json.pair("timeZero", hex_text(time.time_zero));
  json.close('}');
}

/// A file name of our own: a recording chooses the path.
std::string copy_name(const std::string& path, size_t number) {
  constexpr std::string_view kSafe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-";
  std::string name = fs::path(path).filename().string().substr(0, 64);
  for (char& letter : name) letter = kSafe.find(letter) == std::string_view::npos ? '_' : letter;
  return "modules/" + std::to_string(number) + "-" + name;
}

Status LldbWriter::write_modules(const NewFolder& folder, const ProcessCode& code, JsonText& json) {
  json.key("modules").open('[');
  for (const LldbModule& module : code.modules()) {
    const auto [copy, is_new] = copied_.try_emplace(module.elf.get());
    if (is_new) {
      copy->second = copy_name(module.path, ++report_.files);
      const Bytes content = module.elf->file()->bytes();
      if (Status status = folder.write(copy->second, {reinterpret_cast<const char*>(content.data()), content.size()}); !status)
        return status;
    }
    json.open('{');
    json.pair("systemPath", module.path);
    json.pair("file", copy->second);
    json.pair("loadAddress", hex_text(module.bias + module.elf->first_address()));
    if (!module.elf->build_id().empty()) json.pair("uuid", module.elf->build_id());
    json.close('}');
  }
  const auto put_made = [&json](const std::string& name, const ProcessCode& made) {
    json.open('{');
    json.pair("systemPath", name);
    json.pair("file", name);
    json.pair("loadAddress", hex_text(made.other_address()));
    json.close('}');
  };
  if (code.has_other_code()) {
    const std::string name = copy_name("recorded-code", ++report_.files);
    if (Status status = write_code(folder, name, code); !status) return status;
    put_made(name, code);
  }
  if (!kernel_name_.empty()) put_made(kernel_name_, kernel_);
  json.close(']');
  return {};
}

Status LldbWriter::write_code(const NewFolder& folder, const std::string& name, const ProcessCode& code) const {
  const Result<std::string> made = code.other_code(code.is_64bit());
  return made ? folder.write(name, *made) : made.error();
}

Status LldbWriter::write_process(const NewFolder& folder, int32_t pid, const Process& process, JsonText& json) {
  json.open('{');
  json.pair("pid", pid);
  json.pair("triple", process.code.is_64bit() ? "x86_64-unknown-linux" : "i386-unknown-linux");
  json.list("threads", process.threads, [&json](const auto& thread) {
    json.pair("tid", thread.first);
    if (!thread.second.empty()) json.pair("iptTrace", thread.second);
  });
  report_.threads += process.threads.size();
  ++report_.processes;
  const Status status = write_modules(folder, process.code, json);
  json.close('}');
  return status;
}

Status LldbWriter::write(const NewFolder& folder) {
  std::error_code ignored;
  for (const char* each : {"modules", "traces"}) fs::create_directory(folder.file(each), ignored);
  JsonText json;
  json.open('{');
  json.pair("type", "intel-pt");
  put_cpu(json);
  Status status;
  if (has_cpus()) json.key("cpus").open('[');
  for (uint32_t stream = 0; stream < recording_.streams().size(); ++stream) {
    const StreamInfo& info = recording_.streams()[stream];
    const std::string name = "traces/" + (has_cpus() ? "cpu" + std::to_string(info.cpu) : "thread" + std::to_string(info.tid)) + ".intelpt";
    if (!has_cpus()) {
      int32_t pid = recording_.contexts().at_thread(info.tid, kTimeMax).pid;
      for (const auto& [other, each] : processes_) pid = each.threads.contains(info.tid) ? other : pid;
      if (pid <= 0) {
        report_.warnings.push_back("thread " + std::to_string(info.tid) + " is left out: its process is not known");
        continue;
      }
      process(pid).threads[info.tid] = name;
    }
    if (status = write_trace(folder, stream, name); !status) return status;
    if (!has_cpus()) continue;
    const std::string other = "traces/cpu" + std::to_string(info.cpu) + ".switches";
    json.open('{');
    json.pair("id", info.cpu);
    json.pair("iptTrace", name);
    json.pair("contextSwitchTrace", other);
    json.close('}');
    ++report_.cpus;
    if (status = folder.write(other, switches(info.cpu)); !status) return status;
  }
  if (has_cpus()) json.close(']');
  if (kernel_.has_other_code()) {
    kernel_name_ = copy_name("kernel", ++report_.files);
    if (status = write_code(folder, kernel_name_, kernel_); !status) return status;
  }
  if (report_.is_kernel) {
    json.key("kernel").open('{');
    json.pair("file", kernel_name_);
    json.pair("loadAddress", hex_text(kernel_.other_address()));
    json.close('}');
  } else {
    json.key("processes").open('[');
    for (const auto& [pid, each] : processes_) {
      if (status = pid <= 0 ? Status() : write_process(folder, pid, each, json); !status) return status;
    }
    json.close(']');
  }
  json.close('}');
  return status ? folder.write("trace.json", json.take() + "\n") : status;
}

}  // namespace

Result<LldbReport> write_lldb_bundle(const OpenRequest& options, const LldbOptions& bundle) {
  OpenRequest wanted = options;
  wanted.image_log = std::make_shared<ImageLog>();
  wanted.image_log->share = true;
  const auto recording = open_recording(wanted);
  if (!recording) return recording.error();
  LldbReport report;
  LldbWriter writer(**recording, report);
  if (Status status = writer.check(); !status) return status.error();
  // Tried before the work, and removed at once: a signal that ends the program during the work leaves no folder.
  if (auto tried = NewFolder::create(bundle.folder); !tried) return tried.error();
  if (Status status = writer.scan(bundle.time); !status) return status.error();
  if (Status status = writer.check_code(); !status) return status.error();
  auto folder = NewFolder::create(bundle.folder);
  if (!folder) return folder.error();
  if (Status status = writer.write(**folder); !status) return status.error();
  if (Status status = (*folder)->finish(); !status) return status.error();
  report.warnings.insert(report.warnings.begin(), (*recording)->warnings().begin(), (*recording)->warnings().end());
  return report;
}

}  // namespace ptd
