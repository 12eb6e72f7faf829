// LandingPads: see landing_pads.h.
#include "image/symbols/dwarf/landing_pads.h"

#include <algorithm>

#include "image/symbols/dwarf/eh_reader.h"

namespace ptd {
namespace {

constexpr size_t kMaxSites = 4U << 20;

// The bytes of a file from an address up to the end of its segment.
Bytes bytes_at(const ElfFile& elf, uint64_t address) {
  const Bytes all = elf.file()->bytes();
  for (const ElfSegment& segment : elf.segments()) {
    const uint64_t inside = address - segment.address;
    if (address < segment.address || inside >= segment.file_size_bytes) continue;
    if (segment.file_offset_bytes > all.size() || segment.file_size_bytes > all.size() - segment.file_offset_bytes) continue;
    return all.subspan(segment.file_offset_bytes + inside, segment.file_size_bytes - inside);
  }
  return {};
}

}  // namespace

LandingPads::LandingPads(const ElfFile& elf, const std::vector<CallSiteTable>& tables) {
  size_t read = 0;
  for (const CallSiteTable& table : tables) {
    const Bytes bytes = bytes_at(elf, table.address);
    const auto* const begin = reinterpret_cast<const uint8_t*>(bytes.data());
    EhReader head(begin, begin + bytes.size(), elf.is_64bit());
    uint64_t base = table.function;
    if (const uint8_t encoding = head.byte(); encoding != DW_EH_PE_omit) {
      const uint64_t field = table.address + static_cast<uint64_t>(head.at() - begin);
      base = head.encoded(encoding) + ((encoding & 0x70) == DW_EH_PE_pcrel ? field : 0);
    }
    if (head.byte() != DW_EH_PE_omit) (void)head.uleb();  // where the table of types is
    const uint8_t encoding = head.byte();
    const uint64_t size = head.uleb();
    if (head.failed() || size > bytes.size() - static_cast<size_t>(head.at() - begin)) continue;
    EhReader in(head.at(), head.at() + size, elf.is_64bit());
    for (; !in.done() && read < kMaxSites; ++read) {
      const uint64_t start = in.encoded(encoding), length = in.encoded(encoding), pad = in.encoded(encoding);
      (void)in.uleb();  // what the landing pad catches
      if (in.failed()) break;
      if (pad != 0 && length != 0) sites_.push_back({table.function + start, length, base + pad});
    }
  }
  sort();
}

LandingPads::LandingPads(std::vector<CallSite> sites) : sites_(std::move(sites)) { sort(); }

void LandingPads::sort() {
  std::stable_sort(sites_.begin(), sites_.end(), [](const CallSite& a, const CallSite& b) { return a.start < b.start; });
  for (const CallSite& site : sites_) pads_.push_back(site.landing);
  std::sort(pads_.begin(), pads_.end());
  pads_.erase(std::unique(pads_.begin(), pads_.end()), pads_.end());
}

const CallSite* LandingPads::find(uint64_t address) const {
  const auto after =
      std::upper_bound(sites_.begin(), sites_.end(), address, [](uint64_t value, const CallSite& site) { return value < site.start; });
  if (after == sites_.begin()) return nullptr;
  const CallSite& site = *std::prev(after);
  return address - site.start < site.size_bytes ? &site : nullptr;
}

bool LandingPads::is_landing(uint64_t address) const { return std::binary_search(pads_.begin(), pads_.end(), address); }

}  // namespace ptd
