// Clocks of synthetic traces: which TSCs are reported as wrong, by how much, and that none is if something else explains them.
#include "recording/trace/clock_survey.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "ptdecode/pt/packet_writer.h"
#include "recording/trace/lost_trace.h"
#include "recording/trace/ratio_check.h"

namespace ptd {
namespace {

constexpr uint32_t kRatio = 84;     // TSC ticks per tick of the crystal clock
constexpr unsigned kMtcPeriod = 3;  // an MTC each 2^3 ticks of it
constexpr uint64_t kWrap = 65536 * uint64_t{kRatio};

/// One PSB to be written: the machine's TSC and crystal clock at that time, and the content of the packets.
struct Sync {
  uint64_t tsc = 0;   ///< agrees with the crystal clock
  uint64_t told = 0;  ///< value in the packet
  uint64_t crystal = 0;
  bool guest = false, tma = true, has_tsc = true;
  bool joined = false;  ///< user code was running
};

/// A trace of `count` PSBs, each `step` ticks of the TSC after the previous one, with the MTCs between them.
struct Trace {
  int32_t cpu = 0;
  size_t count = 64;
  uint64_t first = 0x1234567890, step = 100'000, crystal_offset = 77;
  bool mtc = true;
  std::optional<size_t> doubled;  ///< PSB whose segment comes twice
  std::function<void(size_t, Sync&)> change = [](size_t, Sync&) {};
  uint64_t begun = 0;                                ///< TSC of an AUX record at offset 0
  std::vector<std::pair<size_t, uint64_t>> records;  ///< AUX records: the PSB that ends before them, and their TSC

  [[nodiscard]] Sync sync(size_t i) const {
    Sync sync;
    sync.tsc = sync.told = first + i * step;
    sync.crystal = sync.tsc / kRatio + crystal_offset;
    sync.tma = mtc;
    sync.joined = i % 20 != 0;
    change(i, sync);
    return sync;
  }
};

TimeConversion one_to_one() {
  TimeConversion time;
  time.time_mult = 1, time.time_shift = 0;
  return time;
}

/// Streams of traces with their indexes, after the survey.
class Judged {
 public:
  explicit Judged(const std::vector<Trace>& traces, uint32_t ratio = kRatio) : bytes_(traces.size()), streams_(traces.size()) {
    config_.tsc_ctc_ratio_n = ratio;
    config_.tsc_ctc_ratio_d = 1;
    config_.mtc_period = kMtcPeriod;
    config_.has_mtc = true;
    config_.time = one_to_one();
    ClockSurvey survey(config_, traces.size(), false);
    for (size_t i = 0; i < traces.size(); ++i) {
      write(traces[i], i);
      indexes_.emplace_back(streams_[i]);
      indexes_[i].sample(
          SIZE_MAX, [&](const PsbEntry& psb) { survey.add(i, streams_[i], psb); }, nullptr);
    }
    for (size_t i = 0; i < traces.size(); ++i) indexes_[i].set_clock(survey.clock_of(i, streams_[i], indexes_[i]));
  }
  [[nodiscard]] std::vector<PsbEntry> entries(size_t i = 0) const {
    std::vector<PsbEntry> entries;
    for (auto entry = indexes_[i].next(0); entry; entry = indexes_[i].next(entry->offset_bytes + 1)) entries.push_back(*entry);
    return entries;
  }
  [[nodiscard]] std::vector<Finding> findings(size_t i = 0) const {
    return clock_findings(streams_[i], indexes_[i], {config_.time, 0, true}, [](uint64_t) {});
  }
  [[nodiscard]] std::vector<Finding> order_findings(size_t i = 0) const {
    return ptd::order_findings(streams_[i], indexes_[i], {config_.time, 0, true}, [](uint64_t) {});
  }
  [[nodiscard]] std::vector<Finding> ratio_findings() const {
    RatioCheck check(config_);
    for (size_t i = 0; i < streams_.size(); ++i) check.add(streams_[i], indexes_[i], [](uint64_t) {});
    return check.findings();
  }
  [[nodiscard]] size_t all_findings() const {
    size_t count = 0;
    for (size_t i = 0; i < streams_.size(); ++i) count += findings(i).size();
    return count;
  }

 private:
  void write(const Trace& trace, size_t i) {
    pt::PacketWriter writer(bytes_[i]);
    std::vector<uint64_t> ends;
    for (size_t k = 0; k < trace.count; ++k) {
      const Sync sync = trace.sync(k);
      writer.psb();
      if (sync.has_tsc) writer.tsc(sync.told & ((uint64_t{1} << 56) - 1));
      if (sync.tma) writer.tma(static_cast<uint16_t>(sync.crystal), static_cast<uint16_t>(sync.tsc % kRatio));
      if (sync.guest) writer.vmcs(0x1000);
      if (sync.joined) writer.fup(0x401000);
      writer.psbend();
      const uint64_t from = (sync.crystal >> kMtcPeriod) + 1, until = trace.sync(k + 1).crystal >> kMtcPeriod;
      for (uint64_t tick = from; trace.mtc && tick <= std::min(until, from + 1000); ++tick) {
        writer.tnt(5, 4);
        writer.mtc(static_cast<uint8_t>(tick));
      }
      const size_t begin = ends.empty() ? 0 : ends.back();
      if (trace.doubled == k) {
        const std::vector<std::byte> copy(bytes_[i].begin() + static_cast<std::ptrdiff_t>(begin), bytes_[i].end());
        bytes_[i].insert(bytes_[i].end(), copy.begin(), copy.end());
      }
      ends.push_back(bytes_[i].size());
    }
    streams_[i].cpu = trace.cpu;
    streams_[i].tid = trace.cpu < 0 ? 1 : -1;
    streams_[i].add_payload(0, bytes_[i].size(), bytes_[i], false);
    if (trace.begun != 0) streams_[i].add_written(0, TimeNs{trace.begun});
    for (const auto& [psb, tsc] : trace.records) streams_[i].add_written(ends[psb], TimeNs{tsc});
    streams_[i].finish();
  }
  pt::Config config_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<AuxStream> streams_;
  std::vector<SegmentIndex> indexes_;
};

Trace moved(size_t from, size_t to, int64_t ticks) {
  Trace trace;
  trace.change = [=](size_t i, Sync& sync) {
    if (i >= from && i < to) sync.told += static_cast<uint64_t>(ticks);
  };
  return trace;
}

TEST(ClockSurvey, NoneOfAnUndamagedTrace) {
  Trace wraps;  // the crystal clock's 16 bits every 55 PSBs, the TSC's 56 bits once
  wraps.count = 400;
  wraps.first = (uint64_t{1} << 56) - 20'000'050;
  Trace sleeps;  // for longer than a wrap of the crystal clock's 16 bits
  sleeps.change = [](size_t i, Sync& sync) {
    sync.tsc = sync.told += i / 10 * 1'000'000'007;
    sync.crystal = sync.tsc / kRatio + 77;
  };
  Trace no_mtc;
  no_mtc.mtc = false;
  Trace shorter;
  shorter.count = 5;
  for (const Trace& trace : {Trace{}, wraps, sleeps, no_mtc, shorter}) {
    const Judged judged({trace});
    EXPECT_EQ(judged.all_findings(), 0U);
    for (const PsbEntry& entry : judged.entries()) EXPECT_TRUE(entry.has_tsc && !entry.is_contradicted);
  }
}

TEST(ClockSurvey, OneTscMovedIsCorrected) {
  constexpr std::array<int64_t, 8> kTicks{-9'000'000'000, -400'000'000, -3'000'000, -1'000, 1'000, 120'000, 3'000'000, 900'000'000};
  for (const int64_t ticks : kTicks) {
    for (const size_t place : {size_t{0}, size_t{1}, size_t{40}, size_t{63}}) {
      SCOPED_TRACE(std::to_string(ticks) + " at " + std::to_string(place));
      const Judged judged({moved(place, place + 1, ticks)});
      ASSERT_EQ(judged.findings().size(), 1U);
      EXPECT_EQ(judged.findings()[0].kind, FindingKind::clock_contradicts);
      const std::vector<PsbEntry> entries = judged.entries();
      for (size_t i = 0; i < entries.size(); ++i) {
        EXPECT_EQ(entries[i].is_contradicted, i == place);
        ASSERT_TRUE(entries[i].has_tsc);
        EXPECT_NEAR(static_cast<double>(entries[i].tsc), static_cast<double>(Trace{}.sync(i).tsc), kRatio);
      }
    }
  }
}

// One high bit of a TSC: the crystal clock's 16 bits do not show it if the TSC moves by a multiple of their wrap. The others' order shows
// it, or the AUX records.
TEST(ClockSurvey, ATscFarAwayIsNotUsedThoughTheCrystalClockAgrees) {
  for (const unsigned bits : {10U, 13U, 20U, 26U, 30U, 32U}) {
    for (const int64_t ticks : {int64_t{kWrap} << bits, -(int64_t{kWrap} << bits)}) {
      for (const size_t place : {size_t{0}, size_t{1}, size_t{12}, size_t{62}, size_t{63}}) {
        for (const int32_t cpu : {0, -1}) {
          for (const bool with_records : {false, true}) {
            const bool at_end = (place == 0 && ticks < 0) || (place == 63 && ticks > 0);  // in order
            if (at_end && !with_records) continue;
            SCOPED_TRACE(std::to_string(ticks) + " at " + std::to_string(place));
            Trace trace = moved(place, place + 1, ticks);
            trace.cpu = cpu;
            trace.first = uint64_t{1} << 55;
            if (with_records) {
              trace.begun = trace.first;
              for (const size_t i : {size_t{20}, size_t{63}}) trace.records.emplace_back(i, trace.first + (i + 1) * trace.step);
            }
            const Judged judged({trace});
            ASSERT_EQ(judged.findings().size(), 1U);
            EXPECT_TRUE(judged.order_findings().empty());
            const std::vector<PsbEntry> entries = judged.entries();
            for (size_t i = 0; i < entries.size(); ++i) {
              EXPECT_EQ(entries[i].is_contradicted, i == place) << i;
              EXPECT_EQ(entries[i].has_tsc, i != place) << i;
            }
          }
        }
      }
    }
  }
}

// In a short stream too: one PSB contradicts all others.
TEST(ClockSurvey, OneTscMovedInAShortTraceIsCorrected) {
  for (const size_t count : {size_t{3}, size_t{4}, size_t{7}, size_t{8}, size_t{9}, size_t{15}, size_t{16}}) {
    for (size_t place = 0; place < count; ++place) {
      for (const int64_t ticks : {-130'000'000, -30'000, -3'000, 3'000, 30'000, 130'000'000}) {
        for (const int32_t cpu : {0, -1}) {
          SCOPED_TRACE(std::to_string(ticks) + " at " + std::to_string(place) + " of " + std::to_string(count));
          Trace trace = moved(place, place + 1, ticks);
          trace.count = count;
          trace.cpu = cpu;
          trace.change = [change = trace.change](size_t i, Sync& sync) {
            sync.joined = true;
            change(i, sync);
          };
          const Judged judged({trace});
          ASSERT_EQ(judged.findings().size(), 1U);
          const std::vector<PsbEntry> entries = judged.entries();
          for (size_t i = 0; i < entries.size(); ++i) {
            EXPECT_EQ(entries[i].is_contradicted, i == place);
            ASSERT_TRUE(entries[i].has_tsc);
            EXPECT_NEAR(static_cast<double>(entries[i].tsc), static_cast<double>(Trace{}.sync(i).tsc), kRatio);
          }
        }
      }
    }
  }
}

// Of two PSBs, the one that other streams contradict is wrong; without other streams, either may be.
TEST(ClockSurvey, OfTwoPsbsAnotherStreamDecides) {
  for (const size_t place : {size_t{0}, size_t{1}}) {
    Trace two = moved(place, place + 1, -30'000), other;
    two.count = 2;
    other.cpu = 1;
    const Judged judged({two, other});
    EXPECT_EQ(judged.all_findings(), 1U);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(judged.entries()[i].is_contradicted, i == place);
  }
}

// A stream with one or two PSBs has no other witness than its AUX records, which delivered it. With several such streams, the records of
// the others agree with their TSCs.
TEST(ClockSurvey, RecordsContradictTheTscOfAShortTrace) {
  for (const size_t count : {size_t{1}, size_t{2}}) {
    for (const int64_t ticks : {-50'000'000, 50'000'000}) {
      for (const size_t others : {size_t{0}, size_t{3}}) {
        const auto with_records = [count](Trace trace) {
          trace.count = count;
          trace.cpu = -1;
          trace.begun = trace.first;
          trace.records.emplace_back(count - 1, trace.first + count * trace.step);
          return trace;
        };
        std::vector<Trace> traces{with_records(moved(count - 1, count, ticks))};
        traces.resize(1 + others, with_records(Trace{}));
        const Judged judged(traces);
        ASSERT_EQ(judged.all_findings(), 1U);
        const bool is_corrected = count == 2 && others != 0;  // the others have the same crystal clock
        EXPECT_EQ(judged.findings()[0].what.find("AUX records") == std::string::npos, is_corrected);
        EXPECT_EQ(judged.entries()[count - 1].has_tsc, is_corrected);
        EXPECT_EQ(judged.entries()[0].has_tsc, count == 2);
      }
    }
  }
}

// Records of another clock contradict all TSCs: they prove nothing.
TEST(ClockSurvey, RecordsOfAnotherClockProveNothing) {
  Trace trace;
  trace.begun = trace.first + 1'000'000'000;
  trace.records.emplace_back(63, trace.first + 2'000'000'000);
  EXPECT_EQ(Judged({trace}).all_findings(), 0U);
}

// The TSC goes back between the PSBs of a short stream without a crystal clock.
TEST(ClockSurvey, TheOrderCountsInAShortTrace) {
  for (const size_t count : {size_t{3}, size_t{5}, size_t{7}}) {
    Trace trace = moved(1, 2, -9'000'000);
    trace.count = count;
    trace.mtc = false;
    const Judged judged({trace});
    ASSERT_EQ(judged.findings().size(), 1U);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(judged.entries()[i].is_contradicted, i == 1) << i;
  }
}

// The TSC that the MTC packets count to is later than the AUX record that delivered the PSB, or than the next PSB: nothing is corrected.
TEST(ClockSurvey, ACorrectionThatTheRecordsContradictIsNotUsed) {
  Trace trace = moved(10, 11, -3'000);
  trace.count = 15;
  trace.records.emplace_back(9, Trace{}.sync(10).tsc + 40 * kWrap);
  trace.change = [change = trace.change](size_t i, Sync& sync) {
    change(i, sync);
    if (i >= 11) sync.told += 41 * kWrap, sync.tsc += 41 * kWrap, sync.crystal += 41 * 65536;
  };
  const Judged judged({trace});
  ASSERT_EQ(judged.findings().size(), 1U);
  EXPECT_TRUE(judged.entries()[10].is_contradicted && !judged.entries()[10].has_tsc);
}

TEST(ClockSurvey, AllLaterTscsMovedAreCorrected) {
  for (const int64_t ticks : std::initializer_list<int64_t>{-3'000'000'000, 3'000'000'000}) {
    for (const size_t place : {size_t{20}, size_t{40}}) {
      SCOPED_TRACE(std::to_string(ticks) + " from " + std::to_string(place));
      Trace other;
      other.cpu = 1;
      // Either the other cpu or the AUX records show which TSCs are right.
      Trace with_records = moved(place, SIZE_MAX, ticks);
      for (size_t i = 4; i < 64; i += 4) with_records.records.emplace_back(i, Trace{}.sync(i + 1).tsc);
      for (const Judged& judged : {Judged({moved(place, SIZE_MAX, ticks), other}), Judged({with_records})}) {
        ASSERT_EQ(judged.all_findings(), 1U);
        const std::vector<PsbEntry> entries = judged.entries();
        for (size_t i = 0; i < entries.size(); ++i) {
          EXPECT_EQ(entries[i].is_contradicted, i >= place);
          ASSERT_TRUE(entries[i].has_tsc);
          EXPECT_NEAR(static_cast<double>(entries[i].tsc), static_cast<double>(Trace{}.sync(i).tsc), kRatio);
        }
      }
    }
  }
}

// No packets count the wraps of the crystal clock, so the time is unknown.
TEST(ClockSurvey, WithoutMtcsInBetweenItIsUnknown) {
  Trace trace = moved(30, 31, 700'000'000);
  trace.change = [change = trace.change](size_t i, Sync& sync) {
    sync.tsc = sync.told += i * kWrap * 3;
    sync.crystal = sync.tsc / kRatio + 77;
    change(i, sync);
  };
  const Judged judged({trace});
  ASSERT_EQ(judged.findings().size(), 1U);
  EXPECT_TRUE(judged.entries()[30].is_contradicted && !judged.entries()[30].has_tsc);
}

// A thread is traced continuously from PSB to PSB, so it cannot have moved to another socket for one of them.
TEST(ClockSurvey, AThreadsTscIsCheckedWhereItsTraceGoesOn) {
  for (const bool mtc_counts : {true, false}) {
    Trace trace = moved(30, 31, -90'000);
    trace.cpu = -1;
    if (!mtc_counts) {
      trace.change = [change = trace.change](size_t i, Sync& sync) {
        sync.tsc = sync.told += i * kWrap * 3;
        sync.crystal = sync.tsc / kRatio + 77;
        change(i, sync);
      };
    }
    const Judged judged({trace});
    ASSERT_EQ(judged.findings().size(), 1U);
    EXPECT_TRUE(judged.entries()[30].is_contradicted);
    EXPECT_EQ(judged.entries()[30].has_tsc, mtc_counts);
  }
}

// A thread may have moved to another socket and back, unless one wrong byte explains the only other phase.
TEST(ClockSurvey, OneTscOfAThreadMovedIsFound) {
  Trace other;
  other.cpu = -1;
  for (const size_t count : {size_t{1}, size_t{2}, size_t{4}, size_t{64}}) {
    for (size_t place = 0; place < count; place += 7) {
      for (const auto& [moves, by] : {std::pair(size_t{1}, 0x3000U), {size_t{1}, 12345U}, {size_t{2}, 12345U}}) {
        Trace trace = other;
        trace.count = count;
        trace.change = [place, moves = moves, by = by](size_t i, Sync& sync) {
          sync.tsc = sync.told += i * kWrap * 3;
          sync.crystal = (sync.tsc / kRatio + 77) ^ (by == 0x3000 && i == place ? by : 0U);
          if (by != 0x3000 && i >= place && i < place + moves) sync.crystal += by;
          sync.joined = false;
        };
        const Judged judged({other, trace});
        EXPECT_EQ(judged.all_findings(), by == 0x3000 ? 1U : 0U);
        EXPECT_EQ(judged.entries(1)[place].is_contradicted, by == 0x3000);
        EXPECT_EQ(judged.entries(1)[place].has_tsc, by != 0x3000);
      }
    }
  }
}

// PSB+ without a TSC packet, though others have one: times are bounded by their neighbours.
TEST(ClockSurvey, AMissingTscIsFound) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{64}}) {
    for (const int32_t cpu : {0, -1}) {
      for (const bool mtc : {false, true}) {
        Trace trace, other;
        trace.cpu = cpu;
        trace.count = count;
        trace.mtc = mtc;
        trace.change = [](size_t i, Sync& sync) { sync.has_tsc = i != 0 && i != 21; };
        other.cpu = cpu < 0 ? -1 : 1;
        const Judged judged({trace, other});
        ASSERT_EQ(judged.findings().size(), count == 64 ? 2U : 1U) << count;
        EXPECT_EQ(judged.findings(1).size(), 0U);
        EXPECT_NE(judged.findings()[0].what.find("missing"), std::string::npos);
        for (const PsbEntry& entry : judged.entries()) EXPECT_EQ(entry.is_contradicted, !entry.has_tsc);
      }
    }
  }
}

// Without TSC packets in a stream, nothing is missing unless a TMA is there, which comes only after a TSC.
TEST(ClockSurvey, ATraceWithoutTscsLacksNone) {
  Trace none;
  none.mtc = false;
  none.change = [](size_t, Sync& sync) { sync.has_tsc = false; };
  EXPECT_EQ(Judged({none}).all_findings() + Judged({none, moved(0, 0, 0)}).all_findings(), 0U);
  none.mtc = true;
  EXPECT_EQ(Judged({none}).all_findings(), 1U);
}

// All later TSCs of a thread are moved, and MTC packets do not count up to that point. Moved back, they are out of order. Moved forward,
// the last ones are later than the AUX record that delivered them. The amount is unknown, so they are not used.
TEST(ClockSurvey, AllLaterTscsOfAThreadMovedAreNotUsed) {
  for (const int64_t ticks : std::initializer_list<int64_t>{-700'000'000, -100'000'000, 700'000'000, 100'000'000}) {
    for (const size_t place : {size_t{20}, size_t{40}, size_t{54}}) {
      Trace trace = moved(place, SIZE_MAX, ticks);
      trace.cpu = -1;
      trace.change = [change = trace.change](size_t i, Sync& sync) {
        sync.tsc = sync.told += i * kWrap * 3;
        sync.crystal = sync.tsc / kRatio + 77;
        change(i, sync);
      };
      trace.records.emplace_back(63, trace.sync(63).tsc + 1000);
      const Judged judged({trace});
      ASSERT_EQ(judged.findings().size(), 1U) << ticks << ' ' << place;
      const std::vector<PsbEntry> entries = judged.entries();
      const bool first_are_wrong = ticks < 0 && place < 32;  // most PSBs count as right
      for (size_t i = 0; i < entries.size(); ++i) {
        EXPECT_EQ(entries[i].is_contradicted, (i < place) == first_are_wrong) << i;
        EXPECT_EQ(entries[i].has_tsc, !entries[i].is_contradicted) << i;
      }
    }
  }
}

// The first AUX record, which is empty, shows when a thread's trace began: the few PSBs before the moved ones are right.
TEST(ClockSurvey, AThreadsTraceDoesNotBeginBeforeTheThread) {
  Trace trace = moved(3, SIZE_MAX, -700'000'000);
  trace.cpu = -1;
  trace.change = [change = trace.change](size_t i, Sync& sync) {
    sync.tsc = sync.told += i * kWrap * 3;
    sync.crystal = sync.tsc / kRatio + 77;
    change(i, sync);
  };
  trace.begun = trace.sync(0).tsc;
  const Judged judged({trace});
  ASSERT_EQ(judged.findings().size(), 1U);
  const std::vector<PsbEntry> entries = judged.entries();
  for (size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(entries[i].is_contradicted, i >= 3) << i;
}

// PSBs that are swapped have TSCs that fit their crystal clock: these are right.
TEST(ClockSurvey, SwappedPsbsHaveRightTscs) {
  Trace trace;
  trace.cpu = -1;
  trace.change = [](size_t i, Sync& sync) {
    if (i != 30 && i != 31) return;
    const uint64_t other = i == 30 ? 100'000 : 0 - uint64_t{100'000};
    sync.tsc = sync.told += other;
    sync.crystal = sync.tsc / kRatio + 77;
  };
  EXPECT_EQ(Judged({trace}).all_findings(), 0U);
  trace.mtc = false;
  EXPECT_EQ(Judged({trace}).all_findings(), 0U);
}

// A segment that comes twice: the second PSB has the same TSC, so the clock is right.
TEST(ClockSurvey, ADoubledSegmentIsAFinding) {
  for (const size_t place : {size_t{0}, size_t{1}, size_t{30}, size_t{63}}) {
    for (const int32_t cpu : {0, -1}) {
      Trace trace;
      trace.cpu = cpu;
      trace.doubled = place;
      const Judged judged({trace});
      ASSERT_EQ(judged.order_findings().size(), 1U) << place;
      EXPECT_EQ(judged.order_findings()[0].kind, FindingKind::clock_contradicts);
    }
  }
  EXPECT_TRUE(Judged({Trace{}}).order_findings().empty());
  Trace coarse;  // a clock that a hypervisor rounds
  coarse.change = [](size_t i, Sync& sync) { sync.told = 0x1234567890 + i / 8 * 800'000; };
  EXPECT_TRUE(Judged({coarse}).order_findings().empty());
}

// The order can be determined without a crystal clock.
TEST(ClockSurvey, WithoutACrystalClockTheOrderCounts) {
  for (const int64_t ticks : std::initializer_list<int64_t>{-9'000'000, 9'000'000}) {
    for (const size_t place : {size_t{1}, size_t{40}}) {
      Trace trace = moved(place, place + 1, ticks);
      const auto change = trace.change;
      trace.mtc = false;
      const Judged judged({trace});
      ASSERT_EQ(judged.findings().size(), 1U);
      const std::vector<PsbEntry> entries = judged.entries();
      for (size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(entries[i].is_contradicted, i == place) << i;
    }
  }
}

TEST(ClockSurvey, OtherReasonsAreNoDamage) {
  Trace drifts;  // an inexact ratio
  drifts.change = [](size_t i, Sync& sync) { sync.crystal += i * i / 8; };
  EXPECT_EQ(Judged({drifts}).all_findings(), 0U);
  for (size_t count = 2; count < 20; ++count) {
    Trace few = drifts;
    few.count = count;
    EXPECT_EQ(Judged({few}).all_findings(), 0U) << count;
    for (size_t late = 0; late < count; ++late) {  // and a long pause after one of the PSBs
      few.change = [late](size_t i, Sync& sync) {
        sync.tsc = sync.told += i > late ? uint64_t{30'000'000} : 0;
        sync.crystal = sync.tsc / kRatio + 77 + (sync.tsc - 0x1234567890) / 500'000;
      };
      EXPECT_EQ(Judged({few}).all_findings(), 0U) << count << ' ' << late;
    }
  }
  EXPECT_EQ(Judged({Trace{}}, kRatio + 1).all_findings(), 0U);

  Trace guest;  // its TSC is from another clock
  guest.change = [](size_t i, Sync& sync) {
    sync.guest = i % 16 == 5;
    if (sync.guest) sync.told -= 50'000'000'000;
  };
  EXPECT_EQ(Judged({guest}).all_findings(), 0U);

  Trace thread;  // moves between sockets whose crystal clocks differ
  thread.cpu = -1;
  thread.change = [](size_t i, Sync& sync) { sync.crystal += i / 16 % 2 * 12345; };
  EXPECT_EQ(Judged({thread}).all_findings(), 0U);

  Trace first, second;  // a virtual machine that migrates: all its crystal clocks change
  first.change = second.change = [](size_t i, Sync& sync) { sync.crystal += i < 30 ? 0 : 23456; };
  second.cpu = 1;
  EXPECT_EQ(Judged({first, second}).all_findings(), 0U);
  first.change = second.change = [](size_t i, Sync& sync) { sync.crystal += i < 40 ? 0 : 23456; };
  EXPECT_EQ(Judged({first, second}).all_findings(), 0U);

  EXPECT_EQ(Judged({first}).all_findings(), 0U);

  Trace set = moved(30, SIZE_MAX, 3'000'000'000);  // the TSC was set, and the kernel's clock follows it
  for (size_t i = 4; i < 60; i += 4) set.records.emplace_back(i, set.sync(i + 1).told);
  EXPECT_EQ(Judged({set}).all_findings(), 0U);

  Trace set_back = moved(30, SIZE_MAX, -50'000'000);
  for (size_t i = 4; i < 60; i += 4) set_back.records.emplace_back(i, set_back.sync(i + 1).told);
  const std::vector<PsbEntry> entries = Judged({set_back}).entries();  // the order is wrong at one point, but the phases are right
  EXPECT_LE(std::count_if(entries.begin(), entries.end(), [](const PsbEntry& entry) { return entry.is_contradicted; }), 1);

  Trace other_socket;
  other_socket.cpu = 1;
  other_socket.crystal_offset = 30'000;
  EXPECT_EQ(Judged({Trace{}, other_socket}).all_findings(), 0U);
}

// The machine's ratio is 84. An error of 0.1 % is that of a ratio that is not exact.
TEST(RatioCheck, WrongRatiosAreFound) {
  for (const uint32_t ratio : {1U, 20U, 80U, 83U, 85U, 168U, 84U + (1U << 24), 84U + (1U << 31)})
    EXPECT_EQ(Judged({Trace{}}, ratio).ratio_findings().size(), 1U) << ratio;
  Trace sparse;
  sparse.count = 3;
  EXPECT_EQ(Judged({sparse}, 42).ratio_findings().size(), 1U);
  Trace distant;
  distant.step = 4 * kWrap + 4711;
  EXPECT_EQ(Judged({distant}, 1).ratio_findings().size(), 1U);
  Trace guest;
  guest.change = [](size_t, Sync& sync) { sync.guest = true; };
  EXPECT_EQ(Judged({guest}, 83).ratio_findings().size(), 1U);
}

TEST(RatioCheck, OtherCausesAreNoWrongRatio) {
  Trace wraps;
  wraps.count = 400;
  wraps.first = (uint64_t{1} << 56) - 20'000'050;
  Trace sparse;
  sparse.step = 10 * kWrap + 4711;
  Trace half = moved(32, 64, 5'000'000);  // a TSC that is moved for good
  Trace guests;
  guests.change = [](size_t i, Sync& sync) {
    sync.guest = i % 2 != 0;
    sync.told += sync.guest ? 1'234'567'890 : 0;
  };
  Trace timeless;
  timeless.mtc = false;
  for (const Trace& trace : {Trace{}, wraps, sparse, half, guests, timeless, moved(10, 11, -300'000)})
    EXPECT_TRUE(Judged({trace}).ratio_findings().empty());
}

}  // namespace
}  // namespace ptd
