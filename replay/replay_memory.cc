// ReplayMemory: see replay_memory.h.
#include "replay/replay_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ptdecode/guest.h"
#include "recording/data/recording_data.h"

namespace ptd::replay {

namespace {

constexpr size_t kMostElfSections = 1U << 16;

/// Returns the part of a file's segment from `address` (p_vaddr) on. Bytes of a page outside of the segment's file range are not part of
/// it.
Bytes segment_bytes(const ElfFile& elf, uint64_t address) {
  for (const ElfSegment& segment : elf.segments()) {
    if (segment.writable || address < segment.address || address - segment.address >= segment.file_size_bytes) continue;
    const uint64_t into = address - segment.address;
    const Bytes file = elf.file()->bytes();
    if (segment.file_offset_bytes > file.size() || segment.file_size_bytes > file.size() - segment.file_offset_bytes) continue;
    return file.subspan(segment.file_offset_bytes + into, segment.file_size_bytes - into);
  }
  return {};
}

constexpr uint64_t kPage = 4096;
uint64_t page_of(uint64_t address) { return address / kPage * kPage; }

/// Where the sections of one file begin in one address space: address and offset in the file.
using Places = std::set<std::pair<uint64_t, uint64_t>>;

uint64_t bias_of(const Section& section, const ElfSegment& segment) {
  return section.ip.value - section.file_offset_bytes - (segment.address - segment.file_offset_bytes);
}

/// Returns how many segments have a section where `bias` puts them.
size_t confirmations(const ElfFile& elf, uint64_t bias, const Places& places) {
  constexpr size_t kMostSegments = 16;
  if (elf.segments().size() > kMostSegments) return 0;
  return static_cast<size_t>(std::count_if(elf.segments().begin(), elf.segments().end(), [&](const ElfSegment& segment) {
    return places.contains({page_of(bias + segment.address), page_of(segment.file_offset_bytes)});
  }));
}

/// Returns the segment that a section maps; null if it maps none. Segments may share a page of the file (as lld lays them out), which is
/// then mapped once for each: the segment is that whose bias agrees with most sections; of several, an executable one.
const ElfSegment* segment_of(const Section& section, const ElfFile& elf, const Places& places) {
  const uint64_t first = section.file_offset_bytes, end = first + std::min(section.size_bytes, ~first);
  const ElfSegment* best = nullptr;
  std::pair<size_t, bool> best_score;
  for (const ElfSegment& segment : elf.segments()) {
    if (segment.file_offset_bytes >= end || first >= segment.file_offset_bytes + segment.file_size_bytes) continue;
    const std::pair<size_t, bool> score{confirmations(elf, bias_of(section, segment), places), segment.executable};
    if (best == nullptr || score > best_score) best = &segment, best_score = score;
  }
  return best;
}

}  // namespace

ReplayMemory::ReplayMemory(const Recording& recording) : recording_(&recording), view_(recording.timeline()) {
  const Timeline& timeline = recording.timeline();
  std::map<std::pair<SpaceId, const ElfFile*>, Places> places;
  std::vector<std::pair<SectionId, const ElfFile*>> mapped;
  const auto& files = data_of(recording).elf_files;
  for (SectionId id = 0; id < timeline.section_count() && mapped.size() < kMostElfSections; ++id) {
    const Section& section = timeline.section(id);
    const auto file = section.space == kKernelSpace ? files.end() : files.find({section.path, section.build_id});
    if (file == files.end() || file->second->is_relocatable()) continue;
    mapped.emplace_back(id, file->second.get());
    places[{section.space, file->second.get()}].emplace(page_of(section.ip.value), page_of(section.file_offset_bytes));
  }
  for (const auto& [id, elf] : mapped) {
    const Section& section = timeline.section(id);
    const ElfSegment* segment = segment_of(section, *elf, places[{section.space, elf}]);
    if (segment == nullptr) continue;
    const uint64_t bias = bias_of(section, *segment);
    if (segment->executable) elves_.push_back({&section, elf, bias});
    for (const ElfSegment& other : elf->segments()) {
      const uint64_t start = page_of(bias + other.address), stop = bias + other.address + other.memory_size_bytes;
      if (!other.writable || other.executable || stop <= section.ip.value || start >= section.ip.value + section.size_bytes) continue;
      data_[id].push_back({start, page_of(stop + kPage - 1)});
    }
  }
}

uint64_t ReplayMemory::code_bytes_at(SpaceId space, Ip ip, TimeNs when, uint64_t size) const {
  const SectionId id = recording_->timeline().section_at(space, ip, when);
  if (id == kNoSection) return size;
  const Section& section = recording_->timeline().section(id);
  size = std::min(size, std::max<uint64_t>(section.ip.value + section.size_bytes - ip.value, 1));  // the next section may be data
  const auto data = data_.find(id);
  if (data == data_.end()) return size;
  for (const DataRange& range : data->second) {
    if (range.first <= ip.value && ip.value < range.end) return 0;
    if (ip.value < range.first) size = std::min(size, range.first - ip.value);
  }
  return size;
}

bool ReplayMemory::holds(SpaceId space, const BlockInfo& block, TimeNs when) {
  std::vector<std::byte> bytes(block.size_bytes);
  return read(space, block.ip, when, bytes) == bytes.size() && std::equal(bytes.begin(), bytes.end(), block.first_byte);
}

std::vector<SectionId> ReplayMemory::sections_over(SpaceId space, Ip ip, uint64_t size_bytes) const {
  std::set<SectionId> sections;
  for (uint64_t i = 0; i < size_bytes; ++i) {
    for (const SectionId id : recording_->timeline().sections_at(space, ip + i)) sections.insert(id);
  }
  return {sections.begin(), sections.end()};
}

TimeNs ReplayMemory::time_of(SpaceId space, const BlockInfo& block, TimeNs near) {
  constexpr size_t kMostTimes = 1024;
  constexpr uint32_t kMostBytes = 4096;
  if (near == kTimeMin || block.size_bytes > kMostBytes || holds(space, block, near)) return near;
  const Timeline& timeline = recording_->timeline();
  const SpaceId of = space_at(space, block.ip);
  std::vector<TimeNs> times;
  const auto add = [&](Interval live) {
    if (live.first != kTimeMin) times.push_back(live.first);
    // At the moment of a change, memory has the newer code.
    if (live.last != kTimeMax && live.last != kTimeMin) times.push_back(TimeNs{live.last.value - 1});
  };
  for (const SectionId id : sections_over(of, block.ip, block.size_bytes)) add(timeline.section(id).live);
  for (const SiteId site : timeline.sites_in(of, block.ip, block.size_bytes)) {
    for (uint32_t i = 0; i < timeline.site(site).versions; ++i) add(timeline.version(site, i).possible);
  }
  const auto far = [&](TimeNs time) { return std::max(time, near).value - std::min(time, near).value; };
  std::sort(times.begin(), times.end(), [&](TimeNs a, TimeNs b) { return far(a) < far(b); });
  times.erase(std::unique(times.begin(), times.end()), times.end());
  if (times.size() > kMostTimes) times.resize(kMostTimes);
  const auto found = std::find_if(times.begin(), times.end(), [&](TimeNs time) { return holds(space, block, time); });
  return found == times.end() ? near : *found;
}

std::vector<MappedElf> ReplayMemory::files(SpaceId space, TimeNs when) {
  std::vector<MappedElf> live;
  const Timeline& timeline = recording_->timeline();
  for (const MappedElf& mapped : elves_) {
    const SectionId id = timeline.section_at(space, mapped.section->ip, when);
    if (id == kNoSection || &timeline.section(id) != mapped.section) continue;
    const bool known =
        std::any_of(live.begin(), live.end(), [&](const MappedElf& other) { return other.elf == mapped.elf && other.bias == mapped.bias; });
    if (!known) live.push_back(mapped);
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const MappedElf& a, const MappedElf& b) { return a.section->live.first < b.section->live.first; });
  return live;
}

std::vector<const Section*> ReplayMemory::sections(SpaceId space, TimeNs when) {
  std::vector<const Section*> live;
  const Timeline& timeline = recording_->timeline();
  for (SectionId id = 0; id < timeline.section_count() && live.size() < kMostSections; ++id) {
    const Section& section = timeline.section(id);
    if ((section.space == kKernelSpace) != (space == kKernelSpace)) continue;
    const SectionId here = timeline.section_at(space, section.ip, when);
    if (here == id) live.push_back(&section);
  }
  std::sort(live.begin(), live.end(), [](const Section* a, const Section* b) { return a->ip < b->ip; });
  return live;
}

size_t ReplayMemory::read_code(SpaceId space, Ip ip, TimeNs when, std::span<std::byte> out) {
  const Interval moment{when, when};
  size_t done = 0;
  while (done < out.size()) {
    const Ip at = ip + done;
    const std::span<std::byte> rest = out.subspan(done);
    Bytes known = view_.plain(space, at, moment).bytes;
    if (known.empty()) {
      constexpr unsigned kSpan = 64, kMost = 8;
      CodeCandidate candidates[kMost];
      const unsigned wanted = static_cast<unsigned>(std::min<size_t>(rest.size(), kSpan));
      const FetchResult result = view_.fetch(space, at, moment, {}, candidates, wanted);
      if (result.status != FetchStatus::ok || result.count == 0) break;
      known = candidates[result.count - 1].bytes;
      if (known.size() > wanted) known = known.first(wanted);  // further bytes have versions that were not asked for
    }
    const size_t size = code_bytes_at(space, at, when, std::min(known.size(), rest.size()));
    if (size == 0) break;
    std::memcpy(rest.data(), known.data(), size);
    done += size;
  }
  return done;
}

size_t ReplayMemory::read_file(SpaceId space, Ip ip, TimeNs when, std::span<std::byte> out) {
  const Timeline& timeline = recording_->timeline();
  for (const MappedElf& mapped : elves_) {
    const Bytes bytes = segment_bytes(*mapped.elf, ip.value - mapped.bias);
    if (bytes.empty()) continue;
    const SectionId id = timeline.section_at(space, mapped.section->ip, when);
    if (id == kNoSection || &timeline.section(id) != mapped.section) continue;
    const size_t size = std::min(bytes.size(), out.size());
    std::memcpy(out.data(), bytes.data(), size);
    return size;
  }
  return 0;
}

size_t ReplayMemory::read(SpaceId space, Ip ip, TimeNs when, std::span<std::byte> out) {
  const SpaceId of = space_at(space, ip);
  if (of == kNoSpace) return 0;
  size_t done = 0;
  while (done < out.size() && ip.value + done >= ip.value) {
    const std::span<std::byte> rest = out.subspan(done);
    size_t size = read_code(of, ip + done, when, rest);
    if (size == 0 && of != kKernelSpace) {
      // Up to where code begins: memory that is mapped as code never comes from read_file().
      size = recording_->timeline().section_at(of, ip + done, when) == kNoSection ? read_file(of, ip + done, when, rest) : 0;
      for (const MappedElf& mapped : elves_) {
        const uint64_t until = mapped.section->ip - (ip + done);
        if (until != 0 && until < size && recording_->timeline().section_at(of, mapped.section->ip, when) != kNoSection) size = until;
      }
    }
    if (size == 0) break;
    done += size;
  }
  return done;
}

}  // namespace ptd::replay
