// PokeFold and LossFold: what a folded log keeps of changes of kernel code and of losses.
#include "capture/live/session/fold/poke_fold.h"

#include "perfio/format/feature_encode.h"
#include "tests/unit/live/session_feed.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr uint64_t kSlots = 0xffffffffc0020000;
constexpr uint16_t kOol = 2;

std::vector<std::byte> filled(size_t count, int value) { return std::vector<std::byte>(count, static_cast<std::byte>(value)); }

Payload poke(uint64_t address, std::vector<std::byte> from, std::vector<std::byte> to) {
  return TextPokeRecord{address, std::move(from), std::move(to)};
}

/// A poke or loss of the log.
struct Kept {
  uint64_t time = 0, address = 0;
  Bytes old_bytes, new_bytes;
};

std::vector<Kept> pokes_of(const SessionLog& log) {
  std::vector<Kept> kept;
  log.each([&](const LogEntry& entry) {
    if (entry.kind != EntryKind::record || read_record_header(entry.bytes).type != kRecordTextPoke) return;
    Cursor body(entry.bytes.subspan(kRecordHeaderBytes));
    Kept poke{trailer_time(entry.bytes), body.u64(), {}, {}};
    const uint16_t old_size = body.u16(), new_size = body.u16();
    poke.old_bytes = body.take(old_size);
    poke.new_bytes = body.take(new_size);
    kept.push_back(poke);
  });
  return kept;
}

std::vector<uint64_t> times_of_pokes(const SessionLog& log) {
  std::vector<uint64_t> times;
  for (const Kept& poke : pokes_of(log)) times.push_back(poke.time);
  return times;
}

/// A log that is full of switches after the records that a test feeds.
class PokeFolding : public testing::Test {
 protected:
  void fold() {
    const uint64_t before = log_->folds();
    while (log_->folds() < before + 4) feed_(SwitchRecord{});
  }
  std::unique_ptr<SessionLog> log_ = std::move(*SessionLog::create(64U << 10, 3));
  Feed feed_{*log_};
};

TEST_F(PokeFolding, PokesStayAsTheyWere) {
  feed_(KsymbolRecord{kSlots, 4096, kOol, false, "kprobe_insn_page"});
  feed_(poke(kSlots, {}, filled(16, 0xcc)));
  feed_(poke(0xffffffff81000000, filled(5, 1), filled(5, 2)));
  feed_(poke(0xffffffff81000000, filled(5, 2), filled(5, 3)));
  fold();
  EXPECT_EQ(times_of_pokes(*log_), (std::vector<uint64_t>{2, 3, 4}));
  const Kept last = pokes_of(*log_).at(2);
  EXPECT_EQ(last.address, 0xffffffff81000000);
  EXPECT_TRUE(std::ranges::equal(last.old_bytes, filled(5, 2)));
  EXPECT_TRUE(std::ranges::equal(last.new_bytes, filled(5, 3)));
}

TEST_F(PokeFolding, PokesGoWithTheNameOfTheirCode) {
  constexpr uint64_t kProgram = 0xffffffffc0010000, kTrampoline = 0xffffffffc0030000;
  feed_(poke(kProgram + 51, filled(5, 1), filled(5, 2)));
  feed_(poke(kProgram + 78, filled(5, 1), filled(5, 2)));  // 2: after its end
  feed_(poke(kSlots + 4080, {}, filled(16, 1)));
  feed_(poke(kTrampoline + 0x800, filled(5, 1), filled(5, 2)));  // 4: of another trampoline in its page
  feed_(KsymbolRecord{kProgram, 78, 1, true, "bpf_prog_main"});
  feed_(KsymbolRecord{kSlots, 4096, kOol, true, "kprobe_insn_page"});
  feed_(KsymbolRecord{kTrampoline, 4096, 1, true, "bpf_trampoline_1"});
  fold();
  EXPECT_EQ(times_of_pokes(*log_), (std::vector<uint64_t>{2, 4}));
}

// The recorder reads the code of a module some time after its creation, and pokes may be read before.
TEST_F(PokeFolding, CodeThatTheRecorderReadReplacesOlderPokesOnly) {
  feed_(poke(kSlots + 4, filled(4, 1), filled(4, 2)));  // 1: of a module that was there before
  feed_.time = 10;
  feed_(poke(kSlots + 8, filled(4, 1), filled(4, 2)));  // 10
  fold();
  log_->append({EntryKind::code, 1, 0, bytes_of(poke(kSlots, {}, filled(64, 1)), 5)});
  fold();
  EXPECT_EQ(times_of_pokes(*log_), (std::vector<uint64_t>{10}));
}

// Readers take a poke whose place among the records of its ring contradicts its time for a wrong one (PokeOrder).
TEST_F(PokeFolding, TheRecordsOfARingStayInOrderOfTime) {
  feed_(poke(kSlots + 8, filled(4, 1), filled(4, 2)));
  feed_(KsymbolRecord{kSlots + 0x1000, 64, 1, false, "bpf_prog_b"});
  feed_(poke(kSlots + 4, filled(4, 1), filled(4, 2)));
  feed_(KsymbolRecord{kSlots, 64, 1, false, "bpf_prog_a"});
  feed_(LostRecord{5, 1});
  fold();
  std::vector<uint64_t> times;
  log_->each([&](const LogEntry& entry) { times.push_back(trailer_time(entry.bytes)); });
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_TRUE(std::ranges::includes(times, std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(PokeFolding, LossesAreOneRecordForEachRing) {
  feed_(LostRecord{5, 100});
  log_->append({EntryKind::record, 2, 100, bytes_of(LostRecord{6, 7}, 2)});
  feed_.time = 3;
  feed_(LostRecord{0, 9, true});
  fold();
  const uint64_t last = feed_.time;
  feed_(LostRecord{5, 11});
  fold();
  struct Loss {
    uint16_t ring;
    uint64_t time, count;
    bool samples;
    bool operator==(const Loss&) const = default;
  };
  std::vector<Loss> losses;
  log_->each([&](const LogEntry& entry) {
    const uint32_t type = read_record_header(entry.bytes).type;
    if (entry.kind != EntryKind::record || (type != kRecordLost && type != kRecordLostSamples)) return;
    Cursor body(entry.bytes.subspan(kRecordHeaderBytes));
    if (type == kRecordLost) body.skip(8);
    losses.push_back({entry.ring, trailer_time(entry.bytes), body.u64(), type == kRecordLostSamples});
  });
  EXPECT_EQ(losses, (std::vector<Loss>{{2, 2, 7, false}, {1, 3, 9, true}, {1, last, 111, false}}));
}

/// The times of the pokes that are left after more than kMaxBytes of pokes of one place, which come last.
std::vector<uint64_t> times_when_full(const std::vector<Payload>& first) {
  LossFold losses;
  PokeFold pokes(losses);
  uint64_t time = 0;
  for (const Payload& payload : first) pokes.take(bytes_of(payload, ++time), 1);
  const std::vector<std::byte> filler = bytes_of(poke(kSlots + 0x10000, filled(5, 1), filled(5, 1)), 1000);
  for (uint64_t bytes = 0; bytes <= PokeFold::kMaxBytes; bytes += filler.size()) pokes.take(filler, 1);
  std::vector<uint64_t> times;
  pokes.each([&](uint16_t, const std::vector<std::byte>& record) {
    if (trailer_time(record) <= time) times.push_back(trailer_time(record));
  });
  losses.each([](uint16_t, const std::vector<std::byte>&) { ADD_FAILURE() << "nothing was lost"; });
  std::ranges::sort(times);
  return times;
}

TEST(PokeFold, TheLastPokeOfEachPlaceStaysIfThereAreTooMany) {
  EXPECT_EQ(times_when_full({poke(kSlots, filled(5, 1), filled(5, 2)),         // 1
                             poke(kSlots, filled(5, 2), filled(5, 3)),         // 2: replaces it
                             poke(kSlots + 16, filled(2, 1), filled(2, 2)),    // 3
                             poke(kSlots + 14, filled(5, 1), filled(5, 3)),    // 4: covers it
                             poke(kSlots + 18, filled(5, 3), filled(5, 4))}),  // 5: overlaps it
            (std::vector<uint64_t>{2, 4, 5}));
}

// What was replaced must show: the old bytes of the first poke that stays are not those of the code before it.
TEST(PokeFold, CodeThatIsAsBeforeAgainHasNotStayedSo) {
  std::vector<Payload> fed;
  for (uint64_t count = 1; count < 8; ++count) {
    fed.push_back(poke(kSlots, filled(5, count % 2 == 1 ? 1 : 2), filled(5, count % 2 == 1 ? 2 : 1)));
    const std::vector<uint64_t> first_and_last = {count - 1, count};
    EXPECT_EQ(times_when_full(fed), count == 1 || count % 2 == 0 ? std::vector<uint64_t>{count} : first_and_last) << count;
  }
  LossFold losses;
  PokeFold pokes(losses);  // the same, when it was full before
  const std::vector<std::byte> filler = bytes_of(poke(kSlots + 0x10000, filled(5, 1), filled(5, 1)), 1000);
  for (uint64_t time = 1; time < 8; ++time) {
    pokes.take(bytes_of(fed[time - 1], time), 1);
    for (uint64_t bytes = 0; bytes <= PokeFold::kMaxBytes; bytes += filler.size()) pokes.take(filler, 1);
    std::vector<uint64_t> times;
    pokes.each([&](uint16_t, const std::vector<std::byte>& record) {
      if (trailer_time(record) < 8) times.push_back(trailer_time(record));
    });
    std::ranges::sort(times);
    const std::vector<uint64_t> first_and_last = {time - 1, time};
    EXPECT_EQ(times, time == 1 || time % 2 == 0 ? std::vector<uint64_t>{time} : first_and_last) << time;
  }
}

// Readers need the record that created the code: without it, the code would be older.
TEST(PokeFold, ACreationStaysUntilTheCodeGoes) {
  std::vector<Payload> fed = {poke(kSlots, {}, filled(16, 1)), poke(kSlots, filled(16, 1), filled(16, 2)),
                              poke(kSlots, filled(16, 2), filled(16, 3))};
  EXPECT_EQ(times_when_full(fed), (std::vector<uint64_t>{1, 3}));
  fed.push_back(poke(kSlots, filled(16, 3), {}));
  EXPECT_EQ(times_when_full(fed), (std::vector<uint64_t>{4}));
  fed.push_back(poke(kSlots, {}, filled(16, 4)));
  EXPECT_EQ(times_when_full(fed), (std::vector<uint64_t>{5}));
}

TEST(PokeFold, TooManyPlacesCountAsLost) {
  LossFold losses;
  PokeFold pokes(losses);
  constexpr uint64_t kCount = 60'000;
  for (uint64_t i = 0; i < kCount; ++i) pokes.take(bytes_of(poke(kSlots + i * 8, filled(5, 1), filled(5, 2)), i + 1), 1);
  uint64_t bytes = 0, kept = 0, oldest = ~uint64_t{0};
  pokes.each([&](uint16_t, const std::vector<std::byte>& record) {
    ++kept;
    bytes += record.size();
    oldest = std::min(oldest, trailer_time(record));
  });
  EXPECT_LE(bytes, PokeFold::kMaxBytes);
  EXPECT_GT(bytes, PokeFold::kMaxBytes / 4);
  EXPECT_EQ(oldest, kCount - kept + 1) << "the newest are kept";
  size_t records = 0;
  losses.each([&](uint16_t ring, const std::vector<std::byte>& record) {
    ++records;
    EXPECT_EQ(ring, 1U);
    EXPECT_EQ(record, bytes_of(LostRecord{5, kCount - kept}, oldest - 1));
  });
  EXPECT_EQ(records, 1U);
}

}  // namespace
}  // namespace ptd::live
