// ProcessCode: see lldb_code.h.
#include "recording/lldb/lldb_code.h"

#include <algorithm>

#include "recording/data/elf_writer.h"
#include "recording/data/recording_data.h"

namespace ptd {

namespace {

/// The end of a file's segments, relative to its lowest one.
uint64_t extent_of(const ElfFile& elf) {
  uint64_t end = 0;
  for (const ElfSegment& segment : elf.segments()) end = std::max(end, segment.address - elf.lowest_address() + segment.memory_size_bytes);
  return end;
}

}  // namespace

void ProcessCode::refuse(Ip ip, TimeNs when, std::string what) {
  if (conflicts_++ == 0) conflict_ = LldbConflict{ip, when, std::move(what)};
}

void ProcessCode::add(const BlockInfo& block, SpaceId space, TimeNs when) {
  const bool is_kernel = is_kernel_half(block.ip);
  if (is_kernel) space = kKernelSpace;
  has_user_code_ = has_user_code_ || !is_kernel;
  is_64bit_ = block.mode == ExecMode::bits64;
  const Bytes bytes{block.first_byte, block.size_bytes};
  const Timeline& timeline = recording_->timeline();
  const SectionId id = timeline.section_at(space, block.ip, when);
  if (id != kNoSection && add_to_file(timeline.section(id), block.ip, bytes, when)) return;
  add_piece(space, block.ip, bytes, when);
}

// Returns false if no file has the section.
bool ProcessCode::add_to_file(const Section& section, Ip ip, Bytes bytes, TimeNs when) {
  const auto& files = data_of(*recording_).elf_files;
  const auto found = files.find({section.path, section.build_id});
  if (found == files.end() || section.space == kKernelSpace) return false;
  const ElfFile& elf = *found->second;
  const uint64_t offset = section.file_offset_bytes + (ip - section.ip);
  uint64_t address = 0;
  if (!elf.address_of_offset(offset, address)) return false;
  const Bytes content = elf.file()->bytes();
  const bool fits = offset <= content.size() && bytes.size() <= content.size() - offset;
  if (!fits || !std::equal(bytes.begin(), bytes.end(), content.begin() + static_cast<std::ptrdiff_t>(offset))) {
    refuse(ip, when, "differs from its file " + section.path.str());
    return true;
  }
  add_module(section, found->second, ip.value - address, ip, when);
  return true;
}

void ProcessCode::add_module(const Section& section, const std::shared_ptr<const ElfFile>& elf, uint64_t bias, Ip ip, TimeNs when) {
  const uint64_t first = bias + elf->lowest_address();
  for (const LldbModule& other : modules_) {
    if (other.elf == elf && other.bias == bias) return;
    const uint64_t other_first = other.bias + other.elf->lowest_address();
    const bool before = first < other_first && other_first - first >= extent_of(*elf);
    const bool after = other_first <= first && first - other_first >= extent_of(*other.elf);
    if (before || after) continue;
    return refuse(ip, when, "is that of " + section.path.str() + ", and at another time that of " + other.path);
  }
  modules_.push_back({elf, section.path, bias});
}

void ProcessCode::add_piece(SpaceId space, Ip ip, Bytes bytes, TimeNs when) {
  bool differs = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t address = ip.value + i;
    const auto [at, is_new] = pages_.try_emplace(address / kPageBytes);
    Page& page = at->second;
    if (is_new) page.space = space, page.when = when;
    const uint64_t offset = address % kPageBytes;
    differs = differs || (page.known[offset] && page.bytes[offset] != bytes[i]);
    if (page.known[offset]) continue;
    page.bytes[offset] = bytes[i];
    page.known.set(offset);
  }
  if (differs) refuse(ip, when, "changed");
  const auto symbol = recording_->symbolizer().find(space, ip, when);
  if (symbol) names_.try_emplace(symbol->start.value, Name{symbol->size_bytes, std::string(symbol->name)});
}

void ProcessCode::finish() {
  for (const auto& [number, page] : pages_) {
    for (const LldbModule& module : modules_) {
      for (const ElfSegment& segment : module.elf->segments()) {
        const uint64_t first = segment.address + module.bias;
        if (segment.file_size_bytes == 0 || first / kPageBytes > number || (first + segment.file_size_bytes - 1) / kPageBytes < number)
          continue;
        for (uint64_t i = 0; i < kPageBytes; ++i) {
          const uint64_t address = number * kPageBytes + i;
          if (!page.known[i] || address - first >= segment.file_size_bytes) continue;
          refuse(Ip{address}, page.when, "is not of " + module.path + ", which is mapped there at another time");
          break;
        }
      }
    }
  }
}

// Bytes between two pieces that are close together: those that the recording has there, if it has any.
void ProcessCode::fill(const Page& page, Run& run, size_t count) const {
  constexpr std::byte kInt3{0xcc};
  constexpr uint64_t kUnknownBytes = 64;
  const Timeline& timeline = recording_->timeline();
  while (count != 0) {
    const Ip ip{run.first + run.bytes.size()};
    const SectionId id = timeline.section_at(page.space, ip, page.when);
    const Bytes code = id == kNoSection ? Bytes{} : timeline.section(id).code.bytes;
    const uint64_t into = id == kNoSection ? 0 : ip - timeline.section(id).ip;
    const bool known = into < code.size();
    const size_t size = std::min<uint64_t>(count, known ? code.size() - into : kUnknownBytes);
    if (known) {
      run.bytes.insert(run.bytes.end(), code.begin() + static_cast<std::ptrdiff_t>(into),
                       code.begin() + static_cast<std::ptrdiff_t>(into + size));
    } else {
      run.bytes.insert(run.bytes.end(), size, kInt3);
    }
    count -= size;
  }
}

// A name counts only in the section in which its function begins.
uint64_t ProcessCode::start_of(uint64_t address) const {
  constexpr uint64_t kMostBytes = 4096;
  const auto after = names_.upper_bound(address);
  if (after == names_.begin()) return address;
  const auto& [start, name] = *std::prev(after);
  return address - start < std::min(name.size_bytes, kMostBytes) ? start : address;
}

std::vector<ProcessCode::Run> ProcessCode::runs() const {
  constexpr uint64_t kJoinedBytes = 256;
  std::vector<Run> made;
  for (const auto& [number, page] : pages_) {
    for (uint64_t i = 0; i < kPageBytes; ++i) {
      if (!page.known[i]) continue;
      const uint64_t address = number * kPageBytes + i;
      const uint64_t end = made.empty() ? 0 : made.back().first + made.back().bytes.size();
      if (made.empty() || address - end > kJoinedBytes) {
        made.push_back({std::max(end, start_of(address)), {}});
        fill(page, made.back(), address - made.back().first);
      } else {
        fill(page, made.back(), address - end);
      }
      made.back().bytes.push_back(page.bytes[i]);
    }
  }
  return made;
}

uint64_t ProcessCode::other_address() const {
  if (pages_.empty()) return 0;
  const auto& [number, page] = *pages_.begin();
  return start_of(number * kPageBytes + page.known._Find_first());
}

Result<std::string> ProcessCode::other_code(bool is_64bit) const {
  const std::vector<Run> code = runs();
  if (code.empty()) return std::string();
  if (code.size() > ElfWriter::kMostRegions)
    return Error{ErrorCode::too_large,
                 "the code that ran has " + std::to_string(code.size()) + " pieces, more than an ELF file holds: choose a part with --time",
                 0};
  constexpr uint16_t kX86_64 = 62, kI386 = 3;  // e_machine, elf(5)
  ElfWriter elf(is_64bit ? kX86_64 : kI386, is_64bit);
  for (const Run& run : code) elf.add_region(run.first, run.bytes.size(), run.bytes);
  for (const auto& [address, name] : names_) elf.add_function(address, name.size_bytes, name.text);
  return elf.text();
}

}  // namespace ptd
