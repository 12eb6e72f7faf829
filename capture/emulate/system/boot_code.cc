// BootCode: a log applied to a copy of the kernel's code.
#include "capture/emulate/system/boot_code.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "image/base/system_error.h"

namespace ptd::emulate {

bool BootCode::in_copy(uint64_t address, uint64_t& offset_bytes) const {
  for (const ElfSegment& segment : core_->segments()) {
    if (address < segment.address || address - segment.address >= segment.file_size_bytes) continue;
    offset_bytes = segment.file_offset_bytes + (address - segment.address);
    return true;
  }
  return false;
}

std::vector<BootCode::Piece> BootCode::sort_log(Bytes log) {
  std::unordered_map<uint64_t, std::unique_ptr<Page>> ran;
  std::vector<Piece> first, early;
  std::array<uint64_t, 3> head{};  // time, address, size
  uint64_t begin = 0;
  const auto add = [](std::vector<Piece>& pieces, uint64_t time, uint64_t address, std::byte byte) {
    const bool joins = !pieces.empty() && pieces.back().time == time && pieces.back().address + pieces.back().bytes.size() == address &&
                       pieces.back().bytes.size() < kPageBytes;
    if (!joins) pieces.push_back({time, address, {}});
    pieces.back().bytes.push_back(byte);
  };
  while (log.size() >= sizeof(head)) {
    std::memcpy(head.data(), log.data(), sizeof(head));
    if (begin == 0) begin = head[0];
    end_ = head[0];
    log = log.subspan(sizeof(head));
    const Bytes code = log.first(std::min<uint64_t>(head[2], log.size()));
    log = log.subspan(code.size());
    size_t changed = code.size(), past = 0;  // from the first to the last byte that changed: one record
    for (size_t i = 0; i < code.size(); ++i) {
      const uint64_t address = head[1] + i, at = address % kPageBytes;
      std::unique_ptr<Page>& page = ran[address / kPageBytes];
      if (page == nullptr) page = std::make_unique<Page>();
      uint64_t offset_bytes = 0;
      if (page->known[at] && page->bytes[at] != code[i]) {
        changed = std::min(changed, i);
        past = i + 1;
      }
      if (!page->known[at]) add(in_copy(address, offset_bytes) ? first : early, begin, address, code[i]);
      page->known[at] = true;
      page->bytes[at] = code[i];
    }
    if (changed < past)
      changes_.push_back({head[0],
                          head[1] + changed,
                          {code.begin() + static_cast<std::ptrdiff_t>(changed), code.begin() + static_cast<std::ptrdiff_t>(past)}});
  }
  changes_.insert(changes_.begin(), std::make_move_iterator(early.begin()), std::make_move_iterator(early.end()));
  return first;
}

// What was changed and did not run since: the copy has it.
void BootCode::end_at_copy(const std::vector<Piece>& first) {
  std::map<uint64_t, std::vector<std::byte>> originals;  // of all that was written to the copy or changed in it
  const auto keep = [&](const Piece& piece) {
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < piece.bytes.size(); ++i) {
      uint64_t offset_bytes = 0;
      if (!in_copy(piece.address + i, offset_bytes)) break;
      bytes.push_back(core_->file()->bytes()[offset_bytes]);
    }
    if (!bytes.empty() && originals[piece.address].size() < bytes.size()) originals[piece.address] = std::move(bytes);
  };
  for (const Piece& piece : first) keep(piece);
  for (const Piece& piece : changes_) keep(piece);
  for (auto& [address, bytes] : originals) changes_.push_back({end_, address, std::move(bytes)});
}

Result<BootCode> BootCode::open(const std::string& log, const std::string& core, std::function<uint64_t(uint64_t)> to_ns) {
  BootCode code;
  code.to_ns_ = std::move(to_ns);
  std::error_code error;
  if (!std::filesystem::exists(log, error)) return code;
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(log);
  if (!file) return file.error();
  Result<std::shared_ptr<const ElfFile>> copy = ElfFile::open(core);
  if (!copy) return copy.error();
  code.core_ = *copy;
  const std::vector<Piece> first = code.sort_log((*file)->bytes());
  code.end_at_copy(first);
  std::fstream out(core, std::ios::in | std::ios::out | std::ios::binary);
  for (const Piece& piece : first) {
    for (size_t i = 0; i < piece.bytes.size(); ++i) {  // segments may end inside a piece
      uint64_t offset_bytes = 0;
      if (!code.in_copy(piece.address + i, offset_bytes)) continue;
      out.seekp(static_cast<std::streamoff>(offset_bytes)).put(static_cast<char>(piece.bytes[i]));
    }
  }
  if (!out.flush()) return system_error("cannot write to " + core, ErrorCode::write_failed);
  copy = ElfFile::open(core);
  if (!copy) return copy.error();
  code.core_ = *copy;
  return code;
}

BootCode::Page& BootCode::page_at(uint64_t address) {
  const uint64_t begin = address / kPageBytes * kPageBytes;
  std::unique_ptr<Page>& page = pages_[begin];
  if (page != nullptr) return *page;
  page = std::make_unique<Page>();
  for (const ElfSegment& segment : core_ == nullptr ? std::vector<ElfSegment>() : core_->segments()) {
    const uint64_t first = std::max(begin, segment.address), end = std::min(begin + kPageBytes, segment.address + segment.file_size_bytes);
    if (first >= end) continue;
    const Bytes bytes = core_->file()->bytes().subspan(segment.file_offset_bytes + (first - segment.address), end - first);
    std::memcpy(page->bytes + (first - begin), bytes.data(), bytes.size());
    std::fill_n(page->known + (first - begin), bytes.size(), true);
  }
  return *page;
}

bool BootCode::apply(uint64_t address, Bytes code, std::vector<std::byte>* old) {
  bool changed = false, all_known = true;
  for (size_t i = 0; i < code.size(); ++i) {
    Page& page = page_at(address + i);
    const uint64_t at = (address + i) % kPageBytes;
    changed = changed || !page.known[at] || page.bytes[at] != code[i];
    all_known = all_known && page.known[at];
    if (old != nullptr && all_known) old->push_back(page.bytes[at]);
    page.known[at] = true;
    page.bytes[at] = code[i];
  }
  if (old != nullptr && !all_known) old->clear();
  return changed;
}

Status BootCode::up_to(uint64_t time_ns, const Sink& sink) {
  for (; at_ < changes_.size(); ++at_) {
    const Piece& piece = changes_[at_];
    const uint64_t when = to_ns_(piece.time);
    if (when >= time_ns) return {};
    perfio::TextPokeRecord poke;
    poke.addr = piece.address;
    if (!apply(piece.address, piece.bytes, &poke.old_bytes)) continue;
    poke.new_bytes = piece.bytes;
    while (!poke.old_bytes.empty() && poke.old_bytes.back() == poke.new_bytes.back()) poke.old_bytes.pop_back(), poke.new_bytes.pop_back();
    size_t same = 0;
    while (same < poke.old_bytes.size() && poke.old_bytes[same] == poke.new_bytes[same]) ++same;
    poke.old_bytes.erase(poke.old_bytes.begin(), poke.old_bytes.begin() + static_cast<std::ptrdiff_t>(same));
    poke.new_bytes.erase(poke.new_bytes.begin(), poke.new_bytes.begin() + static_cast<std::ptrdiff_t>(same));
    poke.addr += same;
    if (Status status = sink(poke, when); !status) return status;
  }
  return {};
}

}  // namespace ptd::emulate
