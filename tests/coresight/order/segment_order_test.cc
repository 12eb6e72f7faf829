// Segments of written traces that are swapped, doubled, reversed, or of a ring that was not unrolled. The undamaged trace says what the
// right order is, what ran, and when.
#include "decoder/arm/packet/segment_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "ptdecode/recording.h"
#include "tests/coresight/support/folder.h"

namespace ptd::test {
namespace {

constexpr size_t kSegments = 8, kStamps = 20;
using Trace = std::vector<std::byte>;

/// Segments of a loop. Each begins with an A-Sync; its first timestamp comes before the address or after it.
struct Segments {
  std::vector<Trace> each;
  std::vector<size_t> stamps;  ///< offsets of the timestamps in the whole trace

  [[nodiscard]] Trace joined(const std::vector<size_t>& order) const {
    Trace all;
    for (const size_t i : order) all.insert(all.end(), each[i].begin(), each[i].end());
    return all;
  }
};

std::vector<size_t> in_order() {
  std::vector<size_t> order(kSegments);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

struct Unit {
  bool whole = true;        ///< writes all bytes of a timestamp, not only those that changed
  bool early = false;       ///< the first timestamp of a segment comes before its address
  size_t stamps = kStamps;  ///< in a segment
  std::function<uint64_t(size_t segment)> offset = [](size_t) { return 0; };  ///< of its clock
};

Segments write(unsigned seed, const Unit& unit) {
  std::mt19937_64 random(seed);
  Segments out;
  uint64_t time = 0x1eac760689e6, last = 0, size = 0;
  for (size_t segment = 0; segment < kSegments; ++segment) {
    Trace& bytes = out.each.emplace_back();
    const auto put = [&](std::initializer_list<unsigned> values) {
      for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
    };
    const auto stamp = [&](bool whole) {
      time += 1 + random() % (random() % 10 == 0 ? 300'000 : 3000);
      const uint64_t value = time + unit.offset(segment);
      unsigned count = 1;
      while (count < 9 && (whole || (value ^ last) >> (7 * count) != 0)) ++count;
      out.stamps.push_back(size + bytes.size());
      put({0x02});
      for (unsigned i = 0; i < count; ++i) {
        const uint64_t part = value >> (7 * i);
        put({static_cast<unsigned>(i == 8 ? part & 0xff : (part & 0x7f) | (i + 1 < count ? 0x80U : 0U))});
      }
      last = value;
    };
    put({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00});
    if (segment == 0) put({0x04});
    if (unit.early) stamp(true);
    put({0x82, 0x00, 0x08, 0x00, 0x00, 0x31});  // 1000, EL1
    if (!unit.early) stamp(true);
    for (size_t i = 1; i < unit.stamps; ++i) {
      for (size_t atoms = 1 + random() % 5; atoms != 0; --atoms) put({0xf7});
      stamp(unit.whole);
    }
    put({0xf7});
    size += bytes.size();
  }
  return out;
}

arm::TraceConfig config() {
  arm::TraceConfig config;
  config.protocol = arm::Protocol::etmv4;
  config.configr = 0x800;
  return config;
}

/// Puts the pieces of a trace in order.
Trace restored(const Trace& trace, arm::SegmentOrder& order) {
  order = arm::order_of_segments(trace, config());
  if (order.pieces.empty()) return trace;
  Trace out;
  for (const arm::TracePiece& piece : order.pieces)
    out.insert(out.end(), trace.begin() + static_cast<std::ptrdiff_t>(piece.first),
               trace.begin() + static_cast<std::ptrdiff_t>(piece.last));
  return out;
}

struct Damage {
  std::string what;
  std::vector<size_t> order;  ///< of segments
};

std::vector<Damage> damages() {
  std::vector<Damage> all;
  const auto add = [&](const std::string& what) -> std::vector<size_t>& {
    all.push_back({what, in_order()});
    return all.back().order;
  };
  for (size_t i = 0; i + 1 < kSegments; ++i) {
    auto& swap = add("swap " + std::to_string(i));
    std::swap(swap[i], swap[i + 1]);
    auto& rotation = add("rotation " + std::to_string(i + 1));
    std::rotate(rotation.begin(), rotation.begin() + static_cast<std::ptrdiff_t>(i + 1), rotation.end());
  }
  for (size_t i = 0; i < kSegments; ++i) {
    auto& twice = add("doubled " + std::to_string(i));
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), i);
  }
  auto& back = add("reversed");
  std::ranges::reverse(back);
  auto& again = add("all twice");
  again.insert(again.end(), again.begin(), again.begin() + kSegments);
  return all;
}

bool is_rotation(const Damage& damage) { return damage.what.starts_with("rotation"); }

TEST(ArmSegmentOrder, IsThatOfTheTimestamps) {
  for (unsigned seed = 1; seed < 6; ++seed) {
    for (const bool early : {false, true}) {
      const Segments segments = write(seed, {.early = early});
      const Trace whole = segments.joined(in_order());
      arm::SegmentOrder order;
      EXPECT_EQ(restored(whole, order), whole);
      EXPECT_EQ(order.places, 0U);
      for (const Damage& damage : damages()) {
        const Trace damaged = segments.joined(damage.order);
        EXPECT_EQ(restored(damaged, order), is_rotation(damage) ? damaged : whole) << damage.what;
        EXPECT_NE(order.places, 0U) << damage.what;
        EXPECT_EQ(order.copies, damage.order.size() - kSegments) << damage.what;
      }
    }
  }
}

// A byte that is wrong in the first timestamp is in the others of its segment, too, if these have the bytes that changed: a segment may be
// taken for one with such a byte. No order is a wrong one.
TEST(ArmSegmentOrder, OfTimestampsWithTheBytesThatChanged) {
  size_t right = 0, all = 0;
  for (unsigned seed = 1; seed < 6; ++seed) {
    const Segments segments = write(seed, {.whole = false});
    const Trace whole = segments.joined(in_order());
    for (const Damage& damage : damages()) {
      const Trace damaged = segments.joined(damage.order);
      arm::SegmentOrder order;
      const Trace found = restored(damaged, order);
      EXPECT_TRUE(found == whole || found == damaged) << damage.what;
      right += found == whole ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(2 * right, all) << right << " of " << all;
}

// A ring begins and ends anywhere. A clock that is set back looks the same, so no byte moves.
TEST(ArmSegmentOrder, OfARingThatWasNotUnrolled) {
  const Segments segments = write(7, {});
  const Trace whole = segments.joined(in_order());
  for (size_t at = 1; at < whole.size(); ++at) {
    Trace ring = whole;
    std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(at), ring.end());
    const arm::SegmentOrder order = arm::order_of_segments(ring, config());
    EXPECT_TRUE(order.pieces.empty()) << at;
    if (order.places == 0) {  // one part has no timestamp after its first A-Sync, or only one that may be wrong
      EXPECT_TRUE(at <= segments.stamps[1] + 9 || at > whole.size() - segments.each.back().size()) << at;
    } else {
      EXPECT_EQ(order.places, 1U) << at;
    }
  }
}

// Legal clocks: a guest's with an offset, which runs in some segments; one that starts again; and a trace unit without a timestamp.
TEST(ArmSegmentOrder, OfOtherClocksIsKept) {
  for (const size_t stamps : {size_t{1}, kStamps}) {
    for (const uint64_t offset : {uint64_t{0x5123456789}, ~uint64_t{0x5123456789} + 1, uint64_t{987'654'321}, ~uint64_t{987'654'321} + 1}) {
      const bool is_far = (offset ^ (offset >> 63 != 0 ? ~uint64_t{0} : 0)) >> 32 != 0;
      for (const size_t period : {1U, 2U, 3U}) {
        if (!is_far && stamps != 1) continue;  // such a guest would begin and end to run at A-Syncs only
        Unit unit;
        unit.stamps = stamps;
        unit.offset = [&](size_t segment) { return segment / period % 2 == 0 ? 0 : offset; };
        arm::SegmentOrder order;
        (void)restored(write(3, unit).joined(in_order()), order);
        EXPECT_EQ(order.places, 0U) << std::hex << offset << ", every " << period;
      }
    }
    Unit restart;
    restart.stamps = stamps;
    restart.offset = [](size_t segment) { return segment < 4 ? 0 : ~uint64_t{0x1eac70000000} + 1; };
    arm::SegmentOrder order;
    (void)restored(write(3, restart).joined(in_order()), order);
    EXPECT_EQ(order.places, 0U);
    Unit near;  // soon after it began to count
    near.stamps = stamps;
    near.offset = [](size_t segment) { return segment < 4 ? 0 : ~uint64_t{0x40000000} + 1; };
    EXPECT_TRUE(arm::order_of_segments(write(3, near).joined(in_order()), config()).pieces.empty());
  }
  Trace zeros;
  for (const Trace& segment : write(1, {}).each) {
    zeros.insert(zeros.end(), segment.begin(), segment.begin() + 15);
    for (const unsigned byte : {0x02U, 0x00U, 0xf7U, 0x02U, 0x00U}) zeros.push_back(static_cast<std::byte>(byte));
  }
  EXPECT_TRUE(arm::order_of_segments(zeros, config()).pieces.empty());
}

// Any bit of any first timestamp that is wrong.
TEST(ArmSegmentOrder, OfAWrongByteIsKept) {
  for (const bool whole : {false, true}) {
    const Segments segments = write(1, {.whole = whole});
    const Trace trace = segments.joined(in_order());
    for (size_t segment = 0; segment < kSegments; ++segment) {
      for (unsigned bit = 0; bit < 63; ++bit) {
        Trace damaged = trace;
        damaged[segments.stamps[segment * kStamps] + 1 + bit / 7] ^= std::byte{1} << (bit % 7);
        arm::SegmentOrder order;
        (void)restored(damaged, order);
        EXPECT_EQ(order.places, 0U) << whole << ", segment " << segment << ", bit " << bit;
      }
    }
  }
}

/// What a reader of a snapshot gets.
struct Read {
  std::vector<std::pair<uint64_t, uint64_t>> times;  ///< of each block
  uint64_t lost = 0;                                 ///< gaps of lost trace
  std::vector<std::string> order;                    ///< findings about it
};

Read read(const Trace& trace) {
  const Folder folder;
  folder.text("snapshot.ini", "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\n[trace]\nmetadata=trace.ini\n");
  folder.text(
      "trace.ini",
      "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB\nfile=trace.bin\nformat=source_data\n[core_trace_sources]\ncpu_0=ETM_0\n"
      "[source_buffers]\nETM_0=ETB\n");
  folder.text("etm.ini",
              "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x801\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\n"
              "TRCIDR1=0x4100f403\nTRCIDR2=0x488\nTRCIDR8=0\n");
  folder.text("cpu.ini", "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A53\n[dump1]\nfile=code.bin\naddress=0x1000\nlength=4\n");
  folder.words("code.bin", {0x14000000});  // b .
  folder.text("trace.bin", {reinterpret_cast<const char*>(trace.data()), trace.size()});
  Read out;
  OpenOptions options;
  options.path = folder.path();
  options.clock_hz = 1'000'000'000;
  const auto recording = Recording::open(options);
  EXPECT_TRUE(recording.ok());
  if (!recording.ok()) return out;
  std::pair<uint64_t, uint64_t> time;
  (void)(*recording)->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
    auto mark = batch.marks.begin();
    for (size_t i = 0; i < batch.blocks.size(); ++i) {
      for (; mark != batch.marks.end() && mark->before_block <= i; ++mark) time = {mark->time.first.value, mark->time.last.value};
      out.times.push_back(time);
    }
    out.lost += static_cast<uint64_t>(std::ranges::count(batch.gaps, GapReason::aux_lost, &Gap::reason));
    return true;
  });
  for (const Finding& finding : (*recording)->findings()) {
    if (finding.kind == FindingKind::clock_contradicts) out.order.push_back(finding.what);
  }
  return out;
}

TEST(ArmSegmentOrder, OfASnapshot) {
  const Segments segments = write(2, {.early = true});
  const Read want = read(segments.joined(in_order()));
  EXPECT_GT(want.times.size(), kSegments * kStamps);
  EXPECT_TRUE(std::ranges::is_sorted(want.times));
  EXPECT_EQ(want.lost, 0U);
  EXPECT_TRUE(want.order.empty());
  for (const Damage& damage : damages()) {
    const Read found = read(segments.joined(damage.order));
    if (is_rotation(damage)) {
      EXPECT_EQ(found.lost, 0U) << damage.what;
      const auto is_told = [](const std::string& what) {
        return what.find("the clock was set back, or the trace is of a ring") != std::string::npos;
      };
      EXPECT_EQ(std::ranges::count_if(found.order, is_told), 1) << damage.what;
      continue;
    }
    EXPECT_EQ(found.times, want.times) << damage.what;
    EXPECT_EQ(found.lost, arm::order_of_segments(segments.joined(damage.order), config()).pieces.size() - 1) << damage.what;
    ASSERT_EQ(found.order.size(), 1U) << damage.what;
    EXPECT_NE(found.order[0].find("timestamps go back or repeat"), std::string::npos);
  }
}

}  // namespace
}  // namespace ptd::test
