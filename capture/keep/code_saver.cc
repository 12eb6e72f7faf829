// CodeSaver: saves code that would be gone at the end of the recording.
#include "capture/keep/code_saver.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "image/source/build_id.h"
#include "image/stash/content_hash.h"
#include "image/stash/mapping_file.h"
#include "recording/image/stashed_code.h"

namespace ptd {
namespace {

constexpr uint64_t kMostRegionBytes = 16U << 20;  // of one piece of memory
constexpr uint64_t kMostLookBytes = 64U << 20;    // of all that are looked at again
constexpr size_t kMostRegions = 4096;
constexpr uint64_t kLookEveryMs = 250;
constexpr uint64_t kEntriesEachMs = 10;  // that are written down
constexpr size_t kMostNamed = 1U << 14;  // of what is not kept
constexpr const char* kMappedOver = "mapped over or protected before its memory could be read";

uint64_t monotonic_ns() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t monotonic_ms() { return monotonic_ns() / 1'000'000; }

std::vector<std::byte> read_at(const stash::Fd& fd, uint64_t address, uint64_t size_bytes) {
  std::vector<std::byte> bytes;
  if (!fd.ok()) return bytes;
  bytes.resize(size_bytes);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(address + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

/// Memory of a process; empty if it is gone, or not ours to read. Holes end it.
std::vector<std::byte> read_memory(int32_t pid, uint64_t address, uint64_t size_bytes) {
  return read_at(stash::Fd(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC)), address, size_bytes);
}

}  // namespace

Result<std::unique_ptr<CodeSaver>> CodeSaver::begin(const std::string& recording, const SaveOptions& options) {
  auto stash = stash::Stash::open(options.stash, stash::Stash::Access::write);
  if (!stash) return stash.error();
  std::unique_ptr<CodeSaver> saver(new CodeSaver(std::move(*stash), recording, options));
  auto capture = stash::Capture::begin(*saver->stash_, recording, options.limits);
  if (!capture) return capture.error();
  saver->capture_ = std::move(*capture);
  return saver;
}

Result<std::unique_ptr<CodeSaver>> CodeSaver::heir() const {
  auto stash = stash::Stash::open(options_.stash, stash::Stash::Access::write);
  if (!stash) return stash.error();
  std::unique_ptr<CodeSaver> saver(new CodeSaver(std::move(*stash), recording_, options_));
  auto capture = stash::Capture::go_on(*saver->stash_, capture_->name(), recording_, options_.limits);
  if (!capture) return capture.error();
  saver->capture_ = std::move(*capture);
  return saver;
}

void CodeSaver::skip(const std::string& path, const std::string& why) {
  if (skipped_.size() < kMostNamed || skipped_.contains(path)) {
    skipped_.try_emplace(path, why);
  } else {
    ++skipped_unnamed_;
  }
}

namespace {

bool is_file_without_name(const perfio::MmapRecord& map) { return map.path.starts_with(kMemory) || map.path.ends_with(kDeleted); }
bool is_narrow_vdso(const perfio::MmapRecord& map) { return map.path == "[vdso]" && map.addr < k4Gib; }

}  // namespace

CodeSaver::Interest CodeSaver::interest_in(const perfio::MmapRecord& map) {
  if (map.kernel || map.guest || !map.executable || map.pid <= 0 || is_kernel_half(Ip{map.addr})) return Interest::none;
  const bool anonymous = map.path.starts_with("//anon") || map.path.starts_with("[anon") || map.path.empty();
  return anonymous || is_file_without_name(map) || is_narrow_vdso(map) ? Interest::bytes : Interest::covers;
}

void CodeSaver::on_mapping(const perfio::MmapRecord& map, uint64_t time_ns) {
  const Interest interest = interest_in(map);
  if (interest == Interest::none) return;
  on_cover({map.pid, map.addr, map.size_bytes, time_ns});
  if (interest == Interest::covers) return;
  if (is_file_without_name(map)) return keep_file(map, time_ns);
  if (is_narrow_vdso(map)) return keep_narrow_vdso(map, time_ns);
  add_region(map, time_ns, {});
}

void CodeSaver::add_region(const perfio::MmapRecord& map, uint64_t time_ns, std::optional<stash::ProcessMapping> file) {
  if (map.size_bytes == 0) return;
  if (map.size_bytes > kMostRegionBytes) return skip(map.path, "a mapping of it is larger than 16 MiB, too large to be read repeatedly");
  if (regions_.size() >= kMostRegions) return skip(map.path, "only the first 4096 such mappings are read");
  if (is_covered({map.pid, map.addr, map.size_bytes, time_ns})) return skip(map.path, kMappedOver);
  Region region;
  region.size_bytes = map.size_bytes;
  region.path = map.path;
  region.time_ns = time_ns;
  region.number = ++mappings_;
  region.file = std::move(file);
  region.file_offset_bytes = map.file_offset_bytes;
  regions_[{map.pid, map.addr}] = std::move(region);
  pending_.push_back({{map.pid, map.addr}, mappings_});
}

namespace {

uint64_t end_of(const CodeSaver::Cover& cover) { return cover.address + std::min(cover.size_bytes, ~cover.address); }

/// Where pieces of memory that may reach into it begin.
std::pair<int32_t, uint64_t> before(const CodeSaver::Cover& cover) {
  return {cover.pid, cover.address >= kMostRegionBytes ? cover.address - kMostRegionBytes : 0};
}

/// Records of several cpus come out of order: one that is older covers nothing.
bool covers(const CodeSaver::Cover& cover, uint64_t time_ns) { return cover.time_ns == 0 || cover.time_ns >= time_ns; }

}  // namespace

/// Returns the first piece that ends after this address.
CodeSaver::Newest::Pieces::const_iterator CodeSaver::Newest::first_behind(const Key& key) const {
  const auto next = pieces_.upper_bound(key);
  if (next == pieces_.begin()) return next;
  const auto last = std::prev(next);
  return last->first.first == key.first && last->second.end > key.second ? last : next;
}

void CodeSaver::Newest::add(const Cover& cover) {
  const uint64_t end = end_of(cover);
  uint64_t begin = cover.address;
  auto at = first_behind({cover.pid, begin});
  while (at != pieces_.end() && at->first.first == cover.pid && at->first.second < end) {
    const auto [key, piece] = *at;
    if (piece.time_ns > cover.time_ns) {  // stays; what is before it is new
      if (begin < key.second) pieces_.insert_or_assign({cover.pid, begin}, Piece{key.second, cover.time_ns});
      begin = piece.end;
      ++at;
      continue;
    }
    at = pieces_.erase(at);
    if (key.second < begin) pieces_.emplace(key, Piece{begin, piece.time_ns});
    if (piece.end > end) at = pieces_.emplace(Key{cover.pid, end}, piece).first;
  }
  if (begin < end) pieces_.insert_or_assign({cover.pid, begin}, Piece{end, cover.time_ns});
}

bool CodeSaver::Newest::is_over(const Cover& cover) const {
  const uint64_t end = end_of(cover);
  for (auto at = first_behind({cover.pid, cover.address}); at != pieces_.end(); ++at) {
    if (at->first.first != cover.pid || at->first.second >= end) return false;
    if (at->second.time_ns > cover.time_ns) return true;
  }
  return false;
}

/// Returns whether something newer than this mapping was reported before it: in this round, in the last one, or a region that still exists.
bool CodeSaver::is_covered(const Cover& mapping) const {
  if (mapping.time_ns == 0) return false;
  if (newest_.is_over(mapping) || newest_before_.is_over(mapping)) return true;
  for (auto at = regions_.lower_bound(before(mapping)); at != regions_.end(); ++at) {
    if (at->first.first != mapping.pid || at->first.second >= end_of(mapping)) return false;
    if (at->first.second + at->second.size_bytes > mapping.address && at->second.time_ns > mapping.time_ns) return true;
  }
  return false;
}

/// Memory over which something else was mapped is not read again; if it was not copied yet, its current content belongs to the new mapping.
void CodeSaver::on_cover(const Cover& cover) {
  newest_.add(cover);
  drop_copies(cover);
  auto at = regions_.lower_bound(before(cover));
  while (at != regions_.end() && at->first.first == cover.pid && at->first.second < end_of(cover)) {
    const Region& region = at->second;
    if (at->first.second + region.size_bytes <= cover.address || !covers(cover, region.time_ns)) {
      ++at;
      continue;
    }
    if (region.hash.empty()) skip(region.path, kMappedOver);
    at = regions_.erase(at);
  }
}

/// Of copies that still wait those that may have been read when the memory was something else. If that is the first one, which all others
/// go back to, nothing is kept.
void CodeSaver::drop_copies(const Cover& cover) {
  auto at = held_.lower_bound(before(cover));
  while (at != held_.end() && at->first.first == cover.pid && at->first.second < end_of(cover)) {
    const Held& held = at->second;
    const bool read_before = held.read_until_ns != 0 && held.read_until_ns < cover.time_ns;
    if (at->first.second + held.entry.size_bytes <= cover.address || !covers(cover, held.mapped_ns) || read_before) {
      ++at;
      continue;
    }
    if (held.is_first) skip(held.entry.path, kMappedOver);
    at = held_.erase(at);
  }
}

void CodeSaver::told_until(uint64_t monotonic_ns) {
  newest_before_ = std::exchange(newest_, {});
  std::vector<Held> done;
  for (auto at = held_.begin(); at != held_.end();) {
    if (at->second.read_until_monotonic_ns >= monotonic_ns) {
      ++at;
      continue;
    }
    done.push_back(std::move(at->second));
    at = held_.erase(at);
  }
  std::stable_sort(done.begin(), done.end(),
                   [](const Held& a, const Held& b) { return a.read_until_monotonic_ns < b.read_until_monotonic_ns; });
  for (Held& held : done) capture_->add_entry(std::move(held.entry));
  entries_ += done.size();
  dirty_ |= !done.empty();
}

void CodeSaver::forget_memory() {
  constexpr const char* kWhy = "not read completely: too many mappings at once";
  for (const auto& [key, region] : regions_) skip(region.path, kWhy);
  for (const auto& [key, held] : held_) skip(held.entry.path, kWhy);
  regions_.clear();
  pending_.clear();
  held_.clear();
}

void CodeSaver::on_written(uint64_t file_bytes) {
  if (is_named_) return;
  const std::string identity = early_identity(recording_, file_bytes);
  is_named_ = !identity.empty() && capture_->name_recording(identity).ok();
}

/// Nothing is read of a file that is too large, however little of it is there: programs that map their code twice have files of memory that
/// are as large as all they may ever use. What is on a disk is read once as long as it is not written to; memory is written to without a
/// trace.
Result<stash::Content> CodeSaver::add_file(const stash::MappingFile& file) {
  const struct stat& info = file.info;
  const uint64_t limit = options_.limits.file_bytes;
  if (static_cast<uint64_t>(info.st_size) > limit)
    return Error{ErrorCode::too_large, "larger than the limit (" + std::to_string(limit) + " bytes)", 0};
  struct statfs system {};
  if (::fstatfs(file.fd.get(), &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == HUGETLBFS_MAGIC)
    return capture_->add(file.fd.get());
  const FileKey key = {static_cast<int64_t>(info.st_dev),
                       static_cast<int64_t>(info.st_ino),
                       info.st_size,
                       info.st_ctim.tv_sec,
                       info.st_ctim.tv_nsec,
                       info.st_mtim.tv_sec,
                       info.st_mtim.tv_nsec};
  if (const auto known = files_.find(key); known != files_.end()) return known->second;
  if (files_.size() >= kMostRegions) files_.clear();
  return files_.emplace(key, capture_->add(file.fd.get())).first->second;
}

void CodeSaver::keep_file(const perfio::MmapRecord& map, uint64_t time_ns) {
  const stash::ProcessMapping mapping = {
      map.pid, map.addr, map.size_bytes, map.maj, map.min, map.inode, normalize_build_id(perfio::build_id_hex(map.build_id))};
  const stash::MappingFile file = stash::open_mapping(mapping);
  if (!file.fd.ok()) return skip(map.path, file.why);
  if (stash::is_written_through(file.fd.get(), map.flags)) return add_region(map, time_ns, mapping);
  const Result<stash::Content> content = add_file(file);
  if (!content) {
    skip(map.path, content.error().message);
    return;
  }
  const stash::EntryKind kind = map.path.starts_with(kMemory) ? stash::EntryKind::memory : stash::EntryKind::deleted;
  capture_->add_entry(
      {map.pid, 0, time_ns, map.addr, map.size_bytes, map.file_offset_bytes, kind, content->hash, content->build_id, map.path});
  ++entries_;
  dirty_ = true;
}

/// The vdso of a program of 32 bits is not that of this program, and in no file.
void CodeSaver::keep_narrow_vdso(const perfio::MmapRecord& map, uint64_t time_ns) {
  constexpr uint64_t kMostBytes = 64 << 10;
  constexpr std::array<unsigned char, 5> kElf32 = {0x7f, 'E', 'L', 'F', 1};
  if (narrow_vdsos_.size() >= kMostRegions) return;
  narrow_vdsos_.push_back({map.pid, 0, time_ns, map.addr, map.size_bytes, map.file_offset_bytes, stash::EntryKind::vdso, {}, {}, map.path});
  if (narrow_vdso_.hash.empty() && map.size_bytes <= kMostBytes) {
    const std::vector<std::byte> bytes = read_memory(map.pid, map.addr, map.size_bytes);
    if (bytes.size() != map.size_bytes || std::memcmp(bytes.data(), kElf32.data(), kElf32.size()) != 0) return;
    if (const Result<stash::Content> content = capture_->add(Bytes(bytes)); content) narrow_vdso_ = *content;
  }
  if (narrow_vdso_.hash.empty()) return;
  for (stash::Entry& entry : narrow_vdsos_) {
    entry.hash = narrow_vdso_.hash;
    entry.build_id = narrow_vdso_.build_id;
    capture_->add_entry(std::move(entry));
    ++entries_;
  }
  narrow_vdsos_.clear();
  dirty_ = true;
}

Status CodeSaver::on_recording() {
  auto reader = perfio::PerfReader::open(recording_);
  if (!reader.ok()) return reader.error();
  return (*reader)->read([this](const perfio::Record& record) {
    const auto* map = std::get_if<perfio::MmapRecord>(&record.payload);
    const bool named = map != nullptr && (map->path.starts_with('/') || map->path == "[vdso]");
    if (named && !map->path.starts_with("//anon")) on_mapping(*map, record.sample_id.has_time ? record.sample_id.time : 0);
    return true;
  });
}

/// The first copy, or a later one if it looks different. False: the memory is out of reach.
bool CodeSaver::copy(const Key& key, Region& region, const std::function<uint64_t()>& now_ns) {
  const uint64_t before = now_ns();
  const std::vector<std::byte> bytes = region.file
                                           ? read_at(stash::open_mapping(*region.file).fd, region.file_offset_bytes, region.size_bytes)
                                           : read_memory(key.first, key.second, region.size_bytes);
  const uint64_t after = now_ns() + slack_ns_;
  if (bytes.empty()) return false;
  const bool first = region.hash.empty();
  std::string hash = stash::hash_of(bytes);
  if (hash == region.hash) {
    region.same_since_ns = before;
    region.same_until_ns = after;
    return true;
  }
  const Result<stash::Content> content = capture_->add(Bytes(bytes));
  if (!content) {
    skip(region.path, content.error().message);
    return false;
  }
  // A change is dated by the last reading before it, not by the stored one. That reading is logged only now: else every look would be an
  // entry.
  if (!first && region.same_since_ns != 0) add_copy(key, region, {region.same_since_ns, region.same_until_ns, false});
  region.same_since_ns = region.same_until_ns = 0;
  region.hash = std::move(hash);
  region.build_id = content->build_id;
  add_copy(key, region, {before, before == 0 ? 0 : after, first});
  return true;
}

void CodeSaver::add_copy(const Key& key, const Region& region, const Reading& reading) {
  const uint64_t time_ns = reading.is_first ? region.time_ns : reading.until_ns;
  stash::Entry entry = {
      key.first,       0,          time_ns, key.second, region.size_bytes, reading.begun_ns, stash::EntryKind::anonymous, region.hash,
      region.build_id, region.path};
  held_.emplace(key, Held{reading.is_first, region.time_ns, reading.until_ns, monotonic_ns(), std::move(entry)});
}

void CodeSaver::look(const std::function<uint64_t()>& now_ns, uint64_t slack_ns) {
  slack_ns_ = slack_ns;
  for (const Pending& pending : pending_) {
    const auto region = regions_.find(pending.key);
    if (region == regions_.end() || region->second.number != pending.number) continue;
    if (!copy(pending.key, region->second, now_ns)) skip(region->second.path, "its process ended before its memory could be read");
  }
  pending_.clear();
  if (monotonic_ms() >= last_look_ms_ + kLookEveryMs && now_ns() != 0) look_again(now_ns);
  if (dirty_ && monotonic_ms() >= next_flush_ms_) flush();
}

/// In turn: what does not fit into this look comes first in the next.
void CodeSaver::look_again(const std::function<uint64_t()>& now_ns) {
  uint64_t looked = 0;
  auto at = regions_.upper_bound(last_looked_at_);
  for (size_t left = regions_.size(); left > 0 && looked < kMostLookBytes; --left) {
    if (at == regions_.end()) at = regions_.begin();
    last_looked_at_ = at->first;
    looked += at->second.size_bytes;
    at = copy(at->first, at->second, now_ns) ? std::next(at) : regions_.erase(at);
  }
  last_look_ms_ = monotonic_ms();
}

// All entries are written each time: the more there are, the longer until the next time.
void CodeSaver::flush() {
  if (capture_->flush().ok()) dirty_ = false;
  next_flush_ms_ = monotonic_ms() + capture_->entries().entries.size() / kEntriesEachMs;
}

Result<SaveReport> CodeSaver::finish(uint64_t recorded_until_ns) {
  told_until(recorded_until_ns);
  for (const auto& [key, held] : held_) {
    if (held.is_first) skip(held.entry.path, "the recording ended before its memory was read");
  }
  held_.clear();
  if (dirty_) flush();
  Result<SaveReport> report = save_code(recording_, options_, *capture_);
  if (!report) return report;
  report->entries += entries_;
  // Why it was not kept while it could be is the reason; that it cannot be any more follows.
  std::erase_if(report->skipped, [this](const SaveReport::Skipped& skipped) { return skipped_.contains(skipped.path); });
  for (const auto& [path, why] : skipped_) report->skipped.push_back({path, why});
  report->unnamed += skipped_unnamed_;
  return report;
}

}  // namespace ptd
