// BootCode: a log applied to a copy of the kernel's code.
#include "capture/emulate/system/boot_code.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

namespace ptd::emulate {

Result<BootCode> BootCode::open(const std::string& log, const std::string& core, std::function<uint64_t(uint64_t)> to_ns) {
  BootCode code;
  code.to_ns_ = std::move(to_ns);
  std::error_code error;
  if (!std::filesystem::exists(log, error)) return code;
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(log);
  if (!file) return file.error();
  Result<std::shared_ptr<const ElfFile>> copy = ElfFile::open(core);
  if (!copy) return copy.error();
  code.log_ = *file;
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
  const Bytes log = log_ == nullptr ? Bytes() : log_->bytes();
  std::array<uint64_t, 3> head{};  // time, address, size
  while (log.size() - at_ >= sizeof(head)) {
    std::memcpy(head.data(), log.data() + at_, sizeof(head));
    const uint64_t when = to_ns_(head[0]);
    if (when >= time_ns || head[2] > log.size() - at_ - sizeof(head) || head[2] > UINT16_MAX) return {};
    perfio::TextPokeRecord poke;
    poke.addr = head[1];
    const Bytes code = log.subspan(at_ + sizeof(head), head[2]);
    at_ += sizeof(head) + head[2];
    if (!apply(poke.addr, code, &poke.old_bytes)) continue;
    poke.new_bytes.assign(code.begin(), code.end());
    if (Status status = sink(poke, when); !status) return status;
  }
  return {};
}

}  // namespace ptd::emulate
