// Page dumps.
#include "image/source/page_dump.h"

#include <algorithm>
#include <cstring>

#include "image/base/interrupt.h"

namespace ptd {
namespace {

constexpr uint64_t kDumpPageBytes = 4096;

struct Page {
  uint64_t address = 0;
  uint64_t index = 0;
};

}  // namespace

Result<PageDump> read_page_dump(const std::string& dump_path, const std::string& addresses_path) {
  auto dump = MappedFile::open(dump_path);
  if (!dump.ok()) return dump.error();
  auto addresses = MappedFile::open(addresses_path);
  if (!addresses.ok()) return addresses.error();
  const Bytes list = (*addresses)->bytes();
  const uint64_t count = list.size() / sizeof(uint64_t);
  if (list.size() % sizeof(uint64_t) != 0 || (*dump)->bytes().size() != count * kDumpPageBytes) {
    return Error{ErrorCode::contradictory_record,
                 dump_path + " contains " + std::to_string((*dump)->bytes().size()) + " bytes, but " + addresses_path + " lists " +
                     std::to_string(count) + " pages of 4096 bytes",
                 0};
  }
  PageDump found;
  std::vector<Page> pages;
  constexpr uint64_t kPages = 1U << 14;  // between two checks
  for (uint64_t i = 0; i < count; ++i) {
    if (i % kPages == 0) check_interrupt();
    uint64_t address = 0;
    std::memcpy(&address, list.data() + i * sizeof(uint64_t), sizeof(uint64_t));
    if (address % kDumpPageBytes == 0) {
      pages.push_back({address, i});
    } else {
      found.odd_addresses.push_back(address);
    }
  }
  if (pages.empty() && count != 0) return Error{ErrorCode::contradictory_record, addresses_path + ": no address is a multiple of 4096", 0};
  std::stable_sort(pages.begin(), pages.end(), [](const Page& a, const Page& b) { return a.address < b.address; });
  const auto page = [&](size_t i) { return (*dump)->bytes().subspan(pages[i].index * kDumpPageBytes, kDumpPageBytes); };
  for (size_t i = 0; i < pages.size();) {
    size_t end = i + 1;
    while (end < pages.size() && pages[end].address == pages[end - 1].address + kDumpPageBytes &&
           pages[end].index == pages[end - 1].index + 1)
      ++end;
    found.ranges.push_back({Ip{pages[i].address}, piece_of(*dump, pages[i].index * kDumpPageBytes, (end - i) * kDumpPageBytes)});
    const uint64_t last = pages[end - 1].address;
    i = end;
    const Bytes used = page(end - 1);
    bool same = true;
    for (; i < pages.size() && pages[i].address == last; ++i) {
      if (i % kPages == 0) check_interrupt();
      same = same && std::ranges::equal(page(i), used);
    }
    if (!same) found.contradicted.push_back(Ip{last});
  }
  return found;
}

}  // namespace ptd
