// Looks up the code of a recording in a stash.
#include "recording/image/stashed_code.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

#include "image/stash/content_hash.h"
#include "image/stash/parsed_symbols.h"

namespace ptd {
namespace {

constexpr std::string_view kWhat = "ptdecode-recording 1";
constexpr uint64_t kNamedBytes = 64U << 10;  // of the first records
constexpr std::string_view kDeleted = " (deleted)";

uint64_t read_u64(Bytes bytes, size_t at) {
  uint64_t value = 0;
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string_view plain(std::string_view path) { return path.ends_with(kDeleted) ? path.substr(0, path.size() - kDeleted.size()) : path; }

}  // namespace

namespace {

/// Where the records begin.
uint64_t begin_of_records(const perfio::PerfReader& reader) {
  // perf_file_header: magic, size, attr_size, {attrs, data} as {offset, size}; perf_pipe_file_header: magic, size.
  constexpr size_t kDataOffsetAt = 40, kPipeHeaderBytes = 16;
  const Bytes file = reader.file_bytes();
  return std::min<uint64_t>(file.size(), reader.is_pipe() ? kPipeHeaderBytes : read_u64(file, kDataOffsetAt));
}

}  // namespace

std::string recording_identity(const perfio::PerfReader& reader) {
  const Bytes file = reader.file_bytes();
  const uint64_t begin = begin_of_records(reader);
  stash::Hasher hasher;
  hasher.add(stash::bytes_of(kWhat));
  for (const perfio::EventAttr& attr :
       reader.is_pipe() ? std::vector<perfio::EventAttr>() : reader.attrs()) {  // a pipe has them as records
    hasher.add(attr.raw);
    hasher.add(std::as_bytes(std::span(attr.ids)));
  }
  hasher.add(file.subspan(begin, std::min(kNamedBytes, file.size() - begin)));
  return hasher.finish();
}

std::string recording_identity(const std::string& path) {
  const auto reader = perfio::PerfReader::open(path);
  return reader.ok() ? recording_identity(**reader) : std::string();
}

std::string early_identity(const std::string& path, uint64_t file_bytes) {
  if (file_bytes < kNamedBytes) return {};
  const auto reader = perfio::PerfReader::open(path);
  return reader.ok() && file_bytes - kNamedBytes >= begin_of_records(**reader) ? recording_identity(**reader) : std::string();
}

std::string recording_of(const stash::Entries& entries) {
  using Key = std::tuple<int32_t, uint64_t, uint64_t, std::string_view>;  // process, address, time, path
  std::set<Key> told;
  for (const stash::Entry& entry : entries.entries) told.emplace(entry.pid, entry.address, entry.time_ns, entry.path);
  std::string best;
  size_t most = 0;
  for (const std::string& path : {entries.recording, entries.recording + ".old"}) {
    const auto reader = perfio::PerfReader::open(path);
    if (!reader.ok()) continue;
    std::set<Key> found;
    // An unfinished file ends within a record: the records before it count.
    (void)(*reader)->read([&](const perfio::Record& record) {
      const auto* map = std::get_if<perfio::MmapRecord>(&record.payload);
      if (map == nullptr) return true;
      const auto at = told.find({map->pid, map->addr, record.sample_id.has_time ? record.sample_id.time : 0, map->path});
      if (at != told.end()) found.insert(*at);
      return found.size() < told.size();
    });
    if (found.size() <= most) continue;
    most = found.size();
    best = recording_identity(**reader);
  }
  return best;
}

std::shared_ptr<StashedCode> StashedCode::open(const std::vector<std::string>& stashes, const std::string& identity) {
  auto kept = std::make_shared<StashedCode>();
  for (const std::string& path : stashes) {
    Result<std::unique_ptr<stash::Stash>> stash = stash::Stash::open(path, stash::Stash::Access::read);
    if (!stash) {
      if (stash.error().code != ErrorCode::not_found)
        kept->note({stash.error().code, "the stash " + path + " is not used: " + stash.error().message, 0});
      continue;
    }
    Result<stash::Entries> entries = identity.empty() ? Result<stash::Entries>(stash::Entries()) : (*stash)->entries_of(identity);
    if (entries) {
      for (stash::Entry& entry : entries->entries)
        kept->mappings_.emplace(Key{entry.pid, entry.address}, Mapping{kept->stashes_.size(), std::move(entry), entries->made_s});
      if (!identity.empty()) (*stash)->note_use(identity);
    } else if (entries.error().code != ErrorCode::not_found) {
      kept->note({entries.error().code,
                  path + "/recordings/" + identity +
                      ": the list of this recording's files is damaged, so they are not used: " + entries.error().message,
                  entries.error().offset_bytes});
    }
    kept->stashes_.push_back(std::move(*stash));
  }
  return kept->stashes_.empty() && kept->troubles_.empty() ? nullptr : kept;
}

std::vector<const StashedCode::Mapping*> StashedCode::entries_of(const MappedPath& wanted) const {
  std::vector<const Mapping*> found;
  const auto [first, last] = mappings_.equal_range({wanted.pid, wanted.address});
  for (auto at = first; at != last; ++at) {
    const stash::Entry& entry = at->second.entry;
    if (entry.time_ns != wanted.time_ns || plain(entry.path) != plain(wanted.path)) continue;
    const bool memory = entry.kind == stash::EntryKind::anonymous, jitdump = entry.kind == stash::EntryKind::jitdump;
    if (!jitdump && entry.size_bytes != wanted.size_bytes) continue;
    if (!jitdump && !memory && entry.file_offset_bytes != wanted.file_offset_bytes) continue;
    found.push_back(&at->second);
  }
  return found;
}

StashedCode::OfMapping StashedCode::of_mapping(const MappedPath& wanted) {
  for (const Mapping* mapping : entries_of(wanted)) {
    const auto file = read(mapping->stash, mapping->entry.hash);
    if (!file) continue;
    const stash::EntryKind kind = mapping->entry.kind;
    return {file, kind == stash::EntryKind::vdso || kind == stash::EntryKind::anonymous};
  }
  return {};
}

int64_t StashedCode::saved_at_ns(const MappedPath& wanted) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t earliest_s = 0;
  for (const Mapping* mapping : entries_of(wanted)) earliest_s = earliest_s == 0 ? mapping->made_s : std::min(earliest_s, mapping->made_s);
  return std::clamp<int64_t>(earliest_s, 0, std::numeric_limits<int64_t>::max() / kSecond) * kSecond;
}

// The reading of a later copy ended at its time and began before it; a first copy has its mapping's time and was read after it.
std::vector<StashedCode::Copy> StashedCode::later_copies(const MappedPath& wanted) {
  std::vector<const Mapping*> copies;
  const auto [first, last] = mappings_.equal_range({wanted.pid, wanted.address});
  for (auto at = first; at != last; ++at) {
    const stash::Entry& entry = at->second.entry;
    if (entry.kind == stash::EntryKind::anonymous && entry.size_bytes == wanted.size_bytes && entry.time_ns >= wanted.time_ns)
      copies.push_back(&at->second);
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [](const Mapping* a, const Mapping* b) { return a->entry.generation < b->entry.generation; });
  std::vector<Copy> later;
  const auto mine = std::find_if(copies.begin(), copies.end(), [&](const Mapping* each) { return each->entry.time_ns == wanted.time_ns; });
  for (auto at = mine; at != copies.end() && std::next(at) != copies.end(); ++at) {
    const Mapping& next = **std::next(at);
    if (next.entry.time_ns <= next.entry.file_offset_bytes) break;  // the first of another mapping
    if (next.entry.hash == (*at)->entry.hash) continue;             // read once more: what changes next changes after this
    const auto file = read(next.stash, next.entry.hash);
    if (!file) break;
    later.push_back({file, (*at)->entry.file_offset_bytes, next.entry.time_ns});
  }
  return later;
}

void StashedCode::note(const Error& error) {
  if (std::find(troubles_.begin(), troubles_.end(), error.message) == troubles_.end()) troubles_.push_back(error.message);
}

std::shared_ptr<const MappedFile> StashedCode::read(size_t stash, const std::string& hash) {
  const auto file = stashes_[stash]->read(hash);
  if (!file) {
    note(file.error());
    return nullptr;
  }
  given_.try_emplace((*file)->path(), Given{*file, stash, hash});
  return *file;
}

// A path that looks like one of a stash proves nothing: only what a stash gave to this recording has a parsed form.
std::vector<ElfSymbol> StashedCode::symbols_of(const ElfFile& elf) {
  const auto given = given_.find(elf.path());
  if (given == given_.end() || given->second.file->identity() != elf.file()->identity()) return elf.read_symbols();
  return stash::symbols_of(*stashes_[given->second.stash], given->second.hash, elf);
}

std::vector<std::shared_ptr<const MappedFile>> StashedCode::with_build_id(const std::string& build_id) {
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (size_t stash = 0; stash < stashes_.size(); ++stash) {
    const Result<std::vector<std::string>> hashes = stashes_[stash]->with_build_id(build_id);
    if (!hashes) note(hashes.error());
    for (const std::string& hash : hashes ? *hashes : std::vector<std::string>()) {
      if (auto file = read(stash, hash)) files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace ptd
