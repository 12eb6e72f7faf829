// Swapped segments of a synthetic trace, with tracing on or off: an item `missing` comes before the join.
#include <gtest/gtest.h>

#include <algorithm>

#include "decoder/pt/flow/item.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kUser = 0x401000;
constexpr uint8_t kPeriod = 6;  // of MTCs
constexpr uint64_t kTicksOfCtc = 50;

struct Trace {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> psbs;
};

/// Returns segments of user code with an MTC for each 64 ticks of the crystal clock. Tracing is off at each PSB if `off`.
Trace make(bool off) {
  constexpr unsigned kMtcs = 100;
  Trace trace;
  PacketWriter writer(trace.bytes);
  uint64_t edges = 1000;
  for (int segment = 0; segment < 8; ++segment) {
    const uint64_t ctc = (edges << kPeriod) + 3;
    trace.psbs.push_back(trace.bytes.size());
    writer.psb();
    writer.tsc(ctc * kTicksOfCtc);
    writer.tma(static_cast<uint16_t>(ctc), 0);
    writer.mode_exec(ExecMode::bits64);
    if (!off) writer.fup(kUser);
    writer.psbend();
    if (off) writer.tip_pge(kUser);
    for (unsigned mtc = 0; mtc < kMtcs; ++mtc) {
      writer.mtc(static_cast<uint8_t>(++edges));
      writer.tip(kUser + edges % 64);
    }
    if (off) writer.tip_pgd_suppressed();
  }
  return trace;
}

std::vector<std::byte> swapped(const Trace& trace, size_t first) {
  std::vector<std::byte> bytes = trace.bytes;
  const auto at = [&](size_t i) { return bytes.begin() + static_cast<std::ptrdiff_t>(trace.psbs[i]); };
  std::rotate(at(first), at(first + 1), at(first + 2));
  return bytes;
}

std::vector<AuxSegment> cut(Bytes bytes, int32_t cpu) {
  std::vector<AuxSegment> segments;
  for (uint64_t at = 0; at < bytes.size();) {
    const uint64_t next = std::min<uint64_t>(find_psb(bytes, at + 1), bytes.size());
    AuxSegment segment;
    segment.bytes = bytes.subspan(at);
    segment.tail_bytes = bytes.size() - next;
    segment.cpu = cpu;
    segments.push_back(segment);
    at = next;
  }
  return segments;
}

/// Returns the segments at whose end trace is missing.
std::vector<size_t> breaks(Bytes bytes, int32_t cpu) {
  Config config;
  config.mtc_period = kPeriod;
  config.has_mtc = true;
  config.tsc_ctc_ratio_n = kTicksOfCtc;
  config.tsc_ctc_ratio_d = 1;
  std::vector<size_t> found;
  const std::vector<AuxSegment> segments = cut(bytes, cpu);
  for (size_t i = 0; i < segments.size(); ++i) {
    ItemReader reader;
    reader.begin(segments[i], config, 0);
    bool missing = false;
    for (uint64_t index = 0;; ++index) {
      const Item item = reader.at(index);
      EXPECT_NE(item.kind, ItemKind::bad);
      if (item.kind == ItemKind::bad || item.kind == ItemKind::end || item.kind == ItemKind::sync) break;
      missing = item.kind == ItemKind::missing;
    }
    if (missing) found.push_back(i);
  }
  return found;
}

using Places = std::vector<size_t>;

TEST(SegmentOrder, SwappedSegmentsAreNotJoined) {
  for (const bool off : {false, true}) {
    const Trace trace = make(off);
    for (const int32_t cpu : {0, -1}) {  // a cpu's stream, a thread's
      EXPECT_EQ(breaks(trace.bytes, cpu), Places{}) << off << cpu;
      for (size_t first = 1; first < 6; ++first) EXPECT_EQ(breaks(swapped(trace, first), cpu), Places{first}) << off << cpu;
    }
  }
}

TEST(SegmentOrder, AThreadMayMoveToAProcessorWhoseTscIsALittleBehind) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  for (const uint64_t tsc : {1'000'000, 999'000, 1'200'000}) {
    writer.psb();
    writer.tsc(tsc);
    writer.mode_exec(ExecMode::bits64);
    writer.psbend();
    writer.tip_pge(kUser);
    writer.tip_pgd_suppressed();
  }
  EXPECT_EQ(breaks(bytes, -1), Places{});
  EXPECT_EQ(breaks(bytes, 0), Places{0});
}

}  // namespace
}  // namespace ptd::pt
