// The records of an emulated run.
#include "capture/emulate/user_sideband.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "capture/emulate/shared/user_config.h"
#include "image/base/system_error.h"
#include "image/source/build_id_note.h"
#include "image/source/elf_file.h"
#include "image/source/jitdump.h"
#include "perfio/emulated.h"

namespace ptd::emulate {
namespace {

constexpr uint32_t kProtWrite = 2, kProtExec = 4, kMapPrivate = 2;
constexpr uint64_t kMarkerBytes = 0x1000;
constexpr const char *kVdso = "[vdso]", *kVdsoName = "vdso.so";  // in the plugin's events; in the recording

// "address size offset major minor inode prot path"
UserMap map_of(const UserEvent& event) {
  UserMap map;
  map.ip = event.number(0);
  map.size_bytes = event.number(1);
  map.file_offset_bytes = event.number(2);
  map.major = static_cast<uint32_t>(event.number(3));
  map.minor = static_cast<uint32_t>(event.number(4));
  map.inode = event.number(5);
  map.prot = static_cast<uint32_t>(event.number(6));
  map.path = event.text(7);
  if (event.words.size() > 8 && event.words[8] != "?") map.build_id = event.text(8);
  map.written_at_ns = static_cast<int64_t>(event.number(10));
  return map;
}

void unmap(std::vector<UserMap>& files, uint64_t first, uint64_t end) {
  std::vector<UserMap> left;
  for (const UserMap& map : files) {
    if (map.end() <= first || map.ip >= end) {
      left.push_back(map);
      continue;
    }
    if (map.ip < first) {
      left.push_back(map);
      left.back().size_bytes = first - map.ip;
    }
    if (map.end() > end) {
      left.push_back(map);
      left.back().ip = end;
      left.back().size_bytes = map.end() - end;
      left.back().file_offset_bytes += end - map.ip;
    }
  }
  files = std::move(left);
}

constexpr uint64_t kPageBytes = 4096;
uint64_t page_start(uint64_t address) { return address / kPageBytes * kPageBytes; }

/// Returns the parts of a loader's mapping that executable segments cover. QEMU maps code without PROT_EXEC, and the kernel lists adjacent
/// mappings as one, so only the program headers tell. `bias`: the address at which the file is loaded, minus its own.
std::vector<UserMap> executable_parts(const UserMap& map, const ElfFile& elf, uint64_t bias) {
  std::vector<UserMap> parts;
  for (const ElfSegment& segment : elf.segments()) {
    const uint64_t first = page_start(bias + segment.address),
                   end = page_start(bias + segment.address + segment.file_size_bytes + kPageBytes - 1);
    UserMap part = map;
    part.ip = std::max(map.ip, first);
    part.file_offset_bytes += part.ip - map.ip;
    part.size_bytes = std::min(map.end(), end) - part.ip;
    if (segment.executable && part.ip < std::min(map.end(), end)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

/// Something of an image that happens at a time.
struct UserSideband::Step {
  uint64_t tsc = 0;
  const UserThreadOutput* thread = nullptr;
  const UserEvent* event = nullptr;
  const UserBlock* block = nullptr;
  size_t child = 0;  ///< if neither: image `child` forks off
};

UserSideband::UserSideband(const std::vector<UserImage>& images, Places places, std::string first_comm)
    : images_(images), places_(std::move(places)), first_comm_(std::move(first_comm)) {}

Status UserSideband::run() {
  for (size_t i = 0; i < images_.size(); ++i) {
    if (Status status = run_image(i); !status) return status;
  }
  warn_of_refused();
  std::stable_sort(records_.begin(), records_.end(), [](const TimedRecord& a, const TimedRecord& b) { return a.tsc < b.tsc; });
  return {};
}

void UserSideband::warn_of_refused() {
  constexpr size_t kMostNamed = 16;
  for (const auto& [program, calls] : refused_) {
    std::string warning = program + ": the emulator refused system calls, so the program may have run in another way than without it: ";
    for (size_t i = 0; i < std::min(calls.size(), kMostNamed); ++i) warning += (i != 0 ? ", " : "") + calls[i];
    if (calls.size() > kMostNamed) warning += " and " + std::to_string(calls.size() - kMostNamed) + " more";
    warnings_.push_back(std::move(warning));
  }
}

std::vector<std::string> UserSideband::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, ids] : build_ids_) paths.push_back(path);
  return paths;
}

void UserSideband::put(uint64_t tsc, int32_t pid, int32_t tid, perfio::Payload payload) {
  records_.push_back({tsc, pid, tid, std::move(payload), 0});
}

void UserSideband::put_mapping(size_t index, uint64_t tsc, const UserMap& map) {
  const int32_t pid = images_[index].pid;
  perfio::MmapRecord record;
  record.pid = record.tid = pid;
  record.addr = map.ip;
  record.size_bytes = map.size_bytes;
  record.file_offset_bytes = map.file_offset_bytes;
  record.maj = map.major;
  record.min = map.minor;
  record.inode = map.inode;
  record.prot = map.prot | kProtExec;
  record.flags = kMapPrivate;
  record.build_id = map.build_id.value_or("");
  (void)build_ids_[map.path].insert(record.build_id);
  record.path = map.path;
  put(tsc, pid, pid, std::move(record));
}

// What was written to a file since it was mapped leaves its inode, and often its build id: a reader cannot know.
Status UserSideband::put_file(size_t index, uint64_t tsc, Space& space, const UserMap& map) {
  put_mapping(index, tsc, map);
  if ((map.prot & kProtWrite) != 0) {
    space.has_writable_code = true;
    if (Status status = open_jitdump(index); !status) return status;
  }
  if (!space.shown.is_rewritten(map)) return {};
  perfio::AuxtraceErrorRecord error;
  error.type = perfio::kAuxtraceErrorItrace;
  error.code = perfio::kRewrittenCode;
  error.pid = error.tid = images_[index].pid;
  error.ip = map.ip;
  error.message = "a file was written to after it was mapped";
  put(tsc, error.pid, error.tid, std::move(error));
  return {};
}

// Creates the first folder PREFIX/N that does not exist, from N = `next` on, so that files of earlier recordings are kept. If the folder
// cannot be created, creating a file in it reports the error.
std::filesystem::path UserSideband::new_folder(const std::filesystem::path& prefix, size_t& next) {
  std::error_code error;
  std::filesystem::create_directories(prefix, error);
  for (;;) {
    const std::filesystem::path folder = prefix / std::to_string(next++);
    if (std::filesystem::create_directory(folder, error) || error) return folder;
  }
}

// Of code that a program could have changed, even an empty jitdump says that it did not. The reader must not meet the marker of a jitdump
// before the space that it belongs to.
Status UserSideband::open_jitdump(size_t index) {
  if (!places_.ran_code || jitdump_ != nullptr) return {};
  const UserImage& image = images_[index];
  const std::filesystem::path folder = new_folder(places_.jit_prefix, next_dump_);
  const std::string path = std::filesystem::absolute(folder / ("jit-" + std::to_string(image.pid) + ".dump")).string();
  auto created = JitdumpWriter::create(path, image.pid, image.first_tsc);
  if (!created) return created.error();
  jitdump_ = std::move(*created);
  perfio::MmapRecord marker;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {  // proves later that the file is this one
    marker.maj = major(info.st_dev);
    marker.min = minor(info.st_dev);
    marker.inode = info.st_ino;
  }
  marker.pid = marker.tid = image.pid;
  marker.addr = kCompleteJitdumpAddress;
  marker.size_bytes = kMarkerBytes;
  marker.prot = 1 | kProtExec;
  marker.flags = kMapPrivate;
  marker.path = path;
  jitdump_marker_ = records_.size();
  put(image.first_tsc + 1, image.pid, image.pid, std::move(marker));
  return {};
}

Status UserSideband::tell(size_t index, uint64_t tsc, uint64_t ip, Bytes code) {
  if (!places_.ran_code) return {};
  if (Status status = open_jitdump(index); !status) return status;
  ++code_loads_;
  return jitdump_->load(tsc, images_[index].pid, ip, code);
}

void UserSideband::begin_image(size_t index, Space& space) {
  const UserImage& image = images_[index];
  if (image.parent >= 0) {
    space = std::move(at_fork_[index]);
    perfio::TaskRecord fork;
    fork.pid = fork.tid = image.pid;
    fork.ppid = images_[static_cast<size_t>(image.parent)].pid;
    fork.ptid = image.forker;
    put(image.first_tsc, image.pid, image.pid, fork);
    return;
  }
  ++programs_;
  perfio::CommRecord comm;
  comm.pid = comm.tid = image.pid;
  comm.exec = true;
  const auto known = next_comm_.find(image.pid);
  comm.comm = known != next_comm_.end() ? known->second : first_comm_;
  put(image.first_tsc, image.pid, image.pid, comm);
}

Status UserSideband::run_image(size_t index) {
  const UserImage& image = images_[index];
  Space space;
  begin_image(index, space);
  jitdump_ = nullptr;
  Status status;
  // Code of the parent that has no file is written again: each space has its own jitdump.
  if (image.parent >= 0) {
    if (space.has_writable_code) status = open_jitdump(index);
    space.shown.for_each_code(0, ~uint64_t{0}, [&](uint64_t ip, Bytes code) {
      if (status.ok()) status = tell(index, image.first_tsc + 1, ip, code);
    });
  }
  std::vector<Step> steps;
  for (const UserThreadOutput& thread : image.threads) {
    for (const UserEvent& event : thread.events) steps.push_back({event.tsc, &thread, &event, nullptr, 0});
  }
  for (const UserBlock& block : image.translations) steps.push_back({block.tsc, nullptr, nullptr, &block, 0});
  for (size_t child = index + 1; child < images_.size(); ++child) {
    if (images_[child].parent == static_cast<int>(index)) steps.push_back({images_[child].first_tsc, nullptr, nullptr, nullptr, child});
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.tsc < b.tsc; });
  for (const Step& step : steps) {
    if (!status) return status;
    if (step.event != nullptr) {
      status = on_event(index, space, *step.thread, *step.event);
    } else if (step.block != nullptr) {
      status = on_block(index, space, *step.block);
    } else {
      at_fork_[step.child] = space;
    }
  }
  if (jitdump_ == nullptr || !status) return status;
  status = jitdump_->finish(image.last_tsc);
  std::get<perfio::MmapRecord>(records_[jitdump_marker_].payload).file_offset_bytes = jitdump_->sum();
  return status;
}

// The kernel writes a record of the whole mapping, and a reader takes it for the file's content. Code that was written to the memory is
// still there and is not translated again, so it is reported once more after the record.
Status UserSideband::on_protection(size_t index, Space& space, const UserEvent& event) {
  const uint64_t first = event.number(0), size = event.number(1);
  Status status;
  if (!places_.ran_code) put_anonymous(index, event.tsc, space, {first, size});
  for (UserMap map : std::vector<UserMap>(space.files)) {
    const uint64_t from = std::max(map.ip, first), to = std::min(map.end(), first + size);
    if (from >= to) continue;
    map.file_offset_bytes += from - map.ip;
    map.ip = from;
    map.size_bytes = to - from;
    map.prot = static_cast<uint32_t>(event.number(2));
    if (status.ok()) status = put_file(index, event.tsc, space, map);
    space.shown.add_file_again(map);
    space.shown.for_each_code(from, to - 1, [&](uint64_t ip, Bytes code) {
      if (status.ok()) status = tell(index, event.tsc + 1, ip, code);
    });
  }
  return status;
}

// Without jitdumps, the memory in which a program generates code is recorded as the kernel would.
void UserSideband::put_anonymous(size_t index, uint64_t tsc, const Space& space, MemoryRange range) {
  UserMap map;
  map.path = "//anon";
  const uint64_t end = range.first + std::min(range.size_bytes, ~range.first);
  std::vector<UserMap> files(space.files);
  std::sort(files.begin(), files.end(), [](const UserMap& a, const UserMap& b) { return a.ip < b.ip; });
  const auto put_up_to = [&](uint64_t to) {
    if (to <= range.first) return;
    map.ip = range.first;
    map.size_bytes = to - range.first;
    put_mapping(index, tsc, map);
  };
  for (const UserMap& file : files) {
    if (file.end() <= range.first || file.ip >= end) continue;
    put_up_to(std::min(file.ip, end));
    range.first = std::max(range.first, file.end());
  }
  put_up_to(end);
}

// A file that no path names gets one in the recording's folder.
Status UserSideband::place_copy(const std::string& name, UserMap& map) {
  constexpr std::string_view kDeleted = " (deleted)";
  const auto [known, fresh] = copies_.try_emplace(name);
  if (fresh) {
    std::string file = map.path.substr(map.path.rfind('/') + 1);
    if (file.ends_with(kDeleted)) file.resize(file.size() - kDeleted.size());
    if (file.empty() || file == "." || file == "..") file = "file";  // a memfd may have any name
    const std::filesystem::path folder = new_folder(places_.jit_prefix + "/files", next_copy_);
    std::error_code error;
    known->second = std::filesystem::absolute(folder / file, error).string();
    std::filesystem::copy_file(places_.work_folder + "/" + name, known->second, error);
    if (error) return system_error("cannot write " + known->second, ErrorCode::write_failed, error.value());
  }
  const RegularFile regular = open_regular(known->second);
  const auto copy = MappedFile::open(regular, known->second);
  if (!copy.ok()) return copy.error();
  const FileId id = (*copy)->mapped_id();
  map.path = known->second;
  map.major = id.maj;
  map.minor = id.min;
  map.inode = id.inode;
  map.build_id = read_build_id(regular.fd.get());
  map.written_at_ns = 0;
  return {};
}

Status UserSideband::on_map(size_t index, Space& space, const UserEvent& event) {
  UserMap map = map_of(event);
  unmap(space.files, map.ip, map.end());
  const std::string copy = event.text(9);
  if (map.path == kVdso) {
    map.path = copy;
    space.vdso = map;
    return {};
  }
  if (copy == "?") {
    if (lost_files_.insert(map.path).second)
      warnings_.push_back(map.path + ": no path names this file, and it could not be copied; its functions have no names");
  } else if (!copy.empty()) {
    if (Status status = place_copy(copy, map); !status) return status;
  }
  if (!places_.ran_code && (map.prot & kProtExec) != 0 && map.path.starts_with("//"))
    put_anonymous(index, event.tsc, space, {map.ip, map.size_bytes});
  if (map.path.empty() || map.path.front() != '/' || map.path.starts_with("//") || map.path.starts_with("/memfd:")) return {};
  space.files.push_back(map);
  const std::vector<UserMap> parts = event.kind == "first_map"     ? loaded_code(space, map)
                                     : (map.prot & kProtExec) != 0 ? std::vector{map}
                                                                   : std::vector<UserMap>();
  for (const UserMap& part : parts) {
    if (Status status = put_file(index, event.tsc, space, part); !status) return status;
    space.shown.add_file(part);
  }
  return {};
}

// Most programs execute nothing of their vdso, so it is recorded, as mapped from the start, when they do.
Status UserSideband::map_vdso(size_t index, Space& space) {
  UserMap map = *std::exchange(space.vdso, std::nullopt);
  const std::string copy = std::exchange(map.path, kVdsoName);
  if (Status status = place_copy(copy, map); !status) return status;
  space.files.push_back(map);
  for (const UserMap& part : loaded_code(space, map)) {
    put_mapping(index, images_[index].first_tsc, part);
    space.shown.add_file(part);
  }
  return {};
}

// The lowest mapping of a file comes first. If the file is gone, any part of it may be code.
std::vector<UserMap> UserSideband::loaded_code(Space& space, const UserMap& map) {
  const std::shared_ptr<const MappedFile> file = space.shown.file_of(map);
  if (file == nullptr) return {map};
  const auto elf = ElfFile::open(file);
  if (!elf.ok()) return {map};
  const auto lowest = std::find_if(space.files.begin(), space.files.end(), [&map](const UserMap& other) { return other.path == map.path; });
  return executable_parts(map, **elf, lowest->ip - page_start((*elf)->lowest_address()));
}

Status UserSideband::on_event(size_t index, Space& space, const UserThreadOutput& thread, const UserEvent& event) {
  const UserImage& image = images_[index];
  const uint64_t first = event.number(0), size = event.number(1);
  if (event.kind == "thread") {
    if (thread.tid != image.pid) {
      const int32_t creator = thread.creator >= 0 ? thread.creator : image.pid;
      put(thread.created_tsc != 0 ? thread.created_tsc : event.tsc, image.pid, thread.tid,
          perfio::TaskRecord{image.pid, image.pid, thread.tid, creator, 0, false});
    }
    put(event.tsc, image.pid, thread.tid, perfio::ItraceStartRecord{image.pid, thread.tid});
  } else if (event.kind == "first_map" || event.kind == "map") {
    return on_map(index, space, event);
  } else if (event.kind == "unmap" || event.kind == "move") {
    unmap(space.files, first, first + size);
  } else if (event.kind == "exec_prot") {
    return on_protection(index, space, event);
  } else if (event.kind == "comm") {
    put(event.tsc, image.pid, thread.tid, perfio::CommRecord{image.pid, thread.tid, event.text(0), false});
  } else if (event.kind == "exec") {
    next_comm_[image.pid] = event.text(0);
  } else if (event.kind == "exec_failed") {
    next_comm_.erase(image.pid);
  } else if (event.kind == "escaped") {
    escapes_.push_back({image.pid, event.text(0)});
    warnings_.push_back(event.text(0) +
                        ": not a program for the emulated architecture; it ran outside the emulator and is not in the "
                        "recording");
  } else if (event.kind == "call_refused") {
    std::vector<std::string>& calls = refused_[event.text(0)];
    if (std::find(calls.begin(), calls.end(), event.text(1)) == calls.end()) calls.push_back(event.text(1));
  } else if (event.kind == "exit") {
    put(event.tsc, image.pid, thread.tid, perfio::TaskRecord{image.pid, image.pid, thread.tid, thread.tid, 0, true});
  }
  return {};
}

Status UserSideband::on_block(size_t index, Space& space, const UserBlock& translation) {
  const TruthBlock* block = find_block(images_, index, translation.number);
  if (block == nullptr) return {};
  if (space.vdso && block->ip - space.vdso->ip < space.vdso->size_bytes) {
    if (Status status = map_vdso(index, space); !status) return status;
  }
  if (space.shown.shows(block->ip, block->bytes)) return {};
  space.shown.add_code(block->ip, block->bytes);
  return tell(index, translation.tsc, block->ip, block->bytes);
}

}  // namespace ptd::emulate
