// Cuts and mutates CoreSight captures: the files of snapshot directories, cs_etm recordings.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "ptdecode/recording.h"
#include "recording/coresight/snapshot_ini.h"
#include "tests/differential/program.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/digest.h"
#include "tests/hostile/each_damage.h"
#include "tests/hostile/guard.h"
#include "tests/hostile/temp_dir.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kMaxArmSegments = 48;
constexpr uint64_t kFrameBytes = 16;
constexpr uint64_t kAuxtraceType = 71, kRecordHeaderBytes = 104;

/// A segment of the trace, by the end of its bytes in the buffer that it shares with others.
struct Placed {
  uint64_t buffer_end = 0, flow = 0, instructions = 0;
};
using PlacedStreams = std::vector<std::vector<Placed>>;

PlacedStreams open(const std::string& path, const std::string& what, std::vector<std::string>& findings) {
  OpenOptions options;
  options.path = path;
  options.symfs = {"/nonexistent"};
  options.debug_dirs.clear();
  const auto recording = Recording::open(options);
  PlacedStreams streams;
  if (!recording.ok()) {
    if (recording.error().message.size() < 10) findings.push_back(what + ": refused without a sentence");
    return streams;
  }
  const std::vector<StreamDigest> digests = digest(**recording, kMaxArmSegments, what, findings);
  for (uint32_t stream = 0; stream < digests.size(); ++stream) {
    streams.emplace_back();
    for (const SegmentDigest& segment : digests[stream].segments) {
      // Whether a sync point without flow begins a segment depends on the bytes after it.
      if (segment.instructions == 0) continue;
      const uint64_t end = segment.tail_end == 0 ? 0 : (*recording)->buffer_offset(stream, segment.tail_end - 1) + 1;
      streams.back().push_back({end, segment.flow, segment.instructions});
    }
  }
  return streams;
}

/// Segments whose bytes, and the frames of these bytes, are before the damage are unchanged. The last one may be read up to the damage:
/// only those that are followed by another are checked.
void expect_same_before(const PlacedStreams& base, const PlacedStreams& got, uint64_t damage_at, const std::string& what,
                        std::vector<std::string>& findings) {
  for (size_t stream = 0; stream < base.size(); ++stream) {
    for (size_t i = 0; i + 1 < base[stream].size(); ++i) {
      const Placed& want = base[stream][i];
      if (base[stream][i + 1].buffer_end + kFrameBytes > damage_at) break;
      const bool there = stream < got.size() && i < got[stream].size();
      if (there && got[stream][i].flow == want.flow && got[stream][i].instructions == want.instructions) continue;
      findings.push_back(what + ": segment " + std::to_string(i) + " of stream " + std::to_string(stream) +
                         ", which stands before the damage, " + (there ? "differs" : "is gone"));
      return;
    }
  }
}

/// Returns the buffer's file if the snapshot has one buffer in one file, else "".
std::string only_buffer(const std::vector<std::byte>& trace_ini) {
  const IniFile ini = parse_ini({reinterpret_cast<const char*>(trace_ini.data()), trace_ini.size()});
  std::string file;
  for (const IniSection& section : ini.sections) {
    const std::string_view own = section.value("file");
    if (own.empty()) continue;
    if (!file.empty() || own.find_first_of(",;") != std::string_view::npos) return {};
    file = own;
  }
  return file;
}

/// Returns the offset of the only AUXTRACE record's bytes; 0 if there is none, or several.
uint64_t only_payload(const std::vector<std::byte>& file) {
  const uint64_t begin = number_at(file, 40), end = begin + number_at(file, 48);
  uint64_t found = 0;
  for (uint64_t at = begin; at + 8 <= end && file.size() >= kRecordHeaderBytes;) {
    const uint64_t head = number_at(file, at), size = head >> 48;
    if (size < 8) break;
    if ((head & 0xffffffff) == kAuxtraceType) {
      if (found != 0) return 0;
      found = at + size;
      at += number_at(file, at + 8);
    }
    at += size;
  }
  return found;
}

}  // namespace

void check_damaged_snapshot(const std::string& dir, const DamagePlan& plan, std::vector<std::string>& findings) {
  TempDir copy;
  std::map<std::string, std::vector<std::byte>> members;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    auto bytes = read_file(entry.path().string());
    if (!bytes) continue;
    copy.write(entry.path().filename().string(), *bytes);
    members.emplace(entry.path().filename().string(), std::move(*bytes));
  }
  const PlacedStreams base = open(copy.path(), dir, findings);
  if (base.empty()) findings.push_back(dir + ": the undamaged snapshot does not open");
  const std::string buffer = only_buffer(members["trace.ini"]);
  for (const auto& member : members) {
    const std::string& name = member.first;
    each_damage(dir + "/" + name, member.second, plan,
                [&](const std::string& what, const std::vector<std::byte>& damaged, DamagedRange range) {
                  CaseGuard guard(what);
                  copy.write(name, damaged);
                  const PlacedStreams got = open(copy.path(), what, findings);
                  guard.end(findings);
                  if (name == buffer) expect_same_before(base, got, range.first, what, findings);
                });
    copy.write(name, member.second);
  }
}

void check_damaged_etm_perf(const std::string& name, const std::vector<std::byte>& file, const DamagePlan& plan,
                            std::vector<std::string>& findings) {
  TempDir copy;
  copy.write("data", file);
  const PlacedStreams base = open(copy / "data", name, findings);
  if (base.empty()) findings.push_back(name + ": the undamaged recording holds no trace");
  const uint64_t payload = only_payload(file);
  each_damage(name, file, plan, [&](const std::string& what, const std::vector<std::byte>& damaged, DamagedRange range) {
    CaseGuard guard(what);
    copy.write("data", damaged);
    const PlacedStreams got = open(copy / "data", what, findings);
    guard.end(findings);
    // A cut removes the sideband after it, which decides how the trace is read.
    if (payload != 0 && range.first > payload && damaged.size() == file.size())
      expect_same_before(base, got, range.first - payload, what, findings);
  });
}

}  // namespace ptd::test
