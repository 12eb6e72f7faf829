// CodeModel: files, and code in memory that replaces parts of them.
#include "capture/emulate/code_model.h"

#include <algorithm>

#include "image/source/build_id_note.h"

namespace ptd::emulate {

void CodeModel::cut(uint64_t first, uint64_t end) {
  auto it = files_.upper_bound(first);
  if (it != files_.begin()) --it;
  while (it != files_.end() && it->first < end) {
    const uint64_t start = it->first;
    const File file = it->second;
    if (file.end <= first) {
      ++it;
      continue;
    }
    it = files_.erase(it);
    if (start < first) files_[start] = {first, file.file_offset_bytes, file.file};
    if (file.end > end) files_[end] = {file.end, file.file_offset_bytes + (end - start), file.file};
  }
}

/// Returns the file that is at the mapping's path; null if there is none, or if it has another inode, which may have been used again.
const CodeModel::Opened* CodeModel::opened_of(const UserMap& map) {
  const auto [known, fresh] = opened_.try_emplace(map.path);
  Opened& opened = known->second;
  if (fresh) {
    const RegularFile regular = open_regular(map.path);
    if (auto file = MappedFile::open(regular, map.path); file.ok()) opened = {*file, (*file)->mapped_id(), read_build_id(regular.fd.get())};
  }
  const FileId& id = opened.id;
  const bool replaced = id.inode != 0 && map.inode != 0 && (id.inode != map.inode || id.maj != map.major || id.min != map.minor);
  return replaced || opened.file == nullptr ? nullptr : &opened;
}

bool CodeModel::is_rewritten(const UserMap& map) {
  const Opened* opened = opened_of(map);
  if (opened == nullptr) return false;
  if (map.build_id.has_value() && *map.build_id != opened->build_id) return true;
  if (map.written_at_ns == 0) return false;
  // Some file systems keep fractions of a second only in memory. An earlier time was set by hand, as `cp -p` does.
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t written = opened->file->modified_ns();
  return written > map.written_at_ns || written / kSecond < map.written_at_ns / kSecond;
}

std::shared_ptr<const MappedFile> CodeModel::file_of(const UserMap& map) {
  const Opened* opened = opened_of(map);
  if (opened == nullptr) return nullptr;
  // A reader uses a file with the recorded build id, although it may have been written to.
  const std::string recorded = map.build_id.value_or("");
  const bool used = recorded.empty() ? !is_rewritten(map) : recorded == opened->build_id;
  return used ? opened->file : nullptr;
}

void CodeModel::add_file_again(const UserMap& map) {
  cut(map.ip, map.end());
  files_[map.ip] = {map.end(), map.file_offset_bytes, file_of(map)};
}

void CodeModel::add_file(const UserMap& map) {
  add_file_again(map);
  for (auto& [number, page] : pages_) {
    const uint64_t base = number * kPageBytes;
    if (base + kPageBytes <= map.ip || base >= map.end()) continue;
    for (uint64_t i = 0; i < kPageBytes; ++i) page.known[i] = page.known[i] && (base + i < map.ip || base + i >= map.end());
  }
}

bool CodeModel::shows(uint64_t ip, Bytes code) const {
  for (size_t i = 0; i < code.size(); ++i) {
    const uint64_t at = ip + i;
    const auto page = pages_.find(at / kPageBytes);
    if (page != pages_.end() && page->second.known[at % kPageBytes]) {
      if (page->second.bytes[at % kPageBytes] != code[i]) return false;
      continue;
    }
    auto file = files_.upper_bound(at);
    if (file == files_.begin()) return false;
    --file;
    if (at >= file->second.end || file->second.file == nullptr) return false;
    const uint64_t offset = file->second.file_offset_bytes + (at - file->first);
    const Bytes bytes = file->second.file->bytes();
    if (offset >= bytes.size() || bytes[offset] != code[i]) return false;
  }
  return true;
}

void CodeModel::add_code(uint64_t ip, Bytes code) {
  for (size_t i = 0; i < code.size(); ++i) {
    Page& page = pages_[(ip + i) / kPageBytes];
    page.bytes[(ip + i) % kPageBytes] = code[i];
    page.known[(ip + i) % kPageBytes] = true;
  }
}

}  // namespace ptd::emulate
