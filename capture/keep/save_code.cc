// Saves the code that a recording maps in a stash.
#include "capture/keep/save_code.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <span>
#include <tuple>

#include "image/source/build_id.h"
#include "image/source/code_source.h"
#include "image/source/jitdump.h"
#include "image/source/perf_map.h"
#include "image/stash/mapping_file.h"
#include "perfio/emulated.h"
#include "recording/image/image_build.h"
#include "recording/image/jit_image.h"
#include "recording/image/stashed_code.h"

namespace ptd {
namespace {

struct Mapping {
  perfio::MmapRecord map;
  uint64_t time_ns = 0;
  std::string build_id;
};

/// A file that is proven to be what a mapping showed, or why there is none.
struct Proven {
  stash::Fd fd;
  stash::EntryKind kind = stash::EntryKind::file;
  std::string why;
};

int64_t ns_of(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }
int64_t written_ns(const struct stat& info) { return ns_of(info.st_mtim); }

/// When the recording was written, and when each of its mappings existed already; nanoseconds since the epoch.
struct RecordAge {
  int64_t recorded_at_ns = 0;
  RecordTimes times;
  bool emulated = false;  ///< the clock may be another one; the recorder of a program has compared the files with those that were mapped
  /// Mappings whose files are known to be written to since: process, address, time.
  std::set<std::tuple<int32_t, uint64_t, uint64_t>> rewritten;
  [[nodiscard]] int64_t mapped_by(const Mapping& mapping) const {
    return emulated ? recorded_at_ns : times.latest_wall_ns(mapping.time_ns, recorded_at_ns);
  }
};

std::string process_path(int32_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

class MappingSaver {
 public:
  MappingSaver(stash::Capture& capture, const SaveOptions& options, const RecordAge& age, SaveReport& report)
      : capture_(capture), options_(options), age_(age), report_(report) {
    for (const stash::Entry& entry : capture.entries().entries) known_live_.emplace(entry.pid, entry.address, entry.time_ns);
  }

  void keep(const Mapping& mapping) {
    const std::string& path = mapping.map.path;
    if (known_live_.contains({mapping.map.pid, mapping.map.addr, mapping.time_ns})) return;
    if (path == "[vdso]") return keep_vdso(mapping);
    const bool memory = path.starts_with(kMemory);
    if (is_anonymous(path) && !memory) return;
    const Kept& kept = known_file(mapping);
    if (kept.content.hash.empty()) return;
    if (kept.changed_ns > age_.mapped_by(mapping) || age_.rewritten.contains({mapping.map.pid, mapping.map.addr, mapping.time_ns})) {
      const std::string changed = "changed after it was mapped, and ";
      return skip(path, changed + (mapping.build_id.empty() ? "there is no build id to check it" : "its build id does not show how"));
    }
    add_entry(mapping, kept.kind, kept.content);
  }

  /// The names of a process's code that is in no file. Kept as a jitdump is: found by process and path.
  void keep_perf_map(int32_t pid) {
    const std::string path = perf_map_path(pid);
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return;
    // Another process may have that number by now.
    if (!options_.just_recorded && written_ns(info) > age_.recorded_at_ns) return;
    const Result<std::string> text = read_own_perf_map(path);
    if (!text) return skip(path, text.error().message.substr(path.size() + 2));
    if (text->empty()) return;
    const Result<stash::Content> content = capture_.add(std::as_bytes(std::span(*text)), stash::Readers::owner);
    if (!content) return skip(path, content.error().message);
    count(*content);
    Mapping mapping;
    mapping.map.pid = pid;
    mapping.map.path = path;
    add_entry(mapping, stash::EntryKind::jitdump, *content);
  }

 private:
  struct Kept {
    stash::Content content;
    stash::EntryKind kind = stash::EntryKind::file;
    int64_t changed_ns = 0;  ///< when it was last written or changed; 0: of no importance
  };
  using FileKey = std::tuple<std::string, std::string, uint32_t, uint32_t, uint64_t, int32_t>;

  void skip(const std::string& path, const std::string& why) {
    if (skipped_.insert(path).second) report_.skipped.push_back({path, why});
  }

  void add_entry(const Mapping& mapping, stash::EntryKind kind, const stash::Content& content) {
    const perfio::MmapRecord& map = mapping.map;
    capture_.add_entry(
        {map.pid, 0, mapping.time_ns, map.addr, map.size_bytes, map.file_offset_bytes, kind, content.hash, content.build_id, map.path});
    ++report_.entries;
  }

  void count(const stash::Content& content) {
    if (!counted_.insert(content.hash).second) return;
    ++report_.contents;
    report_.new_contents += content.is_new ? 1 : 0;
  }

  void keep_vdso(const Mapping& mapping) {
    if (!options_.just_recorded) return;  // whose it was is not known
    // A program of 32 bits has another one, which is read from its memory while it runs (code_saver.h).
    if (mapping.map.addr < k4Gib) return skip("[vdso] of 32 bits", "its process ended before it could be read");
    const Bytes own = host_vdso();
    const Result<stash::Content> content = own.empty() ? Result<stash::Content>(Error{}) : capture_.add(own, stash::Readers::all);
    if (!content) return;
    if (!mapping.build_id.empty() && !same_build_id(mapping.build_id, content->build_id)) return;
    count(*content);
    add_entry(mapping, stash::EntryKind::vdso, *content);
  }

  // One look a file, however often it is mapped; what is in memory only is a process's own.
  const Kept& known_file(const Mapping& mapping) {
    const perfio::MmapRecord& map = mapping.map;
    const bool own = map.path.starts_with(kMemory) || map.path.ends_with(kDeleted);
    const auto [at, is_new] = files_.try_emplace(FileKey{map.path, mapping.build_id, map.maj, map.min, map.inode, own ? map.pid : -1});
    if (!is_new) return at->second;
    Proven proven = prove(mapping);
    if (!proven.fd.ok()) {
      skip(map.path, proven.why);
      return at->second;
    }
    struct stat info {};
    int64_t changed_ns = 0;
    if (::fstat(proven.fd.get(), &info) == 0) {
      const auto [first, last] = std::minmax({written_ns(info), ns_of(info.st_ctim)});
      changed_ns = mapping.build_id.empty() ? last : first;  // with a build id, only a write counts
    }
    const Result<stash::Content> content = capture_.add(proven.fd.get());
    if (!content) {
      skip(map.path, content.error().message);
      return at->second;
    }
    if (!mapping.build_id.empty() && !same_build_id(mapping.build_id, content->build_id)) {
      skip(map.path, "it has been replaced by another build");
      return at->second;
    }
    count(*content);
    const bool grows = is_jitdump_path(map.path);
    at->second = {*content, grows ? stash::EntryKind::jitdump : proven.kind, grows || own ? 0 : changed_ns};
    return at->second;
  }

  // As the process has it, else by its path in the process's file system, else by its path.
  Proven prove(const Mapping& mapping) {
    const perfio::MmapRecord& map = mapping.map;
    Proven proven;
    const bool memory = map.path.starts_with(kMemory), deleted = map.path.ends_with(kDeleted);
    if (options_.just_recorded) {
      stash::MappingFile mapped = stash::open_mapping({map.pid, map.addr, map.size_bytes, map.maj, map.min, map.inode, mapping.build_id});
      if (mapped.fd.ok() && (memory || deleted) && stash::is_written_through(mapped.fd.get(), map.flags)) {
        proven.why = "it can be modified while it runs, and was not read during the recording";
        return proven;
      }
      if (mapped.fd.ok() && is_unwritten(mapped.info, mapping, proven.why)) {
        proven.fd = std::move(mapped.fd);
        proven.kind = memory ? stash::EntryKind::memory : deleted ? stash::EntryKind::deleted : stash::EntryKind::file;
        return proven;
      }
    }
    if (memory || deleted) {
      proven = {};
      proven.why = memory ? "only in memory, and its process has ended" : "deleted, and its process has ended";
      return proven;
    }
    const std::string in_process = process_path(map.pid, "root") + map.path;
    for (const std::string& path : {options_.just_recorded ? in_process : std::string(), map.path}) {
      if (!path.starts_with('/')) continue;
      proven.fd = open_recorded(path).fd;
      if (proven.fd.ok() && is_the_one(proven.fd.get(), mapping, proven.why)) return proven;
    }
    if (!proven.fd.ok()) proven.why = "it no longer exists";
    proven.fd = {};
    return proven;
  }

  bool is_the_one(int fd, const Mapping& mapping, std::string& why) const {
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      why = "not a regular file";
      return false;
    }
    if (!mapping.build_id.empty()) return is_unwritten(info, mapping, why);
    const perfio::MmapRecord& map = mapping.map;
    if (!options_.just_recorded && !holds_code(fd)) {
      why = "neither its build id nor its content shows that it is code";
      return false;
    }
    const bool same_inode =
        map.inode == 0 || (map.inode == info.st_ino && (map.maj == 0 || (map.maj == major(info.st_dev) && map.min == minor(info.st_dev))));
    if (!same_inode) why = "it has been replaced by another file";
    return same_inode && is_unwritten(info, mapping, why);
  }

  // A recording that came from elsewhere may name any file.
  static bool holds_code(int fd) {
    const auto file = MappedFile::open(fd, {});
    return file.ok() && (is_jitdump((*file)->bytes()) || ElfFile::open(*file).ok());
  }

  bool is_unwritten(const struct stat& info, const Mapping& mapping, std::string& why) const {
    const bool grows = is_jitdump_path(mapping.map.path);
    // A file that is changed in place keeps its build id. A modification time in the future was set by hand.
    const int64_t written = mapping.build_id.empty() ? written_ns(info) : std::min(written_ns(info), ns_of(info.st_ctim));
    if (grows || written <= age_.recorded_at_ns) return true;
    why = mapping.build_id.empty() ? "modified since, and there is no build id to check it" : "modified since";
    return false;
  }

  stash::Capture& capture_;
  const SaveOptions& options_;
  const RecordAge& age_;
  SaveReport& report_;
  std::map<FileKey, Kept> files_;
  std::set<std::string> skipped_, counted_;
  std::set<std::tuple<int32_t, uint64_t, uint64_t>> known_live_;  // process, address, time
};

Status read_mappings(perfio::PerfReader& reader, std::vector<Mapping>& mappings, RecordAge& age) {
  const Status status = reader.read([&](const perfio::Record& record) {
    if (record.sample_id.has_time) age.times.add(record.sample_id.time);
    const auto* error = std::get_if<perfio::AuxtraceErrorRecord>(&record.payload);
    if (error != nullptr && error->code == perfio::kRewrittenCode) age.rewritten.emplace(error->pid, error->ip, error->time);
    const auto* map = std::get_if<perfio::MmapRecord>(&record.payload);
    if (map == nullptr || map->guest || map->kernel || !map->executable || map->pid <= 0 || is_kernel_half(Ip{map->addr})) return true;
    mappings.push_back(
        {*map, record.sample_id.has_time ? record.sample_id.time : 0, normalize_build_id(perfio::build_id_hex(map->build_id))});
    return true;
  });
  if (!status) return status;
  std::map<std::string, std::string> build_ids;
  for (const perfio::BuildIdEntry& entry : reader.features().build_ids)
    build_ids.emplace(entry.path, normalize_build_id(perfio::build_id_hex(entry.build_id)));
  for (Mapping& mapping : mappings) {
    const auto known = build_ids.find(mapping.map.path);
    if (mapping.build_id.empty() && known != build_ids.end()) mapping.build_id = known->second;
  }
  return {};
}

}  // namespace

Result<SaveReport> save_code(const std::string& recording, const SaveOptions& options, stash::Capture& capture) {
  auto reader = perfio::PerfReader::open(recording);
  if (!reader.ok()) return reader.error();
  std::vector<Mapping> mappings;
  RecordAge age;
  if (Status status = read_mappings(**reader, mappings, age); !status) return status.error();
  struct utsname own {};
  const std::string& host = (*reader)->features().hostname;
  if (!host.empty() && ::uname(&own) == 0 && host != own.nodename)
    return Error{ErrorCode::unsupported, recording + " was recorded on " + host + ", not on this machine", 0};
  age.recorded_at_ns = written_at_ns(recording);
  age.emulated = perfio::is_emulated((*reader)->features().cpu_desc);
  // Named before the long part: what is flushed by then is this recording's, also if this process is killed on the way.
  const std::string identity = recording_identity(**reader);
  (void)capture.name_recording(identity);
  SaveReport report;
  MappingSaver saver(capture, options, age, report);
  std::set<int32_t> processes;
  for (const Mapping& mapping : mappings) {
    saver.keep(mapping);
    if (is_anonymous(mapping.map.path) || is_jitdump_path(mapping.map.path)) processes.insert(mapping.map.pid);
  }
  for (const int32_t pid : processes) saver.keep_perf_map(pid);
  report.new_bytes = capture.new_bytes();
  if (Status status = capture.publish(identity); !status) return status.error();
  return report;
}

Result<SaveReport> save_code(const std::string& recording, const SaveOptions& options) {
  auto stash = stash::Stash::open(options.stash, stash::Stash::Access::write);
  if (!stash) return stash.error();
  auto capture = stash::Capture::begin(**stash, recording, options.limits);
  if (!capture) return capture.error();
  return save_code(recording, options, **capture);
}

}  // namespace ptd
