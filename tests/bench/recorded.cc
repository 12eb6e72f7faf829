// Streams of a recording: their trace in one piece, and the code that they executed in libipt's format.
#include "tests/bench/recorded.h"

#include <array>
#include <fstream>
#include <map>
#include <set>

#include "ptdecode/code_view.h"
#include "recording/data/open_request.h"

namespace ptd::bench {
namespace {

constexpr uint64_t kFilledHole = 1U << 16;  // a hole up to this size is filled, so that libipt has few sections to search
constexpr char kFilling = '\xcc';

/// The executed blocks of a section.
struct Met {
  TimeNs when;  ///< of the first execution
  std::set<uint64_t> blocks;
};

/// Sections by space, with the number of executed blocks in each space.
struct Ran {
  std::map<uint32_t, std::map<SectionId, Met>> sections;
  std::map<uint32_t, uint64_t> blocks;
};

Ran what_ran(const RecordedStream& stream) {
  Ran ran;
  const Timeline& timeline = stream.recording->timeline();
  pt::Decoder decoder(timeline, stream.recording->contexts(), stream.recording->decoder_options());
  Batch batch;
  std::vector<uint64_t> times;  // at which a node was executed
  TimeNs now;
  for (const AuxSegment& segment : stream.segments) {
    decoder.begin(segment);
    for (bool more = true; more;) {
      more = decoder.next(batch);
      size_t mark = 0;
      for (size_t i = 0; i < batch.blocks.size(); ++i) {
        while (mark < batch.marks.size() && batch.marks[mark].before_block <= i) now = batch.marks[mark++].time.first;
        const NodeId node = batch.blocks[i].node;
        if (node >= times.size()) times.resize(decoder.blocks().size());
        if (times[node]++ != 0) continue;
        const BlockInfo& info = decoder.blocks().info(node);
        const SectionId section = timeline.section_at(info.space, info.ip, now);
        if (section == kNoSection) continue;
        Met& met = ran.sections[info.space.value].try_emplace(section, Met{now, {}}).first->second;
        met.blocks.insert(info.ip.value);
      }
    }
  }
  for (NodeId node = 0; node < times.size(); ++node) ran.blocks[decoder.blocks().info(node).space.value] += times[node];
  return ran;
}

/// Appends the section's content in the timeline at the time `met.when`, from the first executed block to the end of the last.
void write_section(const RecordedStream& stream, SpaceId space, SectionId id, const Met& met, std::ofstream& file, const std::string& path,
                   std::vector<oracle::PeerSection>& out) {
  const Section& section = stream.recording->timeline().section(id);
  const uint64_t section_end = section.ip.value + section.size_bytes;
  CodeView view(stream.recording->timeline());
  std::array<CodeCandidate, 8> contents;
  uint64_t end = 0;  // of the last range written
  for (uint64_t at = *met.blocks.begin(); at < section_end;) {
    const FetchResult found = view.fetch(space, Ip{at}, {met.when, met.when}, {}, contents);
    if (found.status != FetchStatus::ok || found.count == 0) {
      const auto next = met.blocks.upper_bound(at);
      if (next == met.blocks.end()) return;
      at = *next;
      continue;
    }
    const Bytes bytes = contents[0].bytes.first(std::min<size_t>(contents[0].bytes.size(), section_end - at));
    if (end == 0 || at - end > kFilledHole) {
      out.push_back({path, static_cast<uint64_t>(file.tellp()), 0, at});
    } else {
      file << std::string(at - end, kFilling);
    }
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    at = end = at + bytes.size();
    out.back().size_bytes = end - out.back().address;
  }
}

}  // namespace

std::vector<RecordedStream> load_recording(const std::string& path, const std::string& symfs, std::string& why, DroppedPokes dropped) {
  OpenRequest options;
  options.drop_nth_poke = dropped.nth;
  options.drop_poke_seed = dropped.seed;
  options.path = path;
  if (!symfs.empty()) options.symfs = {symfs};
  auto opened = open_recording(options);
  if (!opened.ok()) {
    why = opened.error().message;
    return {};
  }
  const std::shared_ptr<const Recording> recording = std::move(opened.value());
  if (recording->arm_config(0) != nullptr) {
    why = "a CoreSight recording; bench decodes Intel PT only";
    return {};
  }
  std::vector<RecordedStream> streams;
  for (uint32_t s = 0; s < recording->streams().size(); ++s) {
    RecordedStream stream;
    stream.recording = recording;
    std::vector<std::byte> scratch;
    AuxSegment found;
    for (uint64_t at = 0; recording->next_segment(s, at, found, scratch);) {
      const Bytes own = found.bytes.first(found.bytes.size() - found.tail_bytes);
      stream.trace.insert(stream.trace.end(), own.begin(), own.end());
      stream.segments.push_back(found);
    }
    uint64_t at = 0;
    for (AuxSegment& segment : stream.segments) {
      const uint64_t own = segment.bytes.size() - segment.tail_bytes;
      const uint64_t tail = std::min<uint64_t>(segment.tail_bytes, stream.trace.size() - at - own);
      segment.bytes = Bytes(stream.trace).subspan(at, own + tail);
      segment.tail_bytes = tail;
      at += own;
    }
    if (!stream.trace.empty()) streams.push_back(std::move(stream));
  }
  if (streams.empty()) why = "no trace";
  return streams;
}

std::vector<oracle::PeerSection> image_of(const RecordedStream& stream, const std::string& path) {
  const Ran ran = what_ran(stream);
  uint32_t user = kNoSpace.value;
  for (const auto& [space, blocks] : ran.blocks) {
    if (space == kKernelSpace.value) continue;
    if (user == kNoSpace.value || blocks > ran.blocks.at(user)) user = space;
  }
  std::ofstream file(path, std::ios::binary);
  std::vector<oracle::PeerSection> out;
  for (const auto& [space, sections] : ran.sections) {
    if (space != kKernelSpace.value && space != user) continue;
    for (const auto& [id, met] : sections) write_section(stream, SpaceId{space}, id, met, file, path, out);
  }
  return out;
}

}  // namespace ptd::bench
