// Opens an OpenCSD / DS-5 snapshot directory: snapshot.ini names devices, trace.ini buffers and which source traces which core. Or a
// capture file (docs/FORMAT-capture.md), which says the same of one trace file.
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "decoder/arm/packet/frame_reader.h"
#include "image/base/mapped_file.h"
#include "recording/coresight/snapshot_dumps.h"
#include "recording/coresight/snapshot_ini.h"
#include "recording/data/arm_sources.h"
#include "recording/data/own_files.h"
#include "recording/data/recording_data.h"
#include "recording/image/image_build.h"
#include "recording/image/words.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxIniBytes = 4ULL << 20;
constexpr uint64_t kMaxAllInisBytes = 64ULL << 20;  // of devices
constexpr size_t kMaxDevices = 4096, kMaxBuffers = 4096, kMaxSources = 4096;
constexpr size_t kMaxNameBytes = 4096;  // of a device
// Every reading of a trace file adds it to the trace.
constexpr size_t kMaxTraceFiles = 1U << 16, kMaxReadings = 16;  // in all, and of one file under whatever paths
constexpr uint64_t kMaxAgainBytes = 256ULL << 20;               // of trace that was read before

Error bad(ErrorCode code, const std::string& path, const std::string& what) { return {code, path + ": " + what, 0}; }

/// `why`: gets the reason if the file is not read. Without it, a file that is too large gives its first part.
std::string read_ini(const std::string& path, const OwnFiles& files, std::string* why = nullptr) {
  const OwnFiles::Opened opened = files.open(path);
  if (why != nullptr) *why = opened.why;
  if (!opened.file) return {};
  if (why != nullptr && opened.file->bytes().size() > kMaxIniBytes) {
    *why = "larger than " + std::to_string(kMaxIniBytes >> 20) + " MiB";
    return {};
  }
  const Bytes bytes = opened.file->bytes().first(std::min<size_t>(opened.file->bytes().size(), kMaxIniBytes));
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  // UTF-16 has a byte order mark, or a zero byte beside each ASCII character.
  const bool utf16 = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") || text.substr(0, 2).find('\0') != std::string_view::npos;
  if (!utf16) return std::string(text);
  if (why != nullptr) *why = "its text is UTF-16, not UTF-8";
  return {};
}

/// The words of a list, which commas part.
std::vector<std::string_view> listed_words(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    words.push_back(trimmed(list.substr(0, comma)));
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
  }
  return words;
}

arm::Protocol protocol_of(std::string_view type) {
  struct Row {
    std::string_view prefix;
    arm::Protocol protocol;
  };
  static constexpr Row kRows[] = {
      {"ETM3", arm::Protocol::etmv3}, {"ETM4", arm::Protocol::etmv4}, {"ETE", arm::Protocol::ete}, {"PTM", arm::Protocol::ptm},
      {"PFT", arm::Protocol::ptm},    {"ITM", arm::Protocol::itm},    {"STM", arm::Protocol::stm},
  };
  for (const Row& row : kRows) {
    if (equal_words(type.substr(0, row.prefix.size()), row.prefix)) return row.protocol;
  }
  return arm::Protocol::none;
}

std::optional<uint32_t> register_value(std::string_view text) {
  uint64_t value = 0;
  return parse_number(text, value) && value <= UINT32_MAX ? std::optional(static_cast<uint32_t>(value)) : std::nullopt;
}

/// One device ini.
struct Device {
  std::string name, cls, type;
  IniFile ini;

  uint32_t number(std::string_view key, uint32_t otherwise) const {
    return register_value(ini.section("regs").value(key)).value_or(otherwise);
  }
};

/// Whether config_of() reads the register.
bool is_read(std::string_view name) {
  constexpr std::string_view kNames[] = {"ETMCR",      "ETMTRACEIDR", "ETMIDR",  "ETMCCER", "ITM_TCR", "ITMTCR",  "STMTCSR",
                                         "TRCCONFIGR", "TRCTRACEIDR", "TRCIDR0", "TRCIDR1", "TRCIDR2", "TRCIDR8", "TRCDEVARCH"};
  return std::ranges::any_of(kNames, [name](std::string_view each) { return equal_words(each, name); });
}

/// What the type of a core says of its architecture: "Cortex-M4", or as "ARMv8.1-M", "ARMv7E-M", "ARMv8M". [OpenCSD] "core_arch_map".
void take_profile(std::string_view type, arm::TraceConfig& config) {
  const std::string name = lower_case(type);
  constexpr std::string_view kCortexM = "cortex-m";
  if (const size_t at = name.find(kCortexM); at != std::string::npos) {
    // Two digits, with or without P after them, are Armv8-M; M0, M0+, M1, M3, M4 and M7 are older.
    const std::string_view number = std::string_view(name).substr(at + kCortexM.size());
    const size_t digits = std::min(number.find_first_not_of("0123456789"), number.size());
    config.m_profile = true;
    config.v7_core = digits <= 1;
    return;
  }
  for (size_t at = name.find('v'); at != std::string::npos; at = name.find('v', at + 1)) {
    const size_t after = name.find_first_not_of("0123456789.", at + 1);
    if (after == at + 1) continue;
    config.v7_core = name[at + 1] == '7' || name[at + 1] == '6';
    if (after == std::string::npos) return;
    std::string_view profile = std::string_view(name).substr(after);
    if (profile.starts_with('e')) profile.remove_prefix(1);
    if (profile.starts_with('-')) profile.remove_prefix(1);
    config.m_profile = profile.starts_with('m');
    return;
  }
}

arm::TraceConfig config_of(const Device& device, arm::Protocol protocol) {
  arm::TraceConfig config;
  config.protocol = protocol;
  switch (protocol) {
    case arm::Protocol::etmv3:
    case arm::Protocol::ptm:
      config.configr = device.number("ETMCR", 0);
      config.traceidr = device.number("ETMTRACEIDR", 0);
      config.idr0 = device.number("ETMIDR", protocol == arm::Protocol::ptm ? 0x4100f310 : 0x4100f250);
      config.idr1 = device.number("ETMCCER", 0);
      break;
    case arm::Protocol::itm:
      config.configr = device.number("ITM_TCR", device.number("ITMTCR", 0));
      config.traceidr = (config.configr >> 16) & 0x7f;
      break;
    case arm::Protocol::stm:
      config.configr = device.number("STMTCSR", 0);
      config.traceidr = (config.configr >> 16) & 0x7f;
      break;
    default:
      config.configr = device.number("TRCCONFIGR", config.configr);
      config.traceidr = device.number("TRCTRACEIDR", 0);
      config.idr0 = device.number("TRCIDR0", config.idr0);
      config.idr1 = device.number("TRCIDR1", config.idr1);
      config.idr2 = device.number("TRCIDR2", config.idr2);
      config.idr8 = device.number("TRCIDR8", 0);
      config.devarch = device.number("TRCDEVARCH", protocol == arm::Protocol::ete ? 0x47705a13 : 0);
  }
  config.trace_id = config.traceidr & 0x7f;
  return config;
}

/// Loads one snapshot; holds what is needed only meanwhile.
class SnapshotLoader {
 public:
  SnapshotLoader(const OpenRequest& options, RecordingData& data, std::string dir)
      : options_(options), data_(data), image_(options), dir_(std::move(dir)), files_(dir_, options) {}

  Status load();
  /// `dir` is a capture file.
  Status load_capture();

 private:
  struct Buffer {
    std::string name, file, format;
  };
  Status read_devices(const IniFile& snapshot);
  void add_device(Device device);
  void read_buffers(const IniFile& trace);
  void add_dumps(const Device& core);
  void add_buffer(const Buffer& buffer, const std::vector<std::string_view>& sources);
  void add_files(const Buffer& buffer, const std::vector<size_t>& members);
  void lose_trace(const std::string& what);
  std::shared_ptr<const MappedFile> open_trace(const std::string& path);
  Bytes read_files(const Buffer& buffer, std::vector<std::shared_ptr<const MappedFile>>& held, std::vector<std::byte>& joined);
  ArmSource source_of(const Device& device, const std::string& name, arm::Protocol protocol) const;
  void take_streams();
  Status finish(const std::string& path);
  [[nodiscard]] std::string path_of(std::string_view file) const;

  const OpenRequest& options_;
  RecordingData& data_;
  ImageBuild image_;
  std::string dir_;
  OwnFiles files_;
  SpaceId user_;
  std::vector<Device> devices_;
  std::map<std::string, size_t> device_of_;  // by name in lower case; the first of that name
  std::vector<Buffer> buffers_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> readings_;  // of files of trace, by identity
  size_t trace_files_ = 0;                                    // named by buffers
  uint64_t again_bytes_ = 0;
  std::set<std::string, std::less<>> strangers_;  // sources that are no device, reported
  ArmSources sources_;
  size_t sources_sought_ = 0;
  std::vector<size_t> order_;                   // sources in the order of buffers
  std::map<std::string, std::string> core_of_;  // source in lower case -> core
  SnapshotDumps dumps_;
};

std::string SnapshotLoader::path_of(std::string_view file) const {
  std::string path(file);
  std::replace(path.begin(), path.end(), '\\', '/');
  return !path.empty() && path[0] == '/' ? path : dir_ + "/" + path;
}

void SnapshotLoader::add_device(Device device) {
  device_of_.emplace(lower_case(device.name), devices_.size());
  devices_.push_back(std::move(device));
}

Status SnapshotLoader::read_devices(const IniFile& snapshot) {
  uint64_t all_bytes = 0;
  for (const auto& [key, file] : snapshot.section("device_list").values) {
    if (devices_.size() >= kMaxDevices) break;
    std::string why;
    const std::string text = read_ini(path_of(file), files_, &why);
    if (text.empty()) {
      data_.warnings.push_back(path_of(file) + ": " + (why.empty() ? "empty" : why) + "; the device " + key + " is ignored");
      continue;
    }
    if ((all_bytes += text.size()) > kMaxAllInisBytes) {
      data_.warnings.push_back(dir_ + ": its devices fill more than " + std::to_string(kMaxAllInisBytes >> 20) + " MiB: " + key +
                               " and those after it are ignored");
      break;
    }
    Device device;
    device.ini = parse_ini(text);
    const IniSection& head = device.ini.section("device");
    device.name = head.value("name");
    device.cls = head.value("class");
    device.type = head.value("type");
    if (std::max({device.name.size(), device.cls.size(), device.type.size()}) > kMaxNameBytes) {
      data_.warnings.push_back(path_of(file) + ": a name in it has more than " + std::to_string(kMaxNameBytes) +
                               " bytes; the device is ignored");
      continue;
    }
    for (const auto& [name, value] : device.ini.section("regs").values) {
      if (!is_read(name) || register_value(value)) continue;
      data_.warnings.push_back(path_of(file) + ": " + name + "=" + value +
                               " is no number of 32 bits and is ignored: the trace may be read wrongly");
    }
    add_device(std::move(device));
  }
  if (devices_.empty()) return bad(ErrorCode::missing_part, dir_ + "/snapshot.ini", "names no device that can be read");
  return {};
}

void SnapshotLoader::add_dumps(const Device& core) {
  for (const IniSection& section : core.ini.sections) {
    if (is_dump(section)) dumps_.add(section, path_of(section.value("file")), files_, data_.warnings);
  }
}

// Buffers come in the order of their sections; "buffers=" says which of them count.
void SnapshotLoader::read_buffers(const IniFile& trace) {
  std::set<std::string> listed;  // in lower case
  for (const std::string_view name : listed_words(trace.section("trace_buffers").value("buffers"))) listed.insert(lower_case(name));
  for (const IniSection& section : trace.sections) {
    if (!listed.contains(lower_case(section.name))) continue;
    if (buffers_.size() >= kMaxBuffers) {
      lose_trace(dir_ + ": it names more than " + std::to_string(kMaxBuffers) + " buffers: the others are ignored");
      break;
    }
    buffers_.push_back({std::string(section.value("name")), std::string(section.value("file")), std::string(section.value("format"))});
  }
  for (const auto& [core, source] : trace.section("core_trace_sources").values) {
    if (core.size() <= kMaxNameBytes) core_of_[lower_case(source)] = core;
  }
}

ArmSource SnapshotLoader::source_of(const Device& device, const std::string& name, arm::Protocol protocol) const {
  ArmSource source;
  source.name = name;
  source.config = config_of(device, protocol);
  if (const auto core = core_of_.find(lower_case(name)); core != core_of_.end()) source.core = core->second;
  if (const auto core = device_of_.find(lower_case(source.core)); core != device_of_.end()) {
    take_profile(devices_[core->second].type, source.config);
  }
  return source;
}

/// `sources`: whose trace is in it.
void SnapshotLoader::add_buffer(const Buffer& buffer, const std::vector<std::string_view>& sources) {
  std::vector<size_t> members;
  for (const std::string_view source : sources) {
    if (++sources_sought_ > kMaxSources) break;
    const auto device = device_of_.find(lower_case(source));
    const arm::Protocol protocol = device == device_of_.end() ? arm::Protocol::none : protocol_of(devices_[device->second].type);
    if (protocol == arm::Protocol::none) {
      if (strangers_.emplace(source).second)
        data_.warnings.push_back(dir_ + ": the source " + std::string(source) + " is not a readable device");
      continue;
    }
    members.push_back(sources_.add_source(source_of(devices_[device->second], std::string(source), protocol)));
    order_.push_back(members.back());
  }
  add_files(buffer, members);
}

/// Reports trace that is not decoded.
void SnapshotLoader::lose_trace(const std::string& what) {
  data_.warnings.push_back(what);
  Finding finding;
  finding.kind = FindingKind::trace_lost;
  finding.what = what;
  image_.builder.add_finding(std::move(finding));
}

/// Opens a file of trace; null if it is not used, which is reported.
std::shared_ptr<const MappedFile> SnapshotLoader::open_trace(const std::string& path) {
  if (++trace_files_ > kMaxTraceFiles) {
    if (trace_files_ == kMaxTraceFiles + 1)
      lose_trace(dir_ + ": its buffers name more than " + std::to_string(kMaxTraceFiles) + " files of trace: the others are ignored");
    return nullptr;
  }
  OwnFiles::Opened opened = files_.open(path);
  if (!opened.file) {
    lose_trace("the trace " + path + " is not read: " + opened.why);
    return nullptr;
  }
  const size_t readings = ++readings_[opened.file->identity()];
  if (readings == kMaxReadings + 1)
    lose_trace(path + ": named more than " + std::to_string(kMaxReadings) + " times: further uses are ignored");
  if (readings > kMaxReadings) return nullptr;
  if (readings == 1) return opened.file;
  const uint64_t before = again_bytes_;
  again_bytes_ += opened.file->bytes().size();
  if (again_bytes_ <= kMaxAgainBytes) return opened.file;
  if (before <= kMaxAgainBytes)
    lose_trace(path + ": named again: trace that is named again has more than " + std::to_string(kMaxAgainBytes >> 20) +
               " MiB, and the rest is ignored");
  return nullptr;
}

/// The buffer's files, joined; `joined` holds what comes of several.
Bytes SnapshotLoader::read_files(const Buffer& buffer, std::vector<std::shared_ptr<const MappedFile>>& held,
                                 std::vector<std::byte>& joined) {
  std::string_view files = buffer.file;
  while (!files.empty()) {
    const size_t comma = files.find_first_of(",;");
    const std::string path = path_of(trimmed(files.substr(0, comma)));
    files = comma == std::string_view::npos ? std::string_view{} : files.substr(comma + 1);
    if (auto file = open_trace(path)) held.push_back(std::move(file));
  }
  if (held.size() == 1) return held[0]->bytes();
  size_t all_bytes = 0;
  for (const auto& file : held) all_bytes += file->bytes().size();
  joined.reserve(all_bytes);
  for (const auto& file : held) joined.insert(joined.end(), file->bytes().begin(), file->bytes().end());
  return joined;
}

void SnapshotLoader::add_files(const Buffer& buffer, const std::vector<size_t>& members) {
  std::vector<std::shared_ptr<const MappedFile>> held;
  std::vector<std::byte> joined;
  const Bytes bytes = read_files(buffer, held, joined);
  if (equal_words(buffer.format, "source_data")) {
    if (members.empty()) return;
    sources_.add_raw(members[0], bytes, 0);
    return;
  }
  const bool synced = equal_words(buffer.format, "dstream_coresight") || equal_words(buffer.format, "tpiu");
  const arm::FrameFormat told = synced ? arm::FrameFormat::synced : arm::FrameFormat::aligned;
  const arm::FrameFormat found = sources_.likely_format(bytes, told, members);
  if (found != told) {
    const std::string what = found == arm::FrameFormat::synced ? "with frame syncs between its frames" : "as whole frames without syncs";
    data_.warnings.push_back(dir_ + ": the buffer " + buffer.name + " is read " + what + ", as its bytes require, not as its format says");
  }
  if (found == arm::FrameFormat::aligned && bytes.size() % arm::kFrameBytes != 0)
    lose_trace(path_of(trimmed(buffer.file)) + ": its " + std::to_string(bytes.size()) + " bytes are not whole frames of " +
               std::to_string(arm::kFrameBytes) + " bytes: the file was cut, or bytes are missing in it");
  const ArmSources::Losses losses = sources_.add_frames(bytes, 0, found, members);
  if (found == arm::FrameFormat::synced && losses.count != 0)
    lose_trace(path_of(trimmed(buffer.file)) + ": what is between two frame syncs is not whole frames in " + std::to_string(losses.count) +
               " places, first at offset " + std::to_string(losses.first_offset_bytes) +
               ": bytes are missing there, and it is not decoded");
}

void SnapshotLoader::take_streams() {
  if (sources_sought_ > kMaxSources)
    lose_trace(dir_ + ": it names more than " + std::to_string(kMaxSources) + " sources: the others are ignored");
  for (const size_t index : order_) {
    sources_.expect_async(index, false);
    AuxStream stream = sources_.take(index, data_.owners);
    ArmSource source = std::move(sources_.taken_source(index));
    stream.idx = source.config.trace_id;
    int32_t number = 0;
    for (const Device& device : devices_) {
      if (!equal_words(device.cls, "core")) continue;
      if (!source.core.empty() && equal_words(device.name, source.core)) stream.cpu = number;
      ++number;
    }
    data_.streams.push_back(std::move(stream));
    data_.arm.push_back(std::move(source));
  }
  for (Finding& finding : sources_.findings()) image_.builder.add_finding(std::move(finding));
  if (std::string strangers = sources_.tell_strangers(); !strangers.empty()) data_.warnings.push_back(dir_ + ": " + strangers);
}

Status SnapshotLoader::load() {
  const std::string path = dir_ + "/snapshot.ini";
  std::string why;
  const IniFile snapshot = parse_ini(read_ini(path, files_, &why));
  if (snapshot.section("device_list").values.empty())
    return bad(ErrorCode::unknown_format, path, why.empty() ? "not the description of a snapshot" : why);
  if (Status status = read_devices(snapshot); !status.ok()) return status;
  const std::string_view metadata = snapshot.section("trace").value("metadata");
  const std::string trace_path = path_of(metadata.empty() ? "trace.ini" : metadata);
  const IniFile trace = parse_ini(read_ini(trace_path, files_, &why));
  read_buffers(trace);
  if (buffers_.empty())
    return bad(why.empty() ? ErrorCode::no_trace : ErrorCode::missing_part, trace_path, why.empty() ? "names no trace buffer" : why);
  user_ = image_.builder.add_space();
  for (const Device& device : devices_) {
    add_dumps(device);
  }
  std::map<std::string, std::vector<std::string_view>> sources;  // by buffer in lower case
  for (const auto& [source, names] : trace.section("source_buffers").values) {
    for (const std::string_view name : listed_words(names)) sources[lower_case(name)].push_back(source);
  }
  for (const Buffer& buffer : buffers_) add_buffer(buffer, sources[lower_case(buffer.name)]);
  return finish(trace_path);
}

Status SnapshotLoader::load_capture() {
  const std::string path = dir_;
  std::string why;
  const IniFile capture = parse_ini(read_ini(path, OwnFiles::any(), &why));
  if (!why.empty()) return bad(ErrorCode::unknown_format, path, why);
  const size_t slash = path.rfind('/');
  dir_ = slash == std::string::npos ? "." : path.substr(0, slash);
  files_ = OwnFiles(dir_, options_);
  user_ = image_.builder.add_space();
  std::vector<std::string_view> sources;
  for (const IniSection& section : capture.sections) {
    const std::string_view title = section.name;
    if (is_dump(section)) dumps_.add(section, path_of(section.value("file")), files_, data_.warnings);
    const bool core = title.starts_with("core ");
    if ((!core && !title.starts_with("source ")) || devices_.size() >= kMaxDevices || title.size() > kMaxNameBytes) continue;
    Device device;
    device.name = title.substr(core ? 5 : 7);
    device.cls = core ? "core" : "trace_source";
    device.type = section.value("type");
    device.ini.sections = {{"regs", section.values}};
    if (!core) sources.push_back(title.substr(7));
    if (!section.value("core").empty()) core_of_[lower_case(device.name)] = section.value("core");
    add_device(std::move(device));
  }
  const IniSection& trace = capture.section("capture");
  add_buffer({"trace", std::string(trace.value("file")), std::string(trace.value("format"))}, sources);
  return finish(path);
}

Status SnapshotLoader::finish(const std::string& path) {
  for (const RawImage& image : options_.images) {
    if (Status status = dumps_.add(image); !status.ok()) return status;
  }
  take_streams();
  if (data_.streams.empty())
    return bad(ErrorCode::no_trace, path,
               "no buffer has a source that can be read" + (data_.warnings.empty() ? std::string() : " (" + data_.warnings[0] + ")"));
  const Context context{-1, -1, user_};
  data_.decoder.default_space = user_;
  data_.contexts.add_switch(-1, kTimeMin, context);
  data_.contexts.sort();
  data_.arm_follow.default_space = user_;
  data_.arm_follow.worlds = dumps_.place(image_, user_, data_.arm_follow.own_upper, data_.warnings);
  data_.description = "CoreSight snapshot " + dir_;
  if (options_.clock_hz != 0) data_.decoder.config.time = data_.arm_follow.time = TimeConversion::of_frequency(options_.clock_hz);
  image_.finish(data_);
  index_streams(options_, data_);
  return {};
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// A file named *.ini, other than a snapshot's, with a section [capture].
bool is_capture(const std::string& path) {
  if (!path.ends_with(".ini") || path.ends_with("snapshot.ini") || !is_regular_file(path)) return false;
  return !parse_ini(read_ini(path, OwnFiles::any())).section("capture").values.empty();
}

}  // namespace

std::string snapshot_directory(const std::string& path) {
  if (is_capture(path)) return path;
  if (is_directory(path)) return is_regular_file(path + "/snapshot.ini") ? path : std::string{};
  const size_t slash = path.rfind('/');
  if (!equal_words(path.substr(slash == std::string::npos ? 0 : slash + 1), "snapshot.ini")) return {};
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Status load_snapshot(const OpenRequest& options, const std::string& dir, RecordingData& data) {
  data.kind = RecordingKind::snapshot;
  SnapshotLoader loader(options, data, dir);
  return is_capture(dir) ? loader.load_capture() : loader.load();
}

}  // namespace ptd
