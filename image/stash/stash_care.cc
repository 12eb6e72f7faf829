// Listing, garbage collection and verification of a stash.
#include "image/stash/stash_care.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "image/stash/content_hash.h"
#include "image/stash/stash_dir.h"

namespace ptd::stash {
namespace {

void for_each_object(const Stash& stash, const std::function<void(const Dir& folder, const std::string& name, const struct stat&)>& take) {
  const Result<Dir> objects = stash.top().sub(kObjects, false);
  if (!objects) return;
  for (const std::string& prefix : objects->names()) {
    const Result<Dir> folder = objects->sub(prefix, false);
    if (!folder) continue;
    for (const std::string& name : folder->names()) {
      struct stat info {};
      if (folder->stat(name, info)) take(*folder, name, info);
    }
  }
}

std::string hash_of_place(const Dir& folder, const std::string& name) {
  return folder.path().substr(folder.path().size() - kFolderDigits) + name;
}

std::map<std::string, std::vector<std::string>> build_ids_of(const Stash& stash) {
  std::map<std::string, std::vector<std::string>> by_hash;
  const Result<Dir> ids = stash.top().sub(kBuildIds, false);
  if (!ids) return by_hash;
  for (const std::string& prefix : ids->names()) {
    const Result<Dir> folder = ids->sub(prefix, false);
    if (!folder) continue;
    for (const std::string& name : folder->names()) {
      const size_t dot = name.find('.');
      if (dot != std::string::npos) by_hash[name.substr(dot + 1)].push_back(name.substr(0, dot));
    }
  }
  return by_hash;
}

RecordingInfo info_of(const Stash& stash, const Dir& recordings, const std::string& identity) {
  RecordingInfo info;
  info.identity = identity;
  Result<Entries> entries = stash.entries_of(identity);
  if (entries) {
    info.entries = std::move(*entries);
  } else {
    info.trouble = entries.error().message;
  }
  const Result<Dir> dir = recordings.sub(identity, false);
  if (!dir) return info;
  struct stat file {};
  if (dir->stat(kEntriesFile, file)) info.used_s = file.st_mtim.tv_sec;
  for (const std::string& name : dir->names()) {
    if (!is_hash(name) || !dir->stat(name, file)) continue;
    ++info.contents;
    info.size_bytes += static_cast<uint64_t>(file.st_size);
  }
  return info;
}

/// Returns true if the entries contain code from no file, or from a file without a name.
bool is_irreplaceable(const Entries& entries) {
  return std::any_of(entries.entries.begin(), entries.entries.end(), [](const Entry& entry) {
    return entry.kind == EntryKind::deleted || entry.kind == EntryKind::memory || entry.kind == EntryKind::anonymous;
  });
}

/// One run of gc, which has exclusive access to the stash.
class Collection {
 public:
  Collection(Stash& stash, const GcOptions& options) : stash_(stash), options_(options) {}

  void run() {
    clear_incoming();
    forget();
    sweep();
    clear_names();
  }
  GcReport report;

 private:
  // Handles the data of dead recorders: it is assigned to their recordings if those were written nevertheless.
  void clear_incoming() {
    const Result<Dir> incoming = stash_.top().sub(kIncoming, false);
    if (!incoming) return;
    for (const std::string& name : incoming->names()) {
      const Result<Dir> dir = incoming->sub(name, false);
      if (dir && !Lock(dir->fd(), true, 0).ok()) {
        keep_names_of(*dir);
        continue;
      }
      if (dir && adopt(*dir, name)) continue;
      ++report.leftovers;
      if (!options_.dry_run) incoming->remove(name);
    }
  }

  // Returns false if the data is of no use.
  bool adopt(const Dir& left, const std::string& name) {
    const Result<std::string> text = left.read_file(kEntriesFile, kMaxEntriesBytes);
    Result<Entries> entries = text ? parse_entries(*text) : Result<Entries>(text.error());
    if (!entries || entries->entries.empty()) return false;
    const Result<std::string> named = left.read_file(kIdentityFile, kHashDigits);
    std::string identity = named ? *named : std::string();
    if (!is_hash(identity) && options_.owner_of) identity = options_.owner_of(*entries);
    if (!is_hash(identity)) return false;
    const std::string path = entries->recording;
    keep_names_of(left);
    Status status;
    if (!options_.dry_run) status = stash_.take_in(left, name, identity, *entries);
    if (status.ok()) report.adopted.push_back(path);
    if (!status.ok()) report.troubles.push_back(path + ": cannot complete what its killed recorder left: " + status.error().message);
    return true;
  }

  // Contents are kept alive by their links. The names in entries are needed on file systems that ran out of links.
  void keep_names_of(const Dir& dir) {
    for (const std::string& name : dir.names()) {
      if (is_hash(name)) named_.insert(name);
    }
    const Result<std::string> text = dir.read_file(kEntriesFile, kMaxEntriesBytes);
    const Result<Entries> entries = text ? parse_entries(*text) : Result<Entries>(text.error());
    if (!entries) return;
    for (const Entry& entry : entries->entries) named_.insert(entry.hash);
  }

  /// Returns true if the recording is neither at its path nor at PATH.old, to which the next recording renames it. A file that cannot be
  /// read may be the recording.
  bool is_gone(const RecordingInfo& recording) {
    if (!recording.trouble.empty()) return false;
    for (const std::string& path : {recording.entries.recording, recording.entries.recording + ".old"}) {
      if (::access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) continue;
      if (!options_.identify) return false;
      const auto [known, is_new] = identities_.try_emplace(path);
      if (is_new) known->second = options_.identify(path);
      if (known->second.empty() || known->second == recording.identity) return false;
    }
    return true;
  }

  void forget() {
    Listing listing = list(stash_);
    const int64_t now = static_cast<int64_t>(::time(nullptr));
    uint64_t total = listing.total_bytes;
    std::map<std::string, uint64_t> users, sizes;  // by content
    const Result<Dir> recordings = stash_.top().sub(kRecordings, false);
    if (!recordings) return;
    std::map<std::string, std::set<std::string>> contents;  // by recording
    for (const ContentInfo& content : listing.contents) sizes[content.hash] = content.size_bytes;
    for (const RecordingInfo& recording : listing.recordings) {
      std::set<std::string>& its = contents[recording.identity];
      if (const Result<Dir> dir = recordings->sub(recording.identity, false); dir) {
        for (const std::string& name : dir->names()) {
          if (is_hash(name)) its.insert(name);
        }
      }
      for (const std::string& hash : its) ++users[hash];
    }
    for (const auto& [hash, size] : sizes) total -= users.contains(hash) ? 0 : size;
    for (auto recording = listing.recordings.rbegin(); recording != listing.recordings.rend(); ++recording) {  // least recently used first
      const std::string& path = recording->entries.recording;
      const bool old = now - recording->used_s >= options_.unused_s;
      bool gone = options_.gone && is_gone(*recording);
      if (gone && !old && total <= options_.most_bytes && is_irreplaceable(recording->entries)) {
        gone = false;
        report.spared.push_back(path);
      }
      if (!old && !gone && total <= options_.most_bytes) {
        if (const Result<Dir> dir = recordings->sub(recording->identity, false); dir) keep_names_of(*dir);
        continue;
      }
      report.forgotten.push_back(path.empty() ? recording->identity : path);
      for (const std::string& hash : contents[recording->identity]) {
        ++dropped_[hash];
        if (--users[hash] == 0) total -= sizes[hash];
      }
      if (!options_.dry_run) recordings->remove(recording->identity);
    }
  }

  void sweep() {
    for_each_object(stash_, [&](const Dir& folder, const std::string& name, const struct stat& info) {
      const std::string hash = hash_of_place(folder, name);
      if (is_hash(hash)) {
        const uint64_t links = static_cast<uint64_t>(info.st_nlink) - (options_.dry_run ? dropped_[hash] : 0);
        if (links > 1 || named_.contains(hash)) return;
        ++report.contents;
        report.freed_bytes += static_cast<uint64_t>(info.st_size);
      } else {
        ++report.leftovers;
      }
      if (!options_.dry_run) folder.remove(name);
    });
  }

  // Removes build ids and parsed forms of contents that are gone.
  void clear_names() {
    if (options_.dry_run) return;
    std::set<std::string> there;
    for_each_object(stash_,
                    [&](const Dir& folder, const std::string& name, const struct stat&) { there.insert(hash_of_place(folder, name)); });
    const Result<Dir> ids = stash_.top().sub(kBuildIds, false);
    if (ids) clear_names(*ids, there);
    const Result<Dir> parsed = stash_.top().sub(kParsed, false);
    for (const std::string& format : parsed ? parsed->names() : std::vector<std::string>()) {
      if (const Result<Dir> dir = parsed->sub(format, false); dir) clear_names(*dir, there);
    }
  }

  // Removes names below DIR/xx/ that do not end in the hash of an existing content.
  static void clear_names(const Dir& dir, const std::set<std::string>& there) {
    for (const std::string& prefix : dir.names()) {
      const Result<Dir> folder = dir.sub(prefix, false);
      if (!folder) continue;
      for (const std::string& name : folder->names()) {
        if (name.size() < kHashDigits || !there.contains(name.substr(name.size() - kHashDigits))) folder->remove(name);
      }
    }
  }

  Stash& stash_;
  const GcOptions& options_;
  std::set<std::string> named_;
  std::map<std::string, std::string> identities_;  // identity of recordings, by path
  std::map<std::string, uint64_t> dropped_;        // number of links that a dry run would have removed
};

/// One run of verify. Recorders and gc may run concurrently: new contents are read when they are found, and removed ones are not damage.
class Verification {
 public:
  Verification(Stash& stash, bool remove) : stash_(stash), remove_(remove) {}

  void run() {
    for (const char* part : {kObjects, kBuildIds}) check_folders(part);
    for_each_object(stash_, [this](const Dir& folder, const std::string& name, const struct stat& info) { check(folder, name, info); });
    const Result<Dir> recordings = stash_.top().sub(kRecordings, false);
    if (!recordings) {
      report.problems.push_back({stash_.path(), recordings.error().message});
      return;
    }
    for (const std::string& identity : stash_.recordings()) {
      const size_t before = report.problems.size();
      if (const Result<Dir> dir = recordings->sub(identity, false); dir) {
        check_links(*dir);
        check_entries(*dir, identity);
      } else {
        report.problems.push_back({recordings->path() + "/" + identity, dir.error().message});
      }
      struct stat info {};
      if (!recordings->stat(identity, info)) report.problems.resize(before);  // gc has removed it
    }
  }
  VerifyReport report;

 private:
  /// The result of checking a content, which is read once: "" if it is intact, else the problem.
  struct Verdict {
    std::string trouble;
    bool damaged = false;  ///< proven by its hash
  };

  const Verdict& judge(const std::string& hash) {
    const auto [at, is_new] = verdicts_.try_emplace(hash);
    if (is_new || !at->second.trouble.empty()) at->second = read(hash);
    return at->second;
  }

  [[nodiscard]] Verdict read(const std::string& hash) const {
    const Result<std::shared_ptr<const MappedFile>> file = stash_.read(hash);
    if (file.ok()) return {};
    const bool damaged = file.error().kind() == ErrorKind::file_format;
    return {damaged ? "damaged: its hash differs" : file.error().message, damaged};
  }

  // A folder of contents or of build ids in whose place is something else hides all of its names.
  void check_folders(const char* part) {
    const Result<Dir> dir = stash_.top().sub(part, false);
    for (const std::string& name : dir ? dir->names() : std::vector<std::string>()) {
      const Result<Dir> folder = dir->sub(name, false);
      struct stat info {};
      if (!folder && dir->stat(name, info)) report.problems.push_back({dir->path() + "/" + name, folder.error().message});
    }
  }

  void check(const Dir& folder, const std::string& name, const struct stat& info) {
    const std::string hash = hash_of_place(folder, name), path = folder.path() + "/" + name;
    if (!is_hash(hash)) {
      if (!name.starts_with("tmp.")) report.problems.push_back({path, "not a file of the stash"});
      return;
    }
    const Verdict& verdict = judge(hash);
    struct stat now {};
    if (!verdict.trouble.empty() && !folder.stat(name, now)) {
      verdicts_.erase(hash);  // gc has removed it; if it comes back, read it again
      return;
    }
    ++report.contents;
    report.bytes += static_cast<uint64_t>(info.st_size);
    if (!verdict.trouble.empty())
      report.problems.push_back({path, verdict.trouble, remove_ && verdict.damaged && remove(folder, name, hash)});
  }

  /// Removes a damaged content. A recorder may have replaced it since it was read, so it is read again with exclusive access to the stash.
  [[nodiscard]] bool remove(const Dir& folder, const std::string& name, const std::string& hash) const {
    const Result<Fd> lock_file = stash_.top().open_file(kLockFile);
    if (!lock_file) return false;
    const Lock lock(lock_file->get(), true, kLockWaitMs);
    return lock.ok() && read(hash).damaged && folder.remove(name);
  }

  /// Removes a recording's own link if the content it leads to is damaged, even if the stash has an intact content under the same hash.
  void check_links(const Dir& dir) {
    ++report.recordings;
    if (!remove_) return;
    for (const std::string& name : dir.names()) {
      if (!is_hash(name) || judge(name).trouble.empty()) continue;
      const Result<Fd> fd = dir.open_file(name);
      const auto file = fd ? MappedFile::open(fd->get(), dir.path() + "/" + name) : Result<std::shared_ptr<const MappedFile>>(fd.error());
      const std::string found = file ? hash_of((*file)->bytes()) : std::string();
      if (is_hash(found) && found != name) dir.remove(name);
    }
  }

  void check_entries(const Dir& dir, const std::string& identity) {
    const Result<Entries> entries = stash_.entries_of(identity);
    const std::string path = dir.path() + "/" + kEntriesFile;
    if (!entries) {
      report.problems.push_back({path, entries.error().message});
      return;
    }
    std::set<std::string> told;
    std::set<std::pair<int32_t, uint64_t>> names;
    for (const Entry& entry : entries->entries) {
      ++report.entries;
      if (!names.emplace(entry.pid, entry.generation).second)
        report.problems.push_back(
            {path, "process " + std::to_string(entry.pid) + " has generation " + std::to_string(entry.generation) + " twice"});
      if (told.contains(entry.hash)) continue;
      const Verdict& verdict = judge(entry.hash);
      if (verdict.trouble.empty()) continue;
      told.insert(entry.hash);
      report.problems.push_back({dir.path(), "its content " + entry.hash + " (" + entry.path + ") cannot be read: " + verdict.trouble});
    }
  }

  Stash& stash_;
  bool remove_;
  std::map<std::string, Verdict> verdicts_;
};

}  // namespace

Listing list(const Stash& stash) {
  Listing listing;
  std::map<std::string, ContentInfo> contents;
  for_each_object(stash, [&](const Dir& folder, const std::string& name, const struct stat& info) {
    const std::string hash = hash_of_place(folder, name);
    if (!is_hash(hash)) return;
    ContentInfo& content = contents[hash];
    content.hash = hash;
    content.size_bytes = static_cast<uint64_t>(info.st_size);
    content.added_s = info.st_mtim.tv_sec;
    listing.total_bytes += content.size_bytes;
  });
  for (auto& [hash, ids] : build_ids_of(stash)) {
    if (const auto content = contents.find(hash); content != contents.end()) content->second.build_ids = std::move(ids);
  }
  const Result<Dir> recordings = stash.top().sub(kRecordings, false);
  for (const std::string& identity : stash.recordings()) {
    RecordingInfo info = info_of(stash, *recordings, identity);
    std::set<std::pair<std::string, std::string>> seen;
    std::set<std::string> counted;
    for (const Entry& entry : info.entries.entries) {
      const auto content = contents.find(entry.hash);
      if (content == contents.end() || !seen.emplace(entry.hash, entry.path).second) continue;
      content->second.recordings += counted.insert(entry.hash).second ? 1 : 0;
      std::vector<std::string>& paths = content->second.paths;
      if (std::find(paths.begin(), paths.end(), entry.path) == paths.end()) paths.push_back(entry.path);
    }
    listing.recordings.push_back(std::move(info));
  }
  std::stable_sort(listing.recordings.begin(), listing.recordings.end(),
                   [](const RecordingInfo& a, const RecordingInfo& b) { return a.used_s > b.used_s; });
  for (auto& [hash, content] : contents) listing.contents.push_back(std::move(content));
  if (const Result<Dir> incoming = stash.top().sub(kIncoming, false); incoming) listing.in_the_making = incoming->names().size();
  return listing;
}

Result<GcReport> gc(Stash& stash, const GcOptions& options) {
  const Result<Fd> lock_file = stash.top().open_file(kLockFile);
  if (!lock_file) return lock_file.error();
  const Lock lock(lock_file->get(), true, kLockWaitMs);
  if (!lock.ok()) return Error{ErrorCode::busy, stash.path() + ": locked by recorders for more than a minute", 0};
  Collection collection(stash, options);
  collection.run();
  return std::move(collection.report);
}

VerifyReport verify(Stash& stash, bool remove) {
  Verification verification(stash, remove);
  verification.run();
  return std::move(verification.report);
}

}  // namespace ptd::stash
