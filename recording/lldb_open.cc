// Opens an LLDB trace bundle: trace.json with traces and modules next to it (LLDB "trace schema", plug-in intel-pt).
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "image/source/build_id.h"
#include "image/source/code_bytes.h"
#include "image/source/elf_file.h"
#include "recording/data/own_files.h"
#include "recording/data/recording_data.h"
#include "recording/image/image_build.h"
#include "recording/json_value.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxJsonBytes = 64ULL << 20;
// Of all modules: a short bundle may name a file with many segments many times, and each segment has the module's name.
constexpr size_t kMostSections = 1U << 18;
constexpr uint64_t kMostNameBytes = 256ULL << 20;

Error bad_file(ErrorCode code, const std::string& path, const std::string& what) { return Error{code, path + ": " + what, 0}; }

// Everything that one bundle's loading shares.
class BundleLoader {
 public:
  BundleLoader(const OpenRequest& options, RecordingData& data) : options_(options), data_(data), image_(options) {
    const size_t slash = options.path.rfind('/');
    dir_ = slash == std::string::npos ? std::string() : options.path.substr(0, slash + 1);
    files_ = OwnFiles(dir_, options);
  }

  Status load(const JsonValue& root) {
    load_cpu(root);
    load_time(root);
    for (const JsonValue& process : root.list("processes")) {
      if (Status status = load_process(process); !status.ok()) return status;
    }
    if (const JsonValue* kernel = root.member("kernel")) load_kernel(*kernel);
    for (const JsonValue& cpu : root.list("cpus")) {
      if (Status status = load_cpu_trace(cpu); !status.ok()) return status;
    }
    if (data_.streams.empty()) return bad_file(ErrorCode::no_trace, options_.path, "the bundle names no trace");
    data_.contexts.sort();
    data_.description = "LLDB trace bundle " + options_.path;
    image_.finish(data_);
    data_.elf_files.merge(elf_files_);
    index_streams(options_, data_);
    return {};
  }

 private:
  static std::string plain_path(const std::string& path) { return std::filesystem::path(path).lexically_normal().string(); }
  std::string resolve(const std::string& file) const { return file.starts_with('/') ? file : dir_ + file; }

  void load_cpu(const JsonValue& root) {
    pt::Config& config = data_.decoder.config;
    const JsonValue* info = root.member("cpuInfo");
    const std::string vendor = info == nullptr ? std::string() : info->text("vendor");
    if (vendor == "GenuineIntel" || vendor == "intel") {
      config.cpu.family = static_cast<uint16_t>(info->number("family").value_or(0));
      config.cpu.model = static_cast<uint8_t>(info->number("model").value_or(0));
      config.cpu.stepping = static_cast<uint8_t>(info->number("stepping").value_or(0));
    } else {
      data_.warnings.push_back("the bundle names no Intel cpu: only errata common to all models are worked around");
    }
    config.errata = pt::errata_of(config.cpu);
  }

  void load_time(const JsonValue& root) {
    const JsonValue* zero = root.member("tscPerfZeroConversion");
    if (zero == nullptr) return;
    TimeConversion& time = data_.decoder.config.time;
    time.time_mult = static_cast<uint32_t>(zero->number("timeMult").value_or(0));
    time.time_shift = static_cast<uint16_t>(zero->number("timeShift").value_or(0));
    time.time_zero = zero->number("timeZero").value_or(0);
    if (!time.valid()) time = {};
  }

  Status tell_again(const std::string& file) {
    if (again_++ == 0)
      data_.warnings.push_back(resolve(file) + ": named by several threads or cpus of the bundle; the trace is used for the first");
    return {};
  }

  // A trace belongs to one thread or cpu. Of several that name the same file, the first has it.
  Status add_trace(const std::string& file, int32_t cpu, int32_t tid) {
    if (!traces_.insert(plain_path(resolve(file))).second) return tell_again(file);
    const OwnFiles::Opened trace = files_.open(resolve(file));
    if (!trace.file) return Error{trace.code, resolve(file) + ": " + trace.why, 0};
    if (!trace_files_.insert(trace.file->identity()).second) return tell_again(file);
    AuxStream stream;
    stream.cpu = cpu;
    stream.tid = tid;
    stream.idx = static_cast<uint32_t>(data_.streams.size());
    stream.add_payload(0, trace.file->bytes().size(), trace.file->bytes(), false);
    data_.streams.push_back(std::move(stream));
    data_.owners.push_back(trace.file);
    data_.pages.add_mapping(trace.file->bytes());
    return {};
  }

  Status load_process(const JsonValue& process) {
    const auto pid = static_cast<int32_t>(process.number("pid").value_or(0));
    const SpaceId space = image_.builder.add_space();
    spaces_[pid] = space;
    for (const JsonValue& thread : process.list("threads")) {
      const auto tid = static_cast<int32_t>(thread.number("tid").value_or(0));
      data_.contexts.add_thread(tid, kTimeMin, {pid, tid, space});
      std::string file = thread.text("iptTrace");
      if (file.empty()) file = thread.text("traceFile");
      if (file.empty()) continue;
      if (Status status = add_trace(file, -1, tid); !status.ok()) return status;
    }
    for (const JsonValue& module : process.list("modules")) load_module(module, space);
    return {};
  }

  // Opens each module once, however many processes map it. `is_new`: it was not opened before.
  using Module = Result<std::shared_ptr<const ElfFile>>;
  const Module& module_of(const std::string& path, const std::string& wanted_id, bool& is_new) {
    const std::pair key(plain_path(path), wanted_id);
    auto known = modules_.find(key);
    is_new = known == modules_.end();
    if (is_new) known = modules_.emplace(key, open_module(path, wanted_id)).first;
    return known->second;
  }

  // A module of the bundle's own folder; elsewhere only one with the recorded build id. The error's message is the reason alone.
  Module open_module(const std::string& path, const std::string& wanted_id) {
    const auto refused = [](ErrorCode code, const std::string& why) { return Error{code, why, 0}; };
    OwnFiles::Opened opened = files_.open(path);
    if (opened.outside && !wanted_id.empty()) {
      if (auto file = MappedFile::open(open_recorded(path), path); file.ok()) {
        const std::shared_ptr<const ElfFile>& elf = elfs_.of(*file).elf;
        const bool is_it = elf && same_build_id(wanted_id, elf->build_id());
        if (is_it && other_machine(CodeFamily::x86, elf->machine()).empty()) return elf;
      }
    }
    if (!opened.file) return refused(opened.code, opened.why == std::strerror(ENOENT) ? sentence(CodeStatus::not_found) : opened.why);
    const std::shared_ptr<const ElfFile>& elf = elfs_.of(opened.file).elf;
    if (!elf) return refused(ErrorCode::bad_magic, "not an ELF file");
    if (const std::string other = other_machine(CodeFamily::x86, elf->machine()); !other.empty())
      return refused(ErrorCode::bad_format, other);
    return elf;
  }

  // Maps the executable segments of a module; `loadAddress` is where its first PT_LOAD went ([LLDB] ObjectFileELF::GetBaseAddress).
  void load_module(const JsonValue& module, SpaceId space) {
    const std::string file = module.text("file");
    std::string name = module.text("systemPath");
    if (name.empty()) name = file;
    const auto load_address = module.number("loadAddress");
    const std::string wanted_id = normalize_build_id(module.text("uuid"));
    if (!load_address || name.empty()) {
      data_.warnings.push_back("a module of the bundle has no path or no load address");
      return;
    }
    const std::string path = resolve(file.empty() ? name : file);
    bool is_new = false;
    const Module& elf = module_of(path, wanted_id, is_new);
    if (!elf.ok()) {
      image_.add_missing(name, wanted_id, elf.error().message);
      if (is_new) data_.warnings.push_back(path + ": " + elf.error().message);
      return;
    }
    image_.note_origin(name, wanted_id, path, wanted_id.empty() ? "in the recording's folder" : "has the recorded build id");
    const std::string& own_id = (*elf)->build_id();
    if (!wanted_id.empty() && !same_build_id(wanted_id, own_id)) {
      Finding finding;
      finding.kind = FindingKind::build_id_mismatch;
      finding.space = space;
      finding.ip = Ip{*load_address};
      finding.what =
          (*elf)->path() + " has build id " + (own_id.empty() ? "(none)" : own_id) + ", but the bundle says " + wanted_id + ": not used";
      image_.builder.add_finding(std::move(finding));
      image_.add_missing(name, wanted_id, sentence(CodeStatus::wrong_build_id));
    }
    const bool is_same = wanted_id.empty() || same_build_id(wanted_id, own_id);
    if (is_same) elf_files_.try_emplace({name, wanted_id}, *elf);
    add_segments(**elf, name, wanted_id, *load_address, space, is_same);
  }

  void add_segments(const ElfFile& elf, const std::string& name, const std::string& build_id, uint64_t load_address, SpaceId space,
                    bool use_bytes) {
    for (const ElfSegment& segment : elf.segments()) {
      Section section;
      section.ip = Ip{segment.address - elf.first_address() + load_address};
      section.space = is_kernel_half(section.ip) ? kKernelSpace : space;
      section.size_bytes = segment.file_size_bytes;
      section.file_offset_bytes = segment.file_offset_bytes;
      section.path = name;
      section.build_id = build_id;
      if (!segment.executable || section.size_bytes == 0 || section.size_bytes > ~section.ip.value) continue;
      if (sections_ > kMostSections) break;
      name_bytes_ += name.size() + build_id.size();
      if (++sections_ > kMostSections || name_bytes_ > kMostNameBytes) {
        sections_ = kMostSections + 1;
        report_many(section);
        break;
      }
      if (use_bytes) section.code = piece_of(elf.file(), segment.file_offset_bytes, segment.file_size_bytes);
      image_.add_section(std::move(section));
    }
    if (use_bytes) image_.add_symbol_file(name, elf.path(), build_id);
  }

  void report_many(const Section& first_unused) {
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.space = first_unused.space;
    finding.ip = first_unused.ip;
    finding.what = options_.path + ": the modules have more than " + std::to_string(kMostSections) +
                   " segments with code, or their names in all of these more than " + std::to_string(kMostNameBytes >> 20) +
                   " MiB: the others are not used";
    data_.warnings.push_back(finding.what);
    image_.builder.add_finding(std::move(finding));
  }

  void load_kernel(const JsonValue& kernel) {
    const std::string file = kernel.text("file");
    const auto elf = open_module(resolve(file), {});
    if (!elf.ok()) {
      image_.add_missing(file, {}, elf.error().message);
      return;
    }
    image_.note_origin(file, {}, resolve(file), "in the recording's folder");
    constexpr uint64_t kDefaultAddress = 0xffffffff81000000;  // LLDB's default load address of the kernel
    add_segments(**elf, file, {}, kernel.number("loadAddress").value_or(kDefaultAddress), kKernelSpace, true);
  }

  Status load_cpu_trace(const JsonValue& cpu) {
    const auto id = static_cast<int32_t>(cpu.number("id").value_or(0));
    const std::string switches = cpu.text("contextSwitchTrace");
    if (!switches.empty()) load_switches(resolve(switches), id);
    const std::string file = cpu.text("iptTrace");
    return file.empty() ? Status() : add_trace(file, id, -1);
  }

  // LLDB's own context switch trace: PERF_RECORD_SWITCH_CPU_WIDE with a trailer of pid, tid and time.
  void load_switches(const std::string& path, int32_t cpu) {
    constexpr uint32_t kSwitchCpuWide = 15;
    constexpr uint16_t kSwitchOut = 1U << 13;
    constexpr uint64_t kHeaderBytes = 8, kSwitchBytes = 32;
    const OwnFiles::Opened opened = files_.open(path);
    if (!opened.file) {
      data_.warnings.push_back(path + ": " + opened.why);
      return;
    }
    if (!switch_files_.insert(opened.file->identity()).second) {
      if (switches_again_++ == 0)
        data_.warnings.push_back(path + ": named by several cpus of the bundle; its switches are used for the first");
      return;
    }
    const Bytes bytes = opened.file->bytes();
    const auto u32 = [&](uint64_t at) {
      uint32_t v = 0;
      std::memcpy(&v, bytes.data() + at, sizeof v);
      return v;
    };
    const auto u16 = [&](uint64_t at) {
      uint16_t v = 0;
      std::memcpy(&v, bytes.data() + at, sizeof v);
      return v;
    };
    for (uint64_t at = 0; at + kHeaderBytes <= bytes.size();) {
      const uint64_t size = u16(at + 6);
      if (size < kHeaderBytes || size > bytes.size() - at) break;
      if (u32(at) == kSwitchCpuWide && size >= kSwitchBytes) {
        uint64_t time = 0;
        std::memcpy(&time, bytes.data() + at + 24, sizeof time);
        // OUT names the next task, IN's trailer names the task itself: both say who runs from here on.
        const bool out = (u16(at + 4) & kSwitchOut) != 0;
        const auto pid = static_cast<int32_t>(u32(at + (out ? 8 : 16)));
        const auto tid = static_cast<int32_t>(u32(at + (out ? 12 : 20)));
        const auto space = spaces_.find(pid);
        data_.contexts.add_switch(cpu, TimeNs{time}, {pid, tid, space == spaces_.end() ? kNoSpace : space->second});
      }
      at += size;
    }
  }

  const OpenRequest& options_;
  RecordingData& data_;
  ImageBuild image_;
  std::string dir_;
  OwnFiles files_{{}, OpenRequest{}};
  std::map<int32_t, SpaceId> spaces_;
  std::set<std::string> traces_;
  std::set<std::pair<uint64_t, uint64_t>> trace_files_, switch_files_;  // by identity
  KnownElfs elfs_;
  std::map<std::pair<std::string, std::string>, Module> modules_;  // by path and wanted build id
  decltype(RecordingData::elf_files) elf_files_;
  size_t again_ = 0, switches_again_ = 0;  // files named again
  size_t sections_ = 0;
  uint64_t name_bytes_ = 0;  // of sections
};

}  // namespace

Status load_lldb_bundle(const OpenRequest& options, RecordingData& data) {
  auto file = MappedFile::open(options.path);
  if (!file.ok()) return file.error();
  const Bytes bytes = (*file)->bytes();
  if (bytes.size() > kMaxJsonBytes) return bad_file(ErrorCode::bad_format, options.path, "too large for a trace bundle description");
  const auto root = JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!root || !root->is_object()) return bad_file(ErrorCode::unknown_format, options.path, "not a JSON object");
  if (root->text("type") != "intel-pt") return bad_file(ErrorCode::unknown_format, options.path, "not an LLDB bundle of type intel-pt");
  data.kind = RecordingKind::lldb;
  return BundleLoader(options, data).load(*root);
}

}  // namespace ptd
