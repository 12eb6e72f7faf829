// Comparison of copies of a kernel's text with records of its changes, with names, and with each other.
#include "image/source/kernel/text_evidence.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

namespace ptd {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostKernelBytes = 64U << 20;      // from the start of its text on; modules may follow
constexpr uint64_t kModuleArea = 0xffffffffc0000000;  // of x86, after the addresses to which it randomises the kernel
constexpr uint64_t kSmallKernelBytes = 4U << 20;      // of text; data and the pages of .init follow, which are used again after the boot
constexpr uint64_t kMostPages = uint64_t{1} << 18;    // that are compared
constexpr std::byte kBreakpoint{0xcc};                // INT3
constexpr size_t kMostVersions = 16;                  // of one site: a limit of memory

/// Whether the bytes start with an instruction that a kernel writes over others: a call, jump, breakpoint, return or NOP.
bool is_patch(Bytes bytes, CodeFamily family) {
  if (family == CodeFamily::arm) {
    uint32_t word = 0;
    std::memcpy(&word, bytes.data(), std::min<size_t>(bytes.size(), sizeof word));
    return word == 0xd503201f || (word & 0x7c000000) == 0x14000000 || (word & 0xffe0001f) == 0xd4200000;  // NOP; B, BL; BRK
  }
  constexpr std::string_view kStarts[] = {
      "\xe8",     "\xe9",     "\xeb",         "\xcc",     "\xc3",     "\x90",    "\x66\x90",
      "\x0f\x1f", "\x66\x66", "\x66\x0f\x1f", "\x2e\xe8", "\x2e\xe9", "\x31\xc0"};  // XOR EAX, EAX: a static call that returns 0
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::ranges::any_of(kStarts, [text](std::string_view start) { return text.starts_with(start); });
}

/// Returns the bytes of the copy from the address on; empty if it has none.
Bytes bytes_at(const KernelTextCopy& copy, uint64_t at) {
  const auto after = std::ranges::upper_bound(copy.ranges, at, {}, [](const MemoryRange& range) { return range.ip.value; });
  if (after == copy.ranges.begin()) return {};
  const MemoryRange& range = *std::prev(after);
  const uint64_t skip = at - range.ip.value;
  return skip < range.code.bytes.size() ? range.code.bytes.subspan(skip) : Bytes();
}

/// Whether the bytes start with a version of a site. After a breakpoint, which replaces the first byte, the rest is that of another
/// version.
bool is_version(const std::vector<std::byte>& version, Bytes there, CodeFamily family) {
  if (version.size() > there.size()) return false;
  const size_t first = family != CodeFamily::arm && version.size() > 1 && version[0] == kBreakpoint ? 1 : 0;
  return std::equal(version.begin() + static_cast<std::ptrdiff_t>(first), version.end(),
                    there.begin() + static_cast<std::ptrdiff_t>(first));
}

/// Whether a jump or breakpoint before the address may cover it: a probe's jump of five bytes replaces several instructions.
bool may_be_covered(const KernelTextCopy& copy, uint64_t at, CodeFamily family) {
  constexpr uint64_t kJumpBytes = 5;
  const Bytes before = family != CodeFamily::arm ? bytes_at(copy, at - (kJumpBytes - 1)) : Bytes();
  return std::ranges::any_of(before.first(std::min<size_t>(before.size(), kJumpBytes - 1)),
                             [](std::byte byte) { return byte == kBreakpoint || byte == std::byte{0xe9}; });
}

std::string part_of(uint64_t part, uint64_t whole) { return std::to_string(part) + " of " + std::to_string(whole); }

/// Calls visit(address, bytes of one, bytes of other) for pages in [first, last) that both have, at most kMostPages, until it returns
/// false.
template <class Visit>
void visit_pages(const KernelTextCopy& one, const KernelTextCopy& other, Ip first, Ip last, Visit visit) {
  uint64_t pages = 0;
  for (const MemoryRange& range : one.ranges) {
    const uint64_t start = range.ip.value, size = range.code.bytes.size();
    for (uint64_t at = first > range.ip ? std::min(size, first.value - start) : 0;
         at < size && range.ip + at < last && pages < kMostPages;) {
      const uint64_t next = std::min<uint64_t>(size, at + kPage - (start + at) % kPage);
      const Bytes there = bytes_at(other, start + at), here = range.code.bytes.subspan(at, std::min<uint64_t>(next - at, there.size()));
      if (!here.empty() && !visit(start + at, here, there.first(here.size()))) return;
      pages += here.empty() ? 0 : 1;
      at = next;
    }
  }
}

bool are_equal(Bytes one, Bytes other) { return std::memcmp(one.data(), other.data(), one.size()) == 0; }

std::string page_contradiction(const KernelTextCopy& one, const KernelTextCopy& other) {
  uint64_t pages = 0, changed = 0;
  visit_pages(one, other, Ip{0}, std::min(one.text_end, other.text_end), [&](uint64_t, Bytes here, Bytes there) {
    ++pages;
    if (are_equal(here, there)) return true;
    size_t differing = 0;
    for (size_t i = 0; i < here.size(); ++i) differing += here[i] != there[i] ? 1 : 0;
    changed += differing > here.size() / 2 ? 1 : 0;
    return true;
  });
  if (changed < kMostChangedPages || changed < pages / kPagesForOneChanged) return {};
  return "of another kernel or another boot than " + other.path + ": " + part_of(changed, pages) +
         " pages of the text have mostly other bytes";
}

/// Whether most differences of two pages are not in an instruction that a kernel writes over others.
bool has_changed_data(Bytes one, Bytes other, CodeFamily family) {
  constexpr size_t kInstructionBytes = 5;  // CALL and JMP; their first byte may be the same, or on the page before
  constexpr size_t kLeastOfData = 8;
  size_t patches = 0, others = 0;
  for (size_t at = 0; at < one.size();) {
    if (one[at] == other[at]) {
      ++at;
      continue;
    }
    const auto is_patch_at = [&](size_t start) { return is_patch(one.subspan(start), family) || is_patch(other.subspan(start), family); };
    size_t start = family == CodeFamily::arm ? at / 4 * 4 : at;
    bool is_written = is_patch_at(start);
    for (size_t back = 1; family != CodeFamily::arm && !is_written && back < kInstructionBytes && back <= at; ++back) {
      const std::byte first = one[at - back];
      is_written = first == other[at - back] && (first == std::byte{0xe8} || first == std::byte{0xe9});
      if (is_written) start = at - back;
    }
    (is_written ? patches : others) += 1;
    at = start + (family == CodeFamily::arm ? 4 : kInstructionBytes);
  }
  return others > patches && others >= kLeastOfData;
}

/// Returns where the data of two copies begins that do not name it; the end of memory if no difference shows it.
Ip data_begin(const KernelTextCopy& one, const KernelTextCopy& other, CodeFamily family) {
  Ip begin{~uint64_t{0}};
  visit_pages(one, other, std::max(one.text_end, other.text_end), begin, [&](uint64_t at, Bytes here, Bytes there) {
    if (are_equal(here, there) || !has_changed_data(here, there, family)) return true;
    begin = Ip{at};
    return false;
  });
  return begin;
}

std::string function_contradiction(const KernelTextCopy& one, const KernelTextCopy& other) {
  constexpr uint64_t kMostMoved = 16, kFunctionsForOneMoved = 64;  // damaged lines
  const uint64_t all = std::min(one.functions.size(), other.functions.size());
  std::vector<uint64_t> both;
  std::ranges::set_intersection(one.functions, other.functions, std::back_inserter(both));
  const uint64_t common = both.size();
  if (all - common < kMostMoved || all - common < all / kFunctionsForOneMoved) return {};
  return "of another kernel or another boot than " + other.path + ": their kallsyms have " + part_of(all - common, all) +
         " functions at other addresses";
}

}  // namespace

KernelTextCopy kernel_text_in(const std::string& path, const std::vector<MemoryRange>& ranges, const std::vector<KernelSymbol>& symbols,
                              const std::vector<KernelModule>& modules, Ip reference) {
  const uint64_t begin = address_of(symbols, "_stext"), end = address_of(symbols, "_etext");
  const bool is_named = begin != 0 && end > begin;
  const uint64_t from = is_named ? begin : reference.value;
  uint64_t to = from + std::min(kMostKernelBytes, ~from);
  if (from < kModuleArea) to = std::min(to, kModuleArea);
  if (const uint64_t image_end = address_of(symbols, "_end"); image_end > from) to = std::min(to, image_end);
  const auto module = std::ranges::lower_bound(modules, from, {}, &KernelModule::address);
  if (module != modules.end()) to = std::min(to, module->address);
  to = is_named ? std::max(to, end) : to;
  KernelTextCopy text{path, {}, is_named ? Ip{end} : reference + std::min(kSmallKernelBytes, ~reference.value), is_named};
  if (!is_kernel_half(Ip{from})) return text;
  for (const MemoryRange& range : ranges) {
    const uint64_t first = range.ip.value, size = range.code.bytes.size();
    if (!is_kernel_half(range.ip) || size > ~first) continue;
    const uint64_t here = std::clamp(from, first, first + size), after = std::clamp(to, first, first + size);
    if (here < after) text.ranges.push_back({Ip{here}, {range.code.owner, range.code.bytes.subspan(here - first, after - here)}});
  }
  for (const KernelSymbol& symbol : symbols) {
    const bool is_inside = is_named && symbol.address >= begin && symbol.address < end;
    if (!is_inside || !symbol.is_text() || !symbol.module.empty()) continue;
    if (text.functions.empty() || text.functions.back() != symbol.address) text.functions.push_back(symbol.address);
  }
  return text;
}

void TextEvidence::add_poke(Ip ip, Bytes old_bytes, Bytes new_bytes) {
  if (old_bytes.empty()) return;
  std::vector<std::vector<std::byte>>& known = versions_[ip.value];
  for (const Bytes bytes : {old_bytes, new_bytes}) {
    const auto same = [bytes](const std::vector<std::byte>& version) { return std::ranges::equal(version, bytes); };
    if (!bytes.empty() && known.size() < kMostVersions && std::ranges::none_of(known, same)) known.emplace_back(bytes.begin(), bytes.end());
  }
}

// A site has the bytes of one of its records, or, if records were lost, another instruction that a kernel writes. A copy of another kernel
// has others at nearly all sites after the first difference.
std::string TextEvidence::poke_contradiction(const KernelTextCopy& copy, CodeFamily family) const {
  constexpr int64_t kMostContradicting = 8;      // by chance; of a region: more than agree in it
  std::vector<std::pair<uint64_t, bool>> sites;  // whether one contradicts the copy
  for (const auto& [at, versions] : versions_) {
    const Bytes there = bytes_at(copy, at);
    const auto is_there = [&](const std::vector<std::byte>& version) { return is_version(version, there, family); };
    if (copy.is_end_known && Ip{at} >= copy.text_end) continue;
    if (there.empty() || versions.size() >= kMostVersions || may_be_covered(copy, at, family)) continue;
    sites.emplace_back(at, std::ranges::none_of(versions, is_there) && !is_patch(there, family));
  }
  std::ranges::sort(sites);
  int64_t here = 0, worst = 0;  // contradicting sites less the others, in the region that ends here and in the worst one
  for (const auto& [at, contradicts] : sites) {
    here = std::max<int64_t>(here + (contradicts ? 1 : -1), 0);
    worst = std::max(worst, here);
  }
  const auto contradicting = std::ranges::count(sites, true, &std::pair<uint64_t, bool>::second);
  const bool are_most = contradicting > std::ssize(sites) / 2;
  if (contradicting < kMostContradicting || (worst < kMostContradicting && !are_most)) return {};
  return "of another kernel or another boot: at " + part_of(static_cast<uint64_t>(contradicting), sites.size()) +
         " addresses at which the kernel changed its text, it has bytes that no record tells of";
}

std::string TextEvidence::contradiction_of(const KernelTextCopy& copy, CodeFamily family) const {
  std::string why = poke_contradiction(copy, family);
  for (auto other = copies_.begin(); why.empty() && other != copies_.end(); ++other) {
    why = function_contradiction(copy, *other);
    if (why.empty()) why = page_contradiction(copy, *other);
  }
  return why;
}

Extents TextEvidence::known_data(const KernelTextCopy& copy, CodeFamily family) const {
  const auto named = std::ranges::find(copies_, true, &KernelTextCopy::is_end_known);
  Ip begin{~uint64_t{0}};
  if (copy.is_end_known || named != copies_.end()) {
    begin = copy.is_end_known ? copy.text_end : named->text_end;
  } else {
    for (const KernelTextCopy& other : copies_) begin = std::min(begin, data_begin(copy, other, family));
  }
  Extents known;
  if (copy.ranges.empty()) return known;
  const uint64_t copy_end = copy.ranges.back().ip.value + copy.ranges.back().code.bytes.size();
  for (const KernelTextCopy& other : copies_) {
    for (const MemoryRange& range : other.ranges) {
      const uint64_t end = std::min(copy_end, range.ip.value + range.code.bytes.size());
      if (end > std::max(range.ip, begin).value) known.emplace_back(std::max(range.ip, begin).value, end);
    }
  }
  return known;
}

}  // namespace ptd
