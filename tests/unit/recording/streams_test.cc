// Streams and segments: payloads joined, seams kept, PSBs found wherever payloads are split.
#include "recording/trace/streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>

#include "ptdecode/pt/packet_writer.h"
#include "recording/trace/lost_trace.h"
#include "recording/trace/segments.h"

namespace ptd {
namespace {

// Returns a trace of `count` PSB+ groups with TSCs 1000, 2000, ... and some flow between them; `starts` gets the offsets of the PSBs.
std::vector<std::byte> make_trace(int count, std::vector<uint64_t>& starts) {
  std::vector<std::byte> out;
  pt::PacketWriter writer(out);
  std::mt19937 random(11);
  for (int i = 0; i < count; ++i) {
    starts.push_back(out.size());
    writer.psb();
    writer.tsc(static_cast<uint64_t>(i + 1) * 1000);
    writer.cbr(10);
    writer.mode_exec(ExecMode::bits64);
    writer.fup(0x401000);
    writer.psbend();
    const uint64_t packets = 5 + random() % 40;
    for (uint64_t k = 0; k < packets; ++k) writer.tnt(random() % 64, 6);
    writer.tip(0x401000 + random() % 4096);
  }
  return out;
}

const SegmentTiming kTicks{TimeConversion{}, 0, true};

/// A stream with its index, by number of segment.
struct Indexed {
  AuxStream stream;
  std::optional<SegmentIndex> index;
  std::vector<PsbEntry> entries;

  [[nodiscard]] AuxSegment segment(size_t i, std::vector<std::byte>& scratch) const { return index->segment(entries[i], kTicks, scratch); }
};

void build(Indexed& indexed) {
  indexed.stream.finish();
  indexed.index.emplace(indexed.stream);
  for (auto entry = indexed.index->next(0); entry; entry = indexed.index->next(entry->offset_bytes + 1)) indexed.entries.push_back(*entry);
}

std::vector<std::byte> copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Streams, ContiguousPayloadsJoin) {
  const std::vector<std::byte> bytes(64);
  AuxStream stream;
  stream.add_payload(100, 32, Bytes(bytes).first(32), false);
  stream.add_payload(132, 32, Bytes(bytes).subspan(32), false);
  stream.finish();
  ASSERT_EQ(stream.seams().size(), 1U);
  EXPECT_EQ(stream.seams()[0].why, AuxBreak::stream_start);
  EXPECT_EQ(stream.size_bytes(), 64U);
  std::vector<std::byte> scratch;
  EXPECT_EQ(stream.read(120, 140, scratch).size(), 20U);
}

TEST(Streams, TheRecordersPaddingGoes) {
  std::vector<std::byte> first(32, std::byte{1}), second(16, std::byte{2});
  AuxStream stream;
  stream.add_payload(0, 32, first, false);  // 27 bytes of trace and 5 of padding
  stream.add_payload(27, 16, second, false);
  stream.finish();
  EXPECT_EQ(stream.seams().size(), 1U);
  EXPECT_EQ(stream.size_bytes(), 43U);
  std::vector<std::byte> scratch;
  const Bytes joined = stream.read(26, 28, scratch);
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[1], std::byte{2});
}

TEST(Streams, ShortAndAbsentPayloadsLeaveASeam) {
  const std::vector<std::byte> bytes(64);
  AuxStream stream;
  stream.add_payload(0, 64, Bytes(bytes).first(10), false);
  stream.add_payload(64, 64, {}, false);
  stream.add_payload(128, 64, bytes, false);
  stream.finish();
  std::vector<std::byte> scratch;
  EXPECT_EQ(stream.read(0, 200, scratch).size(), 10U);
  const Seam* seam = stream.seam_after(0);
  ASSERT_NE(seam, nullptr);
  EXPECT_EQ(seam->why, AuxBreak::missing);
  EXPECT_EQ(stream.size_bytes(), 74U);
}

TEST(Streams, AMissingBeginningIsASeam) {
  const std::vector<std::byte> bytes(64);
  struct Case {
    const char* what;
    uint64_t record_from;   // of an AUX record, or none
    uint64_t payload_from;  // of a payload without bytes, or none
    AuxBreak want;
  };
  constexpr uint64_t kNone = ~uint64_t{0};
  for (const Case& each :
       {Case{"no record", kNone, kNone, AuxBreak::stream_start}, Case{"a record of the first byte", 128, kNone, AuxBreak::stream_start},
        Case{"a later record", 160, kNone, AuxBreak::stream_start},
        Case{"a record of a payload that is absent", 0, kNone, AuxBreak::missing},
        Case{"a record that begins one byte earlier", 127, kNone, AuxBreak::missing},
        Case{"an empty payload", kNone, 64, AuxBreak::missing}}) {
    AuxStream stream;
    if (each.record_from != kNone) stream.add_stored_from(each.record_from);
    if (each.payload_from != kNone) stream.add_payload(each.payload_from, 64, {}, false);
    stream.add_payload(128, 64, bytes, false);
    stream.finish();
    ASSERT_EQ(stream.seams().size(), 1U) << each.what;
    EXPECT_EQ(stream.seams()[0].offset_bytes, 128U) << each.what;
    EXPECT_EQ(stream.seams()[0].why, each.want) << each.what;
    EXPECT_EQ(lost_trace_findings(stream, false).size(), each.want == AuxBreak::missing ? 1U : 0U) << each.what;
  }
}

TEST(Streams, TraceThatIsLostAtTheBeginningIsASeam) {
  const std::vector<std::byte> bytes(64);
  for (const uint64_t begin : {uint64_t{0}, uint64_t{128}}) {
    for (const AuxBreak why : {AuxBreak::truncated, AuxBreak::partial, AuxBreak::collision}) {
      AuxStream stream;
      stream.add_payload(begin, 64, bytes, false);
      stream.add_loss({begin, why});
      stream.finish();
      ASSERT_EQ(stream.seams().size(), 1U);
      EXPECT_EQ(stream.seams()[0].offset_bytes, begin);
      EXPECT_EQ(stream.seams()[0].why, why);
      EXPECT_EQ(lost_trace_findings(stream, false).size(), 1U);
    }
  }
}

TEST(Streams, HostileOffsetsNeitherWrapNorJoin) {
  const std::vector<std::byte> bytes(16);
  AuxStream stream;
  for (const uint64_t offset : {uint64_t{0}, ~uint64_t{0} - 3, uint64_t{5}, ~uint64_t{0} / 2, uint64_t{0}})
    stream.add_payload(offset, 16, bytes, false);
  stream.finish();
  uint64_t end = 0;
  for (const AuxChunk& chunk : stream.chunks()) {
    EXPECT_GE(chunk.offset_bytes, end);
    EXPECT_GE(chunk.end(), chunk.offset_bytes);
    end = chunk.end();
  }
}

TEST(Streams, OverlappingSnapshotsAreTrimmedByContent) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(10, starts);
  const Bytes all(trace);
  // Two snapshots of one ring: the second begins before the first one's end, at an arbitrary byte.
  const uint64_t first_end = starts[6] + 40, second_begin = starts[3] + 7;
  AuxStream joined;
  joined.add_payload(0, first_end, all.first(first_end), true);
  joined.add_payload(0, trace.size() - second_begin, all.subspan(second_begin), true);
  joined.finish();
  std::vector<std::byte> scratch;
  EXPECT_EQ(copy_of(joined.read(0, ~uint64_t{0} / 2, scratch)), trace);
  EXPECT_EQ(joined.seams().size(), 1U);
  // Snapshots apart in time do not join.
  AuxStream apart;
  apart.add_payload(0, starts[3], all.first(starts[3]), true);
  apart.add_payload(0, trace.size() - starts[5], all.subspan(starts[5]), true);
  apart.finish();
  ASSERT_EQ(apart.seams().size(), 2U);
  EXPECT_EQ(apart.seams()[1].why, AuxBreak::snapshot);
  EXPECT_EQ(apart.size_bytes(), starts[3] + trace.size() - starts[5]);
}

AuxSample sample_at(uint64_t time) {
  AuxSample sample;
  sample.time = TimeNs{time};
  return sample;
}

TEST(Streams, WindowsThatRepeatMostOfTheOneBeforeAreStoredOnce) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(20, starts);
  const Bytes all(trace);
  AuxStream stream;
  std::vector<uint64_t> ends;
  const uint64_t size = starts[8];  // each window advances by one PSB and some bytes: it repeats all but that
  for (size_t i = 8; i < 20; ++i) {
    ends.push_back(starts[i] + 5);
    stream.add_sample(sample_at(i * 1'000'000'000), all.subspan(ends.back() - size, size));
    stream.add_sample(sample_at(i * 1'000'000'000 + 1), all.subspan(ends.back() - size, size));  // nothing was traced since
  }
  stream.finish();
  const uint64_t first = ends.front() - size;
  EXPECT_EQ(stream.size_bytes(), ends.back() - first);
  EXPECT_EQ(stream.seams().size(), 1U);
  std::vector<std::byte> scratch;
  EXPECT_EQ(copy_of(stream.read(0, ~uint64_t{0} / 2, scratch)), copy_of(all.subspan(first, ends.back() - first)));
  ASSERT_EQ(stream.samples().size(), 24U);
  for (size_t i = 0; i < stream.samples().size(); ++i) {
    EXPECT_EQ(stream.samples()[i].last_bytes, ends[i / 2] - first) << i;
    EXPECT_EQ(stream.samples()[i].first_bytes, ends[i / 2] - first - size) << i;
  }
}

TEST(Streams, AWindowEndsWithItsSample) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(6, starts);
  const Bytes all(trace);
  Indexed one;
  one.stream.add_sample(sample_at(2'600'000'000), all.first(starts[2]));
  one.stream.add_sample(sample_at(9'000'000'000), all.subspan(starts[4]));
  build(one);
  ASSERT_EQ(one.entries.size(), 4U);
  ASSERT_EQ(one.stream.seams().size(), 2U);
  EXPECT_EQ(one.stream.seams()[1].why, AuxBreak::snapshot);
  TimeConversion ticks;
  ticks.time_mult = 1'000'000;  // ns a tick
  const SegmentTiming timing{ticks, 0, true};
  std::vector<std::byte> scratch;
  const AuxSegment inside = one.index->segment(one.entries[0], timing, scratch);
  EXPECT_EQ(inside.lost_after, AuxBreak::none);
  EXPECT_FALSE(inside.break_after);
  const AuxSegment last = one.index->segment(one.entries[1], timing, scratch);
  EXPECT_EQ(last.lost_after, AuxBreak::snapshot);
  EXPECT_TRUE(last.break_after);
  EXPECT_EQ(last.time.first.value, 2'000'000'000U);
  EXPECT_EQ(last.time.last.value, 2'601'000'000U);  // the next PSB is of another window
  const AuxSegment next = one.index->segment(one.entries[2], timing, scratch);
  EXPECT_EQ(next.break_before, AuxBreak::snapshot);
  EXPECT_EQ(one.index->segment(one.entries[3], timing, scratch).time.last.value, 9'001'000'000U);
}

TEST(Streams, AHostileTimeOfASampleBoundsNothing) {
  const std::vector<std::byte> bytes(64);
  AuxStream stream;
  stream.add_sample(sample_at(kTimeMax.value - 5), bytes);
  stream.add_written(64, TimeNs{7});  // an AUX record, whose offsets mean nothing here
  stream.finish();
  EXPECT_EQ(stream.written_by(64), kTimeMax);
  EXPECT_EQ(stream.written_from(0), kTimeMin);
}

TEST(Segments, FromPsbToPsbWithTheNextPsbPlus) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(4, starts);
  Indexed one;
  one.stream.add_payload(0, trace.size(), trace, false);
  build(one);
  ASSERT_EQ(one.entries.size(), 4U);
  std::vector<std::byte> scratch;
  const AuxSegment first = one.segment(0, scratch);
  EXPECT_EQ(first.break_before, AuxBreak::stream_start);
  EXPECT_FALSE(first.break_after);
  EXPECT_EQ(first.bytes.size() - first.tail_bytes, starts[1]);
  // PSB 16, TSC 8, CBR 4, MODE 2, FUP 7 or less, PSBEND 2 bytes ([SDM] packet sizes).
  EXPECT_GE(first.tail_bytes, 16U + 8 + 4 + 2 + 3 + 2);
  EXPECT_EQ(first.bytes.back(), std::byte{0x23});  // PSBEND is 02 23
  EXPECT_EQ(first.time.first.value, 1000U);
  EXPECT_EQ(first.time.last.value, 2000U);
  const AuxSegment last = one.segment(3, scratch);
  EXPECT_TRUE(last.break_after);
  EXPECT_EQ(last.tail_bytes, 0U);
  EXPECT_EQ(last.time.last, kTimeMax);
  EXPECT_EQ(last.stream_offset_bytes + last.bytes.size(), trace.size());
  EXPECT_EQ(one.entries[0].offset_bytes, 0U);
}

TEST(Segments, PayloadBoundariesDoNotMatter) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(12, starts);
  Indexed whole;
  whole.stream.add_payload(0, trace.size(), trace, false);
  build(whole);
  ASSERT_EQ(whole.entries.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i) EXPECT_EQ(whole.entries[i].offset_bytes, starts[i]);
  for (const uint64_t step : {16U, 17U, 23U, 64U, 100U, 333U}) {
    Indexed cut;
    for (uint64_t at = 0; at < trace.size(); at += step) {
      const uint64_t size = std::min<uint64_t>(step, trace.size() - at);
      cut.stream.add_payload(at, size, Bytes(trace).subspan(at, size), false);
    }
    build(cut);
    ASSERT_EQ(cut.entries.size(), whole.entries.size()) << step;
    std::vector<std::byte> a, b;
    for (size_t i = 0; i < whole.entries.size(); ++i) {
      const AuxSegment one = whole.segment(i, a), other = cut.segment(i, b);
      EXPECT_EQ(copy_of(one.bytes), copy_of(other.bytes)) << step << " " << i;
      EXPECT_EQ(one.tail_bytes, other.tail_bytes);
      EXPECT_EQ(one.time, other.time);
      EXPECT_EQ(one.break_after, other.break_after);
    }
  }
}

TEST(Segments, ALossEndsASegmentAndTheRestWaitsForAPsb) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(3, starts);
  Indexed lossy;
  lossy.stream.add_payload(0, trace.size(), trace, false);
  const uint64_t loss = starts[1] + 60;
  lossy.stream.add_loss({loss, AuxBreak::truncated});
  build(lossy);
  std::vector<std::byte> scratch;
  const AuxSegment before = lossy.segment(1, scratch);
  EXPECT_TRUE(before.break_after);
  EXPECT_EQ(before.tail_bytes, 0U);
  EXPECT_EQ(before.stream_offset_bytes + before.bytes.size(), loss);
  const AuxSegment after = lossy.segment(2, scratch);
  EXPECT_EQ(after.break_before, AuxBreak::truncated);
  EXPECT_EQ(after.stream_offset_bytes, starts[2]);
}

TEST(Segments, BytesBeforeTheFirstPsbBelongToNone) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(3, starts);
  Indexed ring;
  ring.stream.add_payload(0, trace.size() - 5, Bytes(trace).subspan(5), false);
  build(ring);
  ASSERT_EQ(ring.entries.size(), 2U);
  EXPECT_EQ(ring.entries[0].offset_bytes, starts[1] - 5);
}

TEST(Segments, TimeIsConvertedOutwardAndWidened) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(3, starts);
  Indexed one;
  one.stream.add_payload(0, trace.size(), trace, false);
  one.stream.add_written(trace.size(), TimeNs{9000});
  build(one);
  SegmentTiming timing;
  timing.time.time_mult = 1;  // half a nanosecond a tick, from 5000 ns on
  timing.time.time_shift = 1;
  timing.time.time_zero = 5000;
  Interval time = one.index->time_of(one.entries[0], timing);
  EXPECT_EQ(time.first.value, 5500U);
  EXPECT_GE(time.last.value, 6000U);
  EXPECT_LE(time.last.value, 6001U);
  EXPECT_EQ(one.index->time_of(one.entries[2], timing).last.value, 9000U);  // the AUX record's time
  timing.slack_ns = 600;
  EXPECT_EQ(one.index->time_of(one.entries[0], timing).first.value, 4900U);
  EXPECT_EQ(one.index->at(TimeNs{4000}, timing), starts[0]);
  EXPECT_EQ(one.index->at(TimeNs{7000}, timing), starts[1]);
  EXPECT_EQ(one.index->at(TimeNs{9601}, timing), trace.size());
  timing.use_time = false;
  EXPECT_EQ(one.index->time_of(one.entries[1], timing), Interval{});
}

// 4 MB in payloads with some holes between them. A lookup from any offset finds the same as an index that is read from the start.
TEST(Segments, WhatIsFoundDoesNotDependOnWhereOneAsks) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(80000, starts);
  constexpr uint64_t kPayload = 5000, kHole = 700;
  ASSERT_GT(trace.size(), 4U << 20);
  const auto fill = [&](AuxStream& stream) {
    for (uint64_t at = 0, payload = 0; at < trace.size(); at += kPayload, ++payload) {
      const uint64_t size = std::min<uint64_t>(payload % 50 == 49 ? kPayload - kHole : kPayload, trace.size() - at);
      stream.add_payload(at, kPayload, Bytes(trace).subspan(at, size), false);
    }
    stream.finish();
  };
  const auto in_hole = [&](uint64_t start) { return start / kPayload % 50 == 49 && start % kPayload + 16 > kPayload - kHole; };
  std::erase_if(starts, in_hole);
  Indexed whole;
  fill(whole.stream);
  build(whole);
  ASSERT_EQ(whole.entries.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i) ASSERT_EQ(whole.entries[i].offset_bytes, starts[i]);

  std::mt19937 random(3);
  std::vector<std::byte> a, b;
  for (int round = 0; round < 40; ++round) {
    const TimeNs when{round == 0 ? 0 : random() % 81'000'000};
    AuxStream stream;
    fill(stream);
    const SegmentIndex index(stream);
    const uint64_t at = index.at(when, kTicks);
    const auto want = std::find_if(whole.entries.begin(), whole.entries.end(),
                                   [&](const PsbEntry& entry) { return !(whole.index->time_of(entry, kTicks).last < when); });
    ASSERT_NE(want, whole.entries.end());
    ASSERT_EQ(at, want->offset_bytes) << when.value;
    const AuxSegment one = whole.index->segment(*want, kTicks, a), other = index.segment(*index.next(at), kTicks, b);
    EXPECT_EQ(copy_of(one.bytes), copy_of(other.bytes));
    EXPECT_EQ(one.tail_bytes, other.tail_bytes);
    EXPECT_EQ(one.time, other.time);
    EXPECT_EQ(one.break_before, other.break_before);
    EXPECT_EQ(one.break_after, other.break_after);
  }
}

TEST(Segments, AnyThreadMayAsk) {
  std::vector<uint64_t> starts;
  const std::vector<std::byte> trace = make_trace(40000, starts);
  AuxStream stream;
  stream.add_payload(0, trace.size(), trace, false);
  stream.finish();
  const SegmentIndex index(stream);
  std::vector<std::vector<uint64_t>> found(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < found.size(); ++t) {
    threads.emplace_back([&, t] {
      if (t % 2 == 0) {
        for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) found[t].push_back(entry->offset_bytes);
      } else {
        for (auto entry = index.previous(trace.size()); entry; entry = index.previous(entry->offset_bytes))
          found[t].insert(found[t].begin(), entry->offset_bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : found) EXPECT_EQ(one, starts);
}

// Two adjacent PSBs, wherever a stretch of the index ends among them: the last one counts.
TEST(Segments, PsbsInARow) {
  std::vector<std::byte> trace;
  pt::PacketWriter writer(trace);
  std::vector<uint64_t> starts;
  for (int i = 0; i < 200000; ++i) {
    writer.psb();
    starts.push_back(trace.size());
    writer.psb();
    writer.psbend();
    for (int k = 0; k < i % 5; ++k) writer.tnt(1, 1);
  }
  Indexed one;
  one.stream.add_payload(0, trace.size(), trace, false);
  build(one);
  ASSERT_EQ(one.entries.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i) ASSERT_EQ(one.entries[i].offset_bytes, starts[i]);
}

TEST(Segments, ATscThatRunsBackBoundsNothing) {
  std::vector<std::byte> trace;
  pt::PacketWriter writer(trace);
  for (const uint64_t tsc : {5000, 1000}) {
    writer.psb();
    writer.tsc(tsc);
    writer.psbend();
  }
  Indexed one;
  one.stream.add_payload(0, trace.size(), trace, false);
  build(one);
  EXPECT_EQ(one.index->time_of(one.entries[0], kTicks), Interval{});
}

}  // namespace
}  // namespace ptd
