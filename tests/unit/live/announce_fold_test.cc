// AnnounceFold: however often announcements are folded, the code that they lead to is the same, and a loss stays one.
#include "capture/live/session/fold/announce_fold.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ptd::live {
namespace {

struct Told {
  TimeNs time;
  std::vector<std::byte> record;
};
using Code = std::map<uint64_t, std::vector<std::byte>>;

std::vector<std::byte> bytes(size_t count, uint64_t seed) {
  std::vector<std::byte> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(seed * 31 + i * 7);
  return out;
}

/// A run-time with code at a few places, and what it announces.
class Runtime {
 public:
  explicit Runtime(uint64_t seed) : random_(seed) { tell({reader(AnnounceKind::attach, 0)}); }
  void step() {
    const uint64_t place = 0x1000 * (1 + random_() % 16);
    const auto at = live.find(place);
    if (at == live.end()) {
      announce(AnnounceKind::load, place, bytes(1 + random_() % 4000, random_()), 0);
    } else if (random_() % 3 == 0) {
      announce(AnnounceKind::unload, place, {}, 0, at->second.size());
      live.erase(place);
    } else if (const uint64_t to = 0x1000 * (1 + random_() % 16); random_() % 2 == 0 && !live.contains(to)) {
      const std::vector<std::byte> code = at->second;
      live.erase(place);
      announce(AnnounceKind::move, to, code, place);
    } else {
      patch(place, at->second);
    }
  }
  void relist() {
    bracket(true);
    for (const auto& [place, code] : Code(live)) announce(AnnounceKind::load, place, code, 0, 0, true);
    bracket(false);
  }
  void lose() { ++seq_; }
  void detach() { tell({reader(AnnounceKind::detach, seq_)}); }
  void attach() { tell({reader(AnnounceKind::attach, seq_)}); }
  Code live;
  std::vector<Told> told;

 private:
  static std::vector<std::byte> reader(AnnounceKind kind, uint64_t seq) {
    std::vector<std::byte> record = encode_reader_record(kind, kInstance, seq);
    shift_numbers(record, AnnounceFold::kShift);
    return record;
  }
  void tell(std::vector<std::vector<std::byte>> records) {
    time_ += 1'000'000;
    for (std::vector<std::byte>& record : records) told.push_back({TimeNs{time_}, std::move(record)});
  }
  void send(Announcement what) {
    what.runtime = 1;
    what.seq = AnnounceFold::kShift + seq_;
    std::vector<std::vector<std::byte>> records = encode_announcement(what, kInstance);
    seq_ += records.size();
    tell(std::move(records));
  }
  void bracket(bool begin) {
    Announcement what;
    what.kind = AnnounceKind::relist;
    what.begin = begin;
    send(what);
  }
  void announce(AnnounceKind kind, uint64_t place, const std::vector<std::byte>& code, uint64_t from, uint64_t size = 0,
                bool relisted = false) {
    Announcement what;
    what.kind = kind;
    what.relisted = relisted;
    what.address = place;
    what.old_address = from;
    what.size_bytes = code.empty() ? size : code.size();
    what.name = "f" + std::to_string(seq_);
    what.code = code;
    if (!relisted && kind != AnnounceKind::unload) {
      Announcement begin = what;
      begin.begin = true;
      begin.code.clear();
      send(begin);
    }
    send(what);
    if (kind != AnnounceKind::unload) live[place] = code;
  }
  void patch(uint64_t place, std::vector<std::byte>& code) {
    const size_t skip = random_() % code.size();
    Announcement what;
    what.kind = AnnounceKind::patch;
    what.address = place + skip;
    what.size_bytes = 1;
    what.code = {code[skip]};
    what.begin = true;
    send(what);
    code[skip] = static_cast<std::byte>(random_());
    what.code = {code[skip]};
    what.begin = false;
    send(what);
  }
  static constexpr uint64_t kInstance = 77;
  std::mt19937_64 random_;
  uint64_t seq_ = 0, time_ = 1'000'000'000;
};

std::vector<Told> fold(const std::vector<Told>& told) {
  AnnounceFold folded;
  for (const Told& one : told) folded.take(one.time, one.record);
  std::vector<Told> out;
  folded.each([&](TimeNs time, Bytes record) { out.push_back({time, {record.begin(), record.end()}}); });
  return out;
}

struct Ran {
  Code live;
  uint64_t gaps = 0;
  bool relisted = false;  // after the last gap
};

/// What a reader makes of them: each instance's history, applied by time.
Ran read(const std::vector<Told>& told) {
  std::map<uint64_t, AnnounceJoiner> joiners;
  for (const Told& one : told) {
    const auto parsed = parse_announce_record(one.record);
    EXPECT_TRUE(parsed.ok());
    if (parsed.ok()) joiners[parsed->instance].add(*parsed, one.time);
  }
  Ran result;
  for (auto& [instance, joiner] : joiners) {
    AnnounceHistory history = joiner.finish();
    result.gaps += history.gaps.size();
    uint64_t begun = 0;
    for (const Announcement& what : history.announcements) {
      if (what.begin && what.kind == AnnounceKind::relist && what.runtime == 1) begun = what.seq;
      if (what.begin) continue;
      if (what.kind == AnnounceKind::relist) result.relisted = history.gaps.empty() || begun > history.gaps.back().first_seq;
      if (what.kind == AnnounceKind::unload) result.live.erase(what.address);
      if (what.kind == AnnounceKind::move) result.live.erase(what.old_address);
      if (what.kind == AnnounceKind::move || what.kind == AnnounceKind::load) result.live[what.address] = what.code;
      if (what.kind != AnnounceKind::patch) continue;
      const auto at = std::prev(result.live.upper_bound(what.address));
      at->second.at(what.address - at->first) = what.code.at(0);
    }
  }
  return result;
}

TEST(AnnounceFold, CodeIsTheSameHoweverOftenItIsFolded) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Runtime runtime(seed);
    std::vector<Told> kept;
    size_t taken = 0;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 400; ++i) {
      runtime.step();
      if (random() % 20 != 0) continue;
      kept.insert(kept.end(), runtime.told.begin() + static_cast<std::ptrdiff_t>(taken), runtime.told.end());
      taken = runtime.told.size();
      kept = fold(kept);
    }
    kept.insert(kept.end(), runtime.told.begin() + static_cast<std::ptrdiff_t>(taken), runtime.told.end());
    EXPECT_LT(kept.size(), runtime.told.size() / 2);
    const Ran got = read(kept);
    EXPECT_EQ(got.live, runtime.live) << "seed " << seed;
    EXPECT_EQ(got.gaps, 0U) << "seed " << seed;
  }
}

TEST(AnnounceFold, ChangesThatHaveBegunAreKept) {
  Runtime runtime(3);
  for (int i = 0; i < 30; ++i) runtime.step();
  // Cut between a begin and its end: the end still finds it.
  for (size_t cut = 1; cut < runtime.told.size(); ++cut) {
    std::vector<Told> kept = fold({runtime.told.begin(), runtime.told.begin() + static_cast<std::ptrdiff_t>(cut)});
    kept = fold(kept);
    kept.insert(kept.end(), runtime.told.begin() + static_cast<std::ptrdiff_t>(cut), runtime.told.end());
    const Ran got = read(kept);
    EXPECT_EQ(got.live, runtime.live) << cut;
    EXPECT_EQ(got.gaps, 0U) << cut;
    uint64_t begins = 0, ends = 0;
    for (const Told& one : kept) {
      const auto parsed = parse_announce_record(one.record);
      if (parsed->instance == AnnounceFold::kState || parsed->kind == AnnounceKind::unload || parsed->kind > AnnounceKind::patch ||
          parsed->chunk != 0)
        continue;
      (parsed->begin ? begins : ends) += 1;
    }
    EXPECT_EQ(begins, ends) << cut;
  }
}

TEST(AnnounceFold, ALossStaysOneUntilTheCodeIsRelisted) {
  Runtime runtime(5);
  for (int i = 0; i < 100; ++i) runtime.step();
  runtime.lose();
  for (int i = 0; i < 100; ++i) runtime.step();
  std::vector<Told> kept = runtime.told;
  for (int i = 0; i < 4; ++i) kept = fold(kept);
  EXPECT_EQ(read(kept).gaps, 1U);
  EXPECT_FALSE(read(kept).relisted);

  const size_t before = runtime.told.size();
  runtime.relist();
  for (int i = 0; i < 100; ++i) runtime.step();
  kept.insert(kept.end(), runtime.told.begin() + static_cast<std::ptrdiff_t>(before), runtime.told.end());
  EXPECT_TRUE(read(kept).relisted);
  kept = fold(fold(kept));
  EXPECT_EQ(read(kept).gaps, 0U);
  EXPECT_EQ(read(kept).live, runtime.live);
}

TEST(AnnounceFold, TimeWithoutAReaderIsALoss) {
  Runtime runtime(11);
  for (int i = 0; i < 60; ++i) runtime.step();
  runtime.detach();
  const size_t detached = runtime.told.size();
  for (int i = 0; i < 4; ++i) runtime.step();  // read with the rest of the channel
  const size_t attached = runtime.told.size();
  runtime.attach();
  for (int i = 0; i < 60; ++i) runtime.step();
  ASSERT_EQ(read({runtime.told.begin(), runtime.told.begin() + static_cast<std::ptrdiff_t>(attached)}).gaps, 0U);
  ASSERT_EQ(read({runtime.told.begin(), runtime.told.begin() + static_cast<std::ptrdiff_t>(attached) + 1}).gaps, 1U);
  // Wherever it is folded: the same gaps (one more if that is within an announcement).
  for (size_t cut = detached - 5; cut <= runtime.told.size(); ++cut) {
    std::vector<Told> kept{runtime.told.begin(), runtime.told.begin() + static_cast<std::ptrdiff_t>(cut)};
    const uint64_t gaps = read(kept).gaps;
    kept = fold(fold(kept));
    EXPECT_EQ(read(kept).gaps, gaps) << cut;
    kept.insert(kept.end(), runtime.told.begin() + static_cast<std::ptrdiff_t>(cut), runtime.told.end());
    EXPECT_EQ(read(kept).gaps, 1U) << cut;
    kept = fold(fold(kept));
    EXPECT_EQ(read(kept).gaps, 1U) << cut;
    EXPECT_FALSE(read(kept).relisted) << cut;
    Runtime later = runtime;
    later.relist();
    for (int i = 0; i < 60; ++i) later.step();
    kept.insert(kept.end(), later.told.begin() + static_cast<std::ptrdiff_t>(runtime.told.size()), later.told.end());
    kept = fold(fold(kept));
    EXPECT_EQ(read(kept).gaps, 0U) << cut;
    EXPECT_EQ(read(kept).live, later.live) << cut;
  }
}

TEST(AnnounceFold, TheLatestRecordsWaitForThoseBeforeThem) {
  Runtime runtime(7);
  for (int i = 0; i < 100; ++i) runtime.step();
  std::vector<Told> told = runtime.told;
  const Told late = told[told.size() - 4];  // of a thread that was stopped before it wrote
  told.erase(told.end() - 4);
  std::vector<Told> kept = fold(told);
  kept.push_back(late);
  EXPECT_EQ(read(kept).gaps, 0U);
  EXPECT_EQ(read(kept).live, runtime.live);
}

// The listener tells of a ring that it could not read when it ends.
TEST(AnnounceFold, ARingThatWasNotRead) {
  AnnounceFold folded;
  std::vector<std::byte> unread = encode_reader_record(AnnounceKind::detach, 77, 0);
  shift_numbers(unread, AnnounceFold::kShift);
  folded.take(TimeNs{1'000'000'000}, unread);
  AnnounceJoiner joiner;
  folded.each([&](TimeNs time, Bytes record) { joiner.add(*parse_announce_record(record), time); });
  const std::vector<AnnounceGap> gaps = joiner.finish().gaps;
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].count, 0U);
  EXPECT_EQ(gaps[0].time, Interval{});
}

/// What is left after these announcements, at least a second apart, so that all but the last are folded.
Code folded_code(std::vector<Announcement> all) {
  AnnounceFold folded;
  uint64_t seq = 0, time = 1'000'000'000;
  folded.take(TimeNs{time}, encode_reader_record(AnnounceKind::attach, 77, 0));
  all.emplace_back().address = 0x9000;
  all.back().size_bytes = 1;
  for (Announcement& what : all) {
    what.seq = seq++;
    folded.take(TimeNs{time += 1'000'000'000}, encode_announcement(what, 77).at(0));
  }
  Code live;
  folded.each([&](TimeNs, Bytes record) {
    const auto parsed = parse_announce_record(record);
    if (parsed->instance == AnnounceFold::kState && parsed->kind == AnnounceKind::load)
      live[parsed->address] = {parsed->data.begin(), parsed->data.end()};
  });
  return live;
}

TEST(AnnounceFold, APatchChangesAllFunctionsThatItOverlaps) {
  const auto code_at = [](AnnounceKind kind, uint64_t address, std::vector<std::byte> code) {
    Announcement what;
    what.kind = kind;
    what.address = address;
    what.size_bytes = code.size();
    what.code = std::move(code);
    return what;
  };
  const auto all = [](uint8_t value, size_t count) { return std::vector<std::byte>(count, std::byte{value}); };
  Announcement unknown = code_at(AnnounceKind::load, 0x1010, all(0, 8));
  unknown.code.clear();
  const Code live = folded_code({code_at(AnnounceKind::load, 0x1004, all(1, 4)), code_at(AnnounceKind::load, 0x1008, all(2, 4)), unknown,
                                 code_at(AnnounceKind::load, 0x1020, all(4, 4)), code_at(AnnounceKind::patch, 0x1000, all(9, 6)),
                                 code_at(AnnounceKind::patch, 0x1007, all(8, 2)), code_at(AnnounceKind::patch, 0x100a, all(7, 8)),
                                 code_at(AnnounceKind::patch, 0x1022, all(6, 8))});
  const auto bytes_at = [&](uint64_t address) {
    std::vector<int> got;
    for (const std::byte byte : live.contains(address) ? live.at(address) : std::vector<std::byte>())
      got.push_back(std::to_integer<int>(byte));
    return got;
  };
  EXPECT_EQ(bytes_at(0x1004), (std::vector<int>{9, 9, 1, 8}));
  EXPECT_EQ(bytes_at(0x1008), (std::vector<int>{8, 2, 7, 7}));
  EXPECT_EQ(bytes_at(0x1020), (std::vector<int>{4, 4, 6, 6}));
  EXPECT_FALSE(live.contains(0x1010));  // its bytes are not known, and the patch changed the first two
  EXPECT_TRUE(live.contains(0x1012));
}

TEST(AnnounceFold, TakesWhatIsNoRecord) {
  AnnounceFold folded;
  for (size_t size = 0; size < 300; ++size) folded.take(TimeNs{size}, bytes(size, size));
  folded.each([](TimeNs, Bytes) { FAIL(); });
}

}  // namespace
}  // namespace ptd::live
