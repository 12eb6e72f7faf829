// Page dumps.
#include "image/source/page_dump.h"

#include <algorithm>
#include <cstring>

namespace ptd {
namespace {

constexpr uint64_t kPageBytes = 4096;

struct Page {
  uint64_t address = 0;
  uint64_t index = 0;
};

}  // namespace

Result<std::vector<MemoryRange>> read_page_dump(const std::string& dump_path, const std::string& addresses_path) {
  auto dump = MappedFile::open(dump_path);
  if (!dump.ok()) return dump.error();
  auto addresses = MappedFile::open(addresses_path);
  if (!addresses.ok()) return addresses.error();
  const Bytes list = (*addresses)->bytes();
  const uint64_t count = list.size() / sizeof(uint64_t);
  if (list.size() % sizeof(uint64_t) != 0 || (*dump)->bytes().size() != count * kPageBytes) {
    return Error{ErrorKind::file_format,
                 dump_path + " holds " + std::to_string((*dump)->bytes().size()) + " bytes, but " + addresses_path + " lists " +
                     std::to_string(count) + " pages of 4096 bytes",
                 0};
  }
  std::vector<Page> pages(count);
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(&pages[i].address, list.data() + i * sizeof(uint64_t), sizeof(uint64_t));
    pages[i].index = i;
    if (pages[i].address % kPageBytes != 0) {
      return Error{ErrorKind::file_format, addresses_path + ": an address is not a multiple of 4096", i * sizeof(uint64_t)};
    }
  }
  std::stable_sort(pages.begin(), pages.end(), [](const Page& a, const Page& b) { return a.address < b.address; });
  std::vector<MemoryRange> ranges;
  for (size_t i = 0; i < pages.size();) {
    size_t end = i + 1;
    while (end < pages.size() && pages[end].address == pages[end - 1].address + kPageBytes && pages[end].index == pages[end - 1].index + 1)
      ++end;
    ranges.push_back({Ip{pages[i].address}, piece_of(*dump, pages[i].index * kPageBytes, (end - i) * kPageBytes)});
    const uint64_t last = pages[end - 1].address;
    i = end;
    while (i < pages.size() && pages[i].address == last) ++i;
  }
  return ranges;
}

}  // namespace ptd
