// Stash: contents stored once each and linked from recordings.
#include "image/stash/stash.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "image/base/environment.h"
#include "image/base/system_error.h"
#include "image/source/build_id.h"
#include "image/source/elf_file.h"
#include "image/stash/content_hash.h"

namespace ptd::stash {
namespace {

constexpr std::string_view kFormat = "ptdecode-stash 1\n";
constexpr uint64_t kChunkBytes = 1U << 20;
constexpr uint64_t kLeastFreeShare = 20;

Error too_large(const std::string& what) { return Error{ErrorCode::too_large, what, 0}; }

std::string random_name() {
  uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) value = static_cast<uint64_t>(::clock());
  return std::to_string(::getpid()) + "." + std::to_string(value);
}

/// Reads a file from start to end. It is also an error if the file turns out to be longer than `limit_bytes`.
Status for_each_chunk(int fd, uint64_t limit_bytes, const std::function<Status(Bytes)>& take) {
  std::vector<std::byte> buffer(kChunkBytes);
  uint64_t at = 0;
  while (true) {
    const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("reading a file to save", ErrorCode::read_failed);
    if (got == 0) return {};
    at += static_cast<uint64_t>(got);
    if (at > limit_bytes) return too_large("larger than the limit (" + std::to_string(limit_bytes) + " bytes)");
    if (Status status = take(Bytes(buffer).first(static_cast<size_t>(got))); !status) return status;
  }
}

/// Checks the kinds of everything at the top of a stash, so that a foreign one is named once and not for each content. A part may be
/// absent.
Status check_parts(const Dir& top) {
  for (const char* name : {kObjects, kBuildIds, kRecordings, kIncoming}) {
    if (const Result<Dir> dir = top.sub(name, false); !dir && dir.error().code != ErrorCode::not_found) return dir.error();
  }
  return top.check_file(kLockFile);
}

mode_t mode_of(const std::string& stash, Readers readers) { return stash == kSystemStash && readers == Readers::all ? 0444 : 0400; }

}  // namespace

bool open_to_all(int fd) {
  struct stat file {
  }, named{};
  if (::fstat(fd, &file) != 0 || (file.st_mode & S_IROTH) == 0 || file.st_nlink == 0) return false;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  // The name must lead to the file. That of a deleted file, or of a file of another mount namespace, does not.
  if (error || !path.is_absolute() || ::stat(path.c_str(), &named) != 0) return false;
  if (named.st_dev != file.st_dev || named.st_ino != file.st_ino) return false;
  for (std::filesystem::path folder = path.parent_path();; folder = folder.parent_path()) {
    if (::stat(folder.c_str(), &named) != 0 || (named.st_mode & S_IXOTH) == 0) return false;
    if (folder == folder.root_path()) return true;
  }
}

std::string own_stash_path() {
  if (std::string given = environment::stash(); !given.empty()) return given == "off" ? std::string() : given;
  if (const std::string cache = environment::cache_home(); cache.starts_with('/')) return cache + "/ptdecode";
  if (::geteuid() == 0) return kSystemStash;
  const std::string home = environment::home();
  return home.starts_with('/') ? home + "/.cache/ptdecode" : std::string();
}

std::string system_stash_path() { return environment::stash().empty() ? kSystemStash : ""; }

std::vector<std::string> stash_paths() {
  std::vector<std::string> paths;
  for (std::string path : {own_stash_path(), system_stash_path()}) {
    if (!path.empty() && (paths.empty() || paths.front() != path)) paths.push_back(std::move(path));
  }
  return paths;
}

namespace {

/// A stash is not made among other files. `format` is its first file, which may have been interrupted. Other processes may make the same
/// stash at this moment, so the names are read first: if any of them is a part of a stash, `format` is there by the time it is looked for.
Status check_place(const Dir& top) {
  const std::vector<std::string> names = top.names();
  struct stat info {};
  if (top.stat("format", info)) return {};
  for (const std::string& name : names) {
    const bool is_temporary = name.starts_with("tmp.") && name.find_first_not_of("0123456789.", 4) == std::string::npos;
    if (is_temporary || name == "lost+found") continue;  // that of a file system
    return Error{ErrorCode::bad_output,
                 top.path() + ": not a stash, and not empty (it has " + name + "): name a stash, an empty folder or a new one", 0};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Stash>> Stash::open(const std::string& path, Access access) {
  if (path.empty())
    return Error{ErrorCode::not_found, "there is no stash: neither HOME nor XDG_CACHE_HOME is set, or PTDECODE_STASH=off", 0};
  const bool write = access == Access::write;
  Result<Dir> top = Dir::open_top(path, write ? (path == kSystemStash ? 0755U : 0700U) : 0U, !write && path == kSystemStash);
  if (!top) return top.error();
  if (write) {
    if (Status status = check_place(*top); !status) return status.error();
    if (Status status = top->publish("format", 0644, false, bytes_of(kFormat)); !status) return status.error();
    if (Status status = top->publish(kLockFile, 0600, false, Bytes{}); !status) return status.error();
    for (const char* name : {kObjects, kBuildIds, kRecordings, kIncoming}) {
      if (Result<Dir> dir = top->sub(name, true); !dir) return dir.error();
    }
  }
  if (Status status = check_parts(*top); !status) return status.error();
  struct stat info {};
  const bool has_parts = top->stat(kObjects, info) || top->stat(kRecordings, info);  // which are made after `format`
  const Result<std::string> format = top->read_file("format", kFormat.size());
  if (!format && has_parts && format.error().code == ErrorCode::not_found)
    return too_large(path + ": its file 'format' is missing, so the version of ptdecode that wrote it is not known");
  if (!format)
    return format.error().kind() == ErrorKind::file_format ? too_large(path + ": written by another version of ptdecode") : format.error();
  if (*format != kFormat) return too_large(path + ": written by another version of ptdecode");
  return std::unique_ptr<Stash>(new Stash(std::move(*top)));
}

Result<Fd> Stash::lock_file() const { return top_.open_file(kLockFile); }

Result<std::shared_ptr<const MappedFile>> Stash::read(const std::string& hash) const {
  if (!is_hash(hash)) return Error{ErrorCode::bad_format, "'" + hash + "' is not the hash of a file in the stash", 0};
  const std::lock_guard guard(mutex_);
  if (const auto known = checked_.find(hash); known != checked_.end()) return known->second;
  const Result<Dir> objects = top_.sub(kObjects, false);
  if (!objects) return objects.error();
  const Result<Dir> folder = objects->sub(hash.substr(0, kFolderDigits), false);
  if (!folder) return folder.error();
  const std::string name = hash.substr(kFolderDigits), path = folder->path() + "/" + name;
  const Result<Fd> fd = folder->open_file(name);
  if (!fd) return fd.error();
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(fd->get(), path);
  if (!file) return file.error();
  const std::string found = hash_of((*file)->bytes());
  if (!is_hash(found)) return Error{ErrorCode::out_of_memory, path + ": out of memory", 0};
  if (found != hash)
    return Error{ErrorCode::bad_checksum, path + " is damaged (its hash differs) and not used; see ptdecode stash verify", 0};
  checked_[hash] = *file;
  return file;
}

Result<std::vector<std::string>> Stash::with_build_id(const std::string& build_id) const {
  std::vector<std::string> hashes;
  if (build_id.size() < kFolderDigits * 2) return hashes;
  const Result<Dir> ids = top_.sub(kBuildIds, false);
  const Result<Dir> folder = ids ? ids->sub(build_id.substr(0, kFolderDigits), false) : Result<Dir>(ids.error());
  if (!folder && folder.error().code == ErrorCode::not_found) return hashes;
  if (!folder) return folder.error();
  for (const std::string& name : folder->names()) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos || !is_hash(std::string_view(name).substr(dot + 1))) continue;
    if (same_build_id(name.substr(0, dot), build_id)) hashes.push_back(name.substr(dot + 1));
  }
  return hashes;
}

Result<Entries> Stash::entries_of(const std::string& identity) const {
  if (!is_hash(identity)) return Error{ErrorCode::bad_format, "'" + identity + "' is not the identity of a recording", 0};
  const Result<Dir> recordings = top_.sub(kRecordings, false);
  if (!recordings) return recordings.error();
  const Result<Dir> dir = recordings->sub(identity, false);
  if (!dir) return dir.error();
  const Result<std::string> text = dir->read_file(kEntriesFile, kMaxEntriesBytes);
  if (!text) return text.error();
  return parse_entries(*text);
}

std::vector<std::string> Stash::recordings() const {
  const Result<Dir> recordings = top_.sub(kRecordings, false);
  std::vector<std::string> names = recordings ? recordings->names() : std::vector<std::string>();
  std::erase_if(names, [](const std::string& name) { return !is_hash(name); });
  return names;
}

void Stash::note_use(const std::string& identity) const {
  const Result<Dir> recordings = top_.sub(kRecordings, false);
  const Result<Dir> dir = recordings && is_hash(identity) ? recordings->sub(identity, false) : Result<Dir>(Error{});
  if (dir) (void)::utimensat(dir->fd(), kEntriesFile, nullptr, AT_SYMLINK_NOFOLLOW);
}

uint64_t Stash::total_bytes() const {
  uint64_t total = 0;
  const Result<Dir> objects = top_.sub(kObjects, false);
  if (!objects) return 0;
  for (const std::string& name : objects->names()) {
    const Result<Dir> folder = objects->sub(name, false);
    if (!folder) continue;
    for (const std::string& rest : folder->names()) {
      struct stat info {};
      if (folder->stat(rest, info)) total += static_cast<uint64_t>(info.st_size);
    }
  }
  return total;
}

Capture::Capture(Stash& stash, Dir dir, std::string name, Limits limits)
    : stash_(stash), dir_(std::move(dir)), alive_(dir_.fd(), true, 0), name_(std::move(name)), limits_(limits) {}

Result<std::unique_ptr<Capture>> Capture::begin(Stash& stash, const std::string& recording, const Limits& limits) {
  const Result<Fd> lock_file = stash.lock_file();
  if (!lock_file) return lock_file.error();
  const Lock lock(lock_file->get(), false, kLockWaitMs);
  if (!lock.ok()) return Error{ErrorCode::busy, stash.path() + ": locked by gc for more than a minute", 0};
  const Result<Dir> incoming = stash.top_.sub(kIncoming, false);
  if (!incoming) return incoming.error();
  const std::string name = random_name();
  Result<Dir> dir = incoming->sub(name, true);
  if (!dir) return dir.error();
  std::unique_ptr<Capture> capture(new Capture(stash, std::move(*dir), name, limits));
  capture->note_origin(recording);
  return capture;
}

Result<std::unique_ptr<Capture>> Capture::go_on(Stash& stash, const std::string& name, const std::string& recording, const Limits& limits) {
  const Result<Dir> incoming = stash.top_.sub(kIncoming, false);
  if (!incoming) return incoming.error();
  Result<Dir> dir = incoming->sub(name, false);
  if (!dir) return dir.error();
  std::unique_ptr<Capture> capture(new Capture(stash, std::move(*dir), name, limits));
  capture->is_heir_ = true;
  capture->note_origin(recording);
  if (const Result<std::string> flushed = capture->dir_.read_file(kEntriesFile, kMaxEntriesBytes); flushed) {
    if (Result<Entries> told = parse_entries(*flushed); told) capture->entries_ = std::move(*told);
  }
  return capture;
}

void Capture::note_origin(const std::string& recording) {
  std::error_code error;
  entries_.recording = std::filesystem::absolute(recording, error).string();
  struct utsname own {};
  if (::uname(&own) == 0) entries_.host = static_cast<const char*>(own.nodename);
  entries_.made_s = static_cast<int64_t>(::time(nullptr));
  total_bytes_ = stash_.total_bytes();
}

Capture::~Capture() {
  if (published_ || is_heir_) return;
  const Result<Dir> incoming = stash_.top_.sub(kIncoming, false);
  if (incoming) incoming->remove(name_);
}

Status Capture::check_room(uint64_t size_bytes) {
  if (size_bytes > limits_.recording_bytes - std::min(limits_.recording_bytes, new_bytes_))
    return too_large("more than the limit of new code for one recording (--stash-limit)");
  if (size_bytes > limits_.total_bytes - std::min(limits_.total_bytes, total_bytes_))
    return too_large("the stash is full (" + std::to_string(total_bytes_) + " bytes): delete unused files with ptdecode stash gc");
  struct statvfs info {};
  if (::fstatvfs(stash_.top_.fd(), &info) != 0) return {};
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize, all = uint64_t{info.f_blocks} * info.f_frsize;
  const uint64_t least = std::min(limits_.least_free_bytes, all / kLeastFreeShare);
  if (free < least || free - least < size_bytes) return too_large("the disk of the stash is nearly full");
  return {};
}

// Stores a content. `write` writes it and reports the hash of what it wrote.
Result<Content> Capture::keep(const std::string& hash, uint64_t size_bytes, Readers readers,
                              const std::function<Status(int, std::string&)>& write) {
  if (!is_hash(hash)) return Error{ErrorCode::out_of_memory, "out of memory", 0};
  const auto known = known_.find(hash);
  if (known != known_.end() && known->second.readers >= readers) return known->second.content;
  const Result<Fd> lock_file = stash_.lock_file();
  if (!lock_file) return lock_file.error();
  const Lock lock(lock_file->get(), false, kLockWaitMs);
  if (!lock.ok()) return Error{ErrorCode::busy, stash_.path() + ": locked by gc for more than a minute", 0};
  const Result<Dir> objects = stash_.top_.sub(kObjects, false);
  if (!objects) return objects.error();
  const Result<Dir> folder = objects->sub(hash.substr(0, kFolderDigits), true);
  if (!folder) return folder.error();
  const std::string name = hash.substr(kFolderDigits);
  struct stat info {};
  const bool was_there = folder->stat(name, info);
  // Replace a content that is damaged or not writable by us alone, because read() would refuse it.
  const bool is_whole = was_there && static_cast<uint64_t>(info.st_size) == size_bytes && stash_.read(hash).ok();
  Content content{hash, {}, size_bytes, !is_whole};
  if (!is_whole) {
    if (Status status = check_room(size_bytes); !status) return status.error();
    const auto checked = [&](int fd) -> Status {
      std::string written;
      if (Status status = write(fd, written); !status) return status;
      return written == hash ? Status() : Status(Error{ErrorCode::changed, "changed while it was read", 0});
    };
    if (Status status = folder->publish(name, mode_of(stash_.path(), readers), was_there, checked); !status) return status.error();
    folder->sync();
    new_bytes_ += size_bytes;
    total_bytes_ += size_bytes;
  }
  // A content that was private to one recording may become readable by all, but never the reverse.
  if (was_there && mode_of(stash_.path(), readers) == 0444 && (info.st_mode & S_IROTH) == 0) {
    if (const Result<Fd> fd = folder->open_file(name); fd) (void)::fchmod(fd->get(), 0444);
  }
  if (Status status = folder->link(name, dir_, hash); !status) return status.error();
  const auto file = MappedFile::open(folder->path() + "/" + name);
  const auto elf = file.ok() ? ElfFile::open(*file) : Result<std::shared_ptr<const ElfFile>>(file.error());
  if (elf.ok()) content.build_id = (*elf)->build_id();
  if (content.build_id.size() > kFolderDigits) {
    const Result<Dir> ids = stash_.top_.sub(kBuildIds, false);
    const Result<Dir> place = ids ? ids->sub(content.build_id.substr(0, kFolderDigits), true) : Result<Dir>(ids.error());
    const std::string target = std::string("../../") + kObjects + "/" + hash.substr(0, kFolderDigits) + "/" + name;
    if (place && ::symlinkat(target.c_str(), place->fd(), (content.build_id + "." + hash).c_str()) != 0 && errno != EEXIST)
      return system_error(place->path());
  }
  if (known != known_.end()) content.is_new = known->second.content.is_new;
  known_[hash] = {content, readers};
  return content;
}

Result<Content> Capture::add(int fd) {
  constexpr int kTries = 3;  // if the file changes while it is read
  const Readers readers = open_to_all(fd) ? Readers::all : Readers::owner;
  Error last;
  for (int i = 0; i < kTries; ++i) {
    Hasher hasher;
    uint64_t size = 0;
    const Status status = for_each_chunk(fd, limits_.file_bytes, [&](Bytes bytes) {
      hasher.add(bytes);
      size += bytes.size();
      return Status();
    });
    if (!status) return status.error();
    const auto write = [&](int to, std::string& written) {
      Hasher again;
      Status copied = for_each_chunk(fd, limits_.file_bytes, [&](Bytes bytes) {
        again.add(bytes);
        return write_all(to, bytes);
      });
      written = again.finish();
      return copied;
    };
    Result<Content> content = keep(hasher.finish(), size, readers, write);
    if (content.ok() || content.error().code != ErrorCode::changed) return content;
    last = content.error();
  }
  return last;
}

Result<Content> Capture::add(Bytes bytes, Readers readers) {
  if (bytes.size() > limits_.file_bytes) return too_large("larger than the limit (" + std::to_string(limits_.file_bytes) + " bytes)");
  const std::string hash = hash_of(bytes);
  return keep(hash, bytes.size(), readers, [&](int fd, std::string& written) {
    written = hash;
    return write_all(fd, bytes);
  });
}

Status Capture::flush() {
  number_generations(entries_);
  return dir_.publish(kEntriesFile, 0600, true, bytes_of(to_text(entries_)));
}

Status Capture::name_recording(const std::string& identity) {
  if (!is_hash(identity)) return Error{ErrorCode::bad_format, "'" + identity + "' is not the identity of a recording", 0};
  return dir_.publish(kIdentityFile, 0600, true, bytes_of(identity));
}

Status Capture::publish(const std::string& identity) {
  number_generations(entries_);
  // The flushed entries may come from a process that this one took over from.
  if (const Result<std::string> flushed = dir_.read_file(kEntriesFile, kMaxEntriesBytes); flushed) {
    if (const Result<Entries> told = parse_entries(*flushed); told) merge(*told, entries_);
  }
  if (entries_.entries.empty() && is_hash(identity)) return {};
  if (Status status = stash_.take_in(dir_, name_, identity, entries_); !status) return status;
  published_ = true;
  return {};
}

Status Stash::take_in(const Dir& dir, const std::string& name, const std::string& identity, Entries& entries) const {
  if (!is_hash(identity)) return Error{ErrorCode::bad_format, "'" + identity + "' is not the identity of a recording", 0};
  const Result<Dir> recordings = top_.sub(kRecordings, false);
  if (!recordings) return recordings.error();
  const Result<Dir> incoming = top_.sub(kIncoming, false);
  if (!incoming) return incoming.error();
  const Lock lock(recordings->fd(), true, kLockWaitMs);
  if (!lock.ok()) return Error{ErrorCode::busy, recordings->path() + ": locked by another process for more than a minute", 0};
  struct stat info {};
  const bool was_there = recordings->stat(identity, info);
  if (was_there) {
    const Result<Dir> old = recordings->sub(identity, false);
    if (!old) return old.error();
    for (const std::string& hash : old->names()) {
      if (is_hash(hash)) (void)old->link(hash, dir, hash);
    }
    if (const Result<Entries> older = entries_of(identity); older) merge(*older, entries);
  }
  if (Status status = dir.publish(kEntriesFile, 0600, true, bytes_of(to_text(entries))); !status) return status;
  dir.sync();
  const unsigned flags = was_there ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::renameat2(incoming->fd(), name.c_str(), recordings->fd(), identity.c_str(), flags) != 0) {
    // Not all file systems support this. If interrupted in between, gc finds the owner by this file.
    if (Status status = dir.publish(kIdentityFile, 0600, true, bytes_of(identity)); !status) return status;
    if (was_there && !recordings->remove(identity)) return system_error(recordings->path() + "/" + identity);
    if (::renameat(incoming->fd(), name.c_str(), recordings->fd(), identity.c_str()) != 0)
      return system_error(recordings->path() + "/" + identity);
  } else if (was_there) {
    incoming->remove(name);
  }
  dir.remove(kIdentityFile);
  recordings->sync();
  return {};
}

}  // namespace ptd::stash
