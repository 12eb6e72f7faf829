// Finds what a complete jitdump adds to the mapped files.
#include "recording/image/ran_code.h"

#include <algorithm>
#include <iterator>

#include "image/mapped_kind.h"

namespace ptd {
namespace {
constexpr uint64_t kPageBytes = 4096;
}

// Mappings consist of whole pages.
RanCode::Part RanCode::part_at(uint64_t first, uint64_t end, TimeNs time) const {
  Part part{first, std::min(end, (first / kPageBytes + 1) * kPageBytes), nullptr, kTimeMin};
  const Timeline::SectionAt at = mappings_.section_during(space_, Ip{first}, time);
  part.mapped_at = at.valid.first;
  if (at.id == kNoSection) return part;
  const Section& section = mappings_.section(at.id);
  part.end = std::min(part.end, section.ip.value + section.size_bytes);
  if (shows_file(section.path)) part.file = &section;
  return part;
}

// What the timeline has from `at` on: code that was added, or the file's; without bytes where neither is known.
RanCode::Known RanCode::known_at(const Part& part, uint64_t at) const {
  const auto next = runs_.upper_bound(at);
  uint64_t end = next == runs_.end() ? part.end : std::min(part.end, next->first);
  if (next != runs_.begin()) {
    const auto& [first, run] = *std::prev(next);
    if (at < run.end) {
      end = std::min(end, run.end);
      if (part.mapped_at <= run.time) return {end, run.bytes.subspan(at - first)};
    }
  }
  const Bytes file = part.file == nullptr ? Bytes() : part.file->code.bytes;
  const uint64_t offset = part.file == nullptr ? 0 : at - part.file->ip.value;
  if (offset >= file.size()) return {end, {}};
  return {std::min(end, at + (file.size() - offset)), file.subspan(offset)};
}

void RanCode::compare(const Part& part, Bytes code) {
  contents_.clear();
  for (uint64_t at = part.first; at < part.end;) {
    const Known known = known_at(part, at);
    for (uint64_t i = 0; at < known.end; ++i, ++at) {
      const bool equal = !known.bytes.empty() && known.bytes[i] == code[at - part.first];
      contents_.push_back(known.bytes.empty() ? Content::unknown : equal ? Content::equal : Content::other);
    }
  }
}

// Returns the end of the run of one content that begins at `first`. A few equal bytes between two changes belong to the change.
size_t RanCode::end_of_run(size_t first) const {
  constexpr size_t kJoinBytes = 16;
  const Content kind = contents_[first];
  size_t end = first + 1;
  for (size_t at = end; at < contents_.size() && at - end <= (kind == Content::other ? kJoinBytes : 0); ++at) {
    if (contents_[at] == kind) {
      end = at + 1;
    } else if (contents_[at] == Content::unknown) {
      break;
    }
  }
  return end;
}

void RanCode::cover(uint64_t first, TimeNs time, Bytes bytes) {
  const uint64_t end = first + bytes.size();
  auto at = runs_.upper_bound(first);
  if (at != runs_.begin() && std::prev(at)->second.end > first) --at;
  while (at != runs_.end() && at->first < end) {
    const uint64_t old_first = at->first;
    const Run old = at->second;
    at = runs_.erase(at);
    if (old_first < first) runs_[old_first] = {first, old.time, old.bytes.first(first - old_first)};
    if (old.end > end) runs_[end] = {old.end, old.time, old.bytes.subspan(end - old_first)};
  }
  runs_[first] = {end, time, bytes};
}

void RanCode::add(Ip ip, const CodeBytes& code, TimeNs time, const std::function<void(Section)>& add) {
  const uint64_t end = ip.value + code.bytes.size();
  for (uint64_t first = ip.value; first < end;) {
    const Part part = part_at(first, end, time);
    const Bytes bytes = code.bytes.subspan(first - ip.value, part.end - first);
    compare(part, bytes);
    for (size_t at = 0, stop = 0; at < contents_.size(); at = stop) {
      stop = end_of_run(at);
      if (contents_[at] == Content::equal) continue;
      Section section;
      section.space = space_;
      section.ip = Ip{first + at};
      section.size_bytes = stop - at;
      section.live = {time, kTimeMax};
      section.code = {code.owner, bytes.subspan(at, stop - at)};
      if (part.file != nullptr) {
        section.path = part.file->path;
        section.build_id = part.file->build_id;
        section.file_offset_bytes = part.file->file_offset_bytes + (section.ip - part.file->ip);
      }
      cover(section.ip.value, time, section.code.bytes);
      add(std::move(section));
    }
    first = part.end;
  }
}

}  // namespace ptd
