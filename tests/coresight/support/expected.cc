// Readers of the peer's files.
#include "tests/coresight/support/expected.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "tests/support/corpus.h"

namespace ptd::test {

namespace fs = std::filesystem;

std::string existing(const std::string& path) {
  if (fs::exists(path)) return path;
  return fs::exists(path + ".gz") ? path + ".gz" : std::string{};
}

std::vector<Capture> captures() {
  std::vector<Capture> list;
  if (corpus_dir().empty()) return list;
  for (const auto& entry : fs::directory_iterator(corpus_dir())) {
    const std::string dir = entry.path().string();
    for (const auto& inner : entry.is_directory() ? fs::directory_iterator(dir) : fs::directory_iterator{}) {
      const std::string folder = inner.path().filename().string();
      if (!fs::exists(inner.path() / "snapshot.ini")) continue;
      std::string suffix;
      if (folder.starts_with("capture")) suffix = "-" + folder;
      if (folder.starts_with("snapshot-")) suffix = folder.substr(8);
      list.push_back(
          {entry.path().filename().string() + (suffix.empty() ? "" : suffix), inner.path().string(), dir + "/expected", suffix, ""});
    }
  }
  std::sort(list.begin(), list.end(), [](const Capture& a, const Capture& b) { return a.name < b.name; });
  return list;
}

std::vector<Capture> upstream_captures() {
  std::vector<Capture> list;
  const char* tests = std::getenv("PTDECODE_OPENCSD_TESTS");
  std::error_code none;
  std::vector<fs::path> snapshots, results;
  for (const auto& entry : fs::directory_iterator(tests != nullptr ? tests : "", none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("snapshots")) snapshots.push_back(entry.path());
    if (name.starts_with("results")) results.push_back(entry.path());
  }
  for (const fs::path& folder : snapshots) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      for (const fs::path& made : results) {
        const std::string listing = (made / name).string();
        if (existing(listing + ".ppl").empty()) continue;
        list.push_back({folder.filename().string() + "-" + name, entry.path().string(), "", "", listing});
        break;
      }
    }
  }
  std::sort(list.begin(), list.end(), [](const Capture& a, const Capture& b) { return a.path < b.path; });
  return list;
}

std::string ranges_of(const Capture& capture) {
  if (!capture.results.empty()) return existing(capture.results + ".ppl");
  return existing(capture.expected_dir + "/ranges" + capture.suffix + ".tsv");
}

std::string session_ranges_of(const Capture& capture) {
  return existing(capture.results.empty() ? capture.expected_dir + "/ranges_multi_sess.tsv" : capture.results + "_multi_sess.ppl");
}

std::string listing_of(const Capture& capture) {
  if (!capture.results.empty()) return existing(capture.results + ".ppl");
  return existing(capture.expected_dir + "/listing" + capture.suffix + ".ppl");
}

void PrintTo(const Capture& capture, std::ostream* out) { *out << capture.name; }

namespace {

// Idx:21; ID:1; OCSD_GEN_TRC_ELEM_INSTR_RANGE(exec range=0xcda88:[0xcda98] num_i(4) last_sz(4) (ISA=A64) E BR   <cond>)
void read_listed_ranges(const std::vector<std::string>& lines, RangesById& ranges) {
  for (const std::string& line : lines) {
    const size_t start = line.find("Idx:"), element = line.find("OCSD_GEN_TRC_ELEM_INSTR_RANGE(");
    uint64_t offset = 0;
    uint32_t id = 0;
    Range range;
    if (start == std::string::npos || element == std::string::npos) continue;
    if (std::sscanf(line.c_str() + start, "Idx:%" SCNu64 "; ID:%" SCNx32, &offset, &id) != 2) continue;
    if (std::sscanf(line.c_str() + element, "OCSD_GEN_TRC_ELEM_INSTR_RANGE(exec range=%" SCNx64 ":[%" SCNx64 "] num_i(%" SCNu64 ")",
                    &range.start, &range.end, &range.instructions) != 3) {
      continue;
    }
    range.executed = line.find(") E ", element) != std::string::npos;
    ranges[id].push_back(range);
  }
}

}  // namespace

bool read_ranges(const std::string& path, RangesById& ranges) {
  const auto lines = read_lines(path);
  if (!lines) return false;
  if (path.find(".ppl") != std::string::npos) {
    read_listed_ranges(*lines, ranges);
    return true;
  }
  for (const std::string& line : *lines) {
    uint32_t id = 0;
    int executed = 0;
    Range range;
    if (line.empty() || line[0] == '#') continue;
    if (std::sscanf(line.c_str(), "%" SCNx32 " %" SCNx64 " %" SCNx64 " %" SCNu64 " %d", &id, &range.start, &range.end, &range.instructions,
                    &executed) != 5) {
      return false;
    }
    range.executed = executed != 0;
    ranges[id].push_back(range);
  }
  return true;
}

RangesById decode_ranges(const Recording& recording, uint32_t first, uint32_t last) {
  RangesById ranges;
  for (uint32_t stream = first; stream < last && stream < recording.streams().size(); ++stream) {
    std::vector<Range>& own = ranges[recording.streams()[stream].trace_id];
    (void)recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
      for (const Block& block : batch.blocks) {
        const BlockInfo& info = decoder.blocks().info(block.node);
        const bool executed = !has(block.flags, BlockFlag::ends_in_branch) || has(block.flags, BlockFlag::taken);
        own.push_back({info.ip.value, info.ip.value + info.size_bytes, info.instructions, executed});
      }
      return true;
    });
  }
  return ranges;
}

std::vector<Range> joined(const std::vector<Range>& ranges) {
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (!result.empty() && !result.back().executed && result.back().end == range.start) {
      result.back().end = range.end;
      result.back().instructions += range.instructions;
      result.back().executed = range.executed;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

std::string difference(const std::vector<Range>& expected, const std::vector<Range>& found) {
  const auto text = [](const std::vector<Range>& list, size_t index) {
    if (index >= list.size()) return std::string("nothing");
    char line[128];
    std::snprintf(line, sizeof line, "[%" PRIx64 ", %" PRIx64 ") %" PRIu64 " %d", list[index].start, list[index].end,
                  list[index].instructions, list[index].executed ? 1 : 0);
    return std::string(line);
  };
  for (size_t i = 0; i < expected.size() || i < found.size(); ++i) {
    if (i < expected.size() && i < found.size() && expected[i] == found[i]) continue;
    std::string what = "range " + std::to_string(i) + " of " + std::to_string(expected.size()) + " (found " + std::to_string(found.size()) +
                       "): expected " + text(expected, i) + ", found " + text(found, i);
    for (size_t k = i > 2 ? i - 2 : 0; k < i; ++k) what += "\n  before: " + text(expected, k);
    for (size_t k = i + 1; k < i + 3; ++k) what += "\n  behind: " + text(expected, k) + " | " + text(found, k);
    return what;
  }
  return {};
}

// Idx:53; ID:0; [0xf7 ];	I_ATOM_F1 : Atom format 1.; E
bool read_listing(const std::string& path, std::map<uint32_t, std::vector<ListedPacket>>& packets) {
  const auto lines = read_lines(path);
  if (!lines) return false;
  for (const std::string& whole : *lines) {
    // A message without an end of line may precede it.
    const size_t start = whole.find("Idx:");
    if (start == std::string::npos) continue;
    const std::string line = whole.substr(start);
    uint64_t offset = 0;
    uint32_t id = 0;
    if (std::sscanf(line.c_str(), "Idx:%" SCNu64 "; ID:%" SCNx32 "; [", &offset, &id) != 2) continue;
    const size_t open = line.find("; ["), close = line.find("];");
    if (open == std::string::npos || close == std::string::npos) continue;
    const size_t name = line.find_first_not_of("\t ", close + 2);
    if (name == std::string::npos) continue;
    ListedPacket packet;
    packet.offset = offset;
    packet.name = line.substr(name, line.find(' ', name) - name);
    packet.text = line.substr(name + packet.name.size());
    for (size_t at = line.find("0x", open); at < close; at = line.find("0x", at + 2)) ++packet.size;
    packets[id].push_back(packet);
  }
  return true;
}

}  // namespace ptd::test
