// Sideband fold: generated code in anonymous memory that becomes executable, and that is reported again, after the code was logged.
#include <chrono>
#include <vector>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kFresh = 0x7f0000000000;

/// Process 10 with a jitdump.
class FreshMemoryFold : public Fold {
 protected:
  FreshMemoryFold() {
    for (const uint32_t word : {0x4A695444U, 1U, 40U, 62U, 0U, 10U}) put(word);
    put(uint64_t{0}), put(uint64_t{0});
  }
  template <class T>
  void put(T value) {
    image_test::append(dump_, value);
  }
  void load(uint64_t address, uint64_t time, std::vector<int> code, uint32_t pid = 10) {
    put(uint32_t{0}), put(static_cast<uint32_t>(16 + 40 + 2 + code.size())), put(time), put(pid), put(pid);
    put(address), put(address), put(uint64_t{code.size()}), put(++index_), put('a'), put('\0');
    for (const int byte : code) put(static_cast<uint8_t>(byte));
  }
  void move(uint64_t from, uint64_t to, uint64_t size, uint64_t time) {
    put(uint32_t{1}), put(uint32_t{16 + 48}), put(time), put(uint32_t{10}), put(uint32_t{10});
    put(to), put(from), put(to), put(size), put(index_);
  }
  void begin() {
    dir_.write("tmp/jit-10.dump", dump_);
    comm(10, 10, "java", true, 1);
    map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  }
  std::vector<std::byte> dump_;
  uint64_t index_ = 0;
};

// LLVM logs code, then makes its memory executable. Other code comes to the same place in the same way.
TEST_F(FreshMemoryFold, ShowsTheCodeThatWasLoadedBefore) {
  load(kFresh, 1000, {0x11, 0x12});
  load(kFresh, 3000, {0x21, 0x22});
  begin();
  map(10, kFresh, "//anon", 2000);
  map(10, kFresh, "//anon", 4000);
  finish();
  EXPECT_EQ(user_byte(10, kFresh, 1500), 0x11);
  EXPECT_EQ(user_byte(10, kFresh + 1, 2500), 0x12);
  EXPECT_EQ(user_byte(10, kFresh, 3500), 0x21);
  EXPECT_EQ(user_byte(10, kFresh + 1, 4500), 0x22);
  EXPECT_EQ(user_byte(10, kFresh + 2, 4500), -1);
  EXPECT_TRUE(data_->timeline.findings().empty());
}

// A function over a page boundary; only its second page becomes executable later.
TEST_F(FreshMemoryFold, ShowsAPartOfAFunction) {
  load(kFresh + 0xffe, 1000, {0x11, 0x12, 0x13, 0x14});
  begin();
  map(10, kFresh + 0x1000, "//anon", 2000);
  finish();
  EXPECT_EQ(user_byte(10, kFresh + 0xfff, 2500), 0x12);
  EXPECT_EQ(user_byte(10, kFresh + 0x1001, 2500), 0x14);
  EXPECT_EQ(user_byte(10, kFresh + 0x1002, 2500), -1);
}

TEST_F(FreshMemoryFold, HasNotWhatMovedAway) {
  load(kFresh, 1000, {0x11, 0x12});
  move(kFresh, kFresh + 0x100, 2, 1500);
  begin();
  map(10, kFresh, "//anon", 2000);
  finish();
  EXPECT_EQ(user_byte(10, kFresh, 2500), -1);
  EXPECT_EQ(user_byte(10, kFresh + 0x100, 2500), 0x11);
}

// A file came to the place of the code, then other memory: nothing says what that holds.
TEST_F(FreshMemoryFold, IsNotMemoryAfterAFile) {
  load(kFresh, 1000, {0x11, 0x12});
  load(kFresh + 0x10, 2500, {0x21, 0x22});
  begin();
  map(10, kFresh, "//anon", 500);
  map(10, kFresh, "/bin/one", 1500);
  map(10, kFresh, "/dev/zero (deleted)", 2000);
  finish();
  EXPECT_EQ(user_byte(10, kFresh, 1200), 0x11);
  EXPECT_EQ(user_byte(10, kFresh + kCode, 1700), 0x55);
  EXPECT_EQ(user_byte(10, kFresh, 2700), -1);
  EXPECT_EQ(user_byte(10, kFresh + 0x10, 2700), 0x21);
}

// A library is unmapped, of which no record tells, and code comes to its place: what was logged since is not the library's. What was logged
// before it is gone.
TEST_F(FreshMemoryFold, ShowsTheCodeThatWasLoadedAfterAFile) {
  load(kFresh, 1000, {0x11, 0x12});
  load(kFresh + 0x20, 1000, {0x13, 0x14});
  load(kFresh, 2500, {0x21, 0x22});
  begin();
  map(10, kFresh, "/bin/one", 1500);
  map(10, kFresh, "//anon", 3000);
  finish();
  EXPECT_EQ(user_byte(10, kFresh + kCode, 1700), 0x55);
  EXPECT_EQ(user_byte(10, kFresh, 3500), 0x21);
  EXPECT_NE(user_byte(10, kFresh + 0x20, 3500), 0x13);
}

// A child logs code in its parent's file: in memory that it has from its parent, and in its own.
TEST_F(FreshMemoryFold, ShowsTheCodeOfAChild) {
  load(kFresh, 1000, {0x11, 0x12});
  load(kFresh, 2000, {0x21, 0x22}, 11);
  load(kFresh + 0x1000, 2000, {0x31, 0x32}, 11);
  begin();
  map(10, kFresh, "//anon", 900);
  fork(10, 11, 11, 1500);
  map(11, kFresh, "//anon", 2050);
  map(11, kFresh + 0x1000, "//anon", 2050);
  finish();
  EXPECT_EQ(user_byte(11, kFresh, 1700), 0x11);
  EXPECT_EQ(user_byte(11, kFresh, 2500), 0x21);
  EXPECT_EQ(user_byte(11, kFresh + 0x1000, 2500), 0x31);
  EXPECT_EQ(user_byte(10, kFresh, 2500), 0x11);
  EXPECT_EQ(user_byte(10, kFresh + 0x1000, 2500), -1);
}

// Each address is fresh once.
TEST_F(FreshMemoryFold, TakesLittleTimeForManyFunctionsAndRecords) {
  constexpr uint64_t kFunctions = 20'000, kRecords = 20'000;
  for (uint64_t i = 0; i < kFunctions; ++i) load(kFresh + i * 2, 1000 + i, {0x11, 0x12});
  begin();
  for (uint64_t i = 0; i < kRecords; ++i) {
    perfio::MmapRecord record;
    record.pid = record.tid = 10;
    record.addr = kFresh;
    record.size_bytes = 1U << 20;
    record.path = "//anon";
    feed(record, 100'000 + i, 10, 10);
  }
  const auto from = std::chrono::steady_clock::now();
  finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
  EXPECT_LT(took.count(), 10);
  EXPECT_EQ(user_byte(10, kFresh + 2, 200'000), 0x11);
}

// A BPF program was removed, and a trampoline is created in its memory at once.
TEST_F(Fold, CodeCreatedInMemoryOfARemovedProgramStays) {
  const auto name = [this](bool unregister, uint64_t time) {
    feed(perfio::KsymbolRecord{kText.value + 0x1000, 64, 1, unregister, "bpf_prog_a"}, time);
  };
  for (const bool soon : {true, false}) {
    start();
    name(false, 1'000'000'000);
    name(true, soon ? 2'000'000'000 : 1'900'000'000);
    poke(0x1000, {}, image_test::bytes_of({0x55, 0xc3}), 2'050'000'000);
    finish();
    EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 2'060'000'000), 0x55) << soon;
    EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 2'300'000'000), 0x55) << soon;
    // The bytes are not the program's.
    ASSERT_EQ(data_->timeline.findings().size(), 1U) << soon;
    EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::bpf_bytes_missing) << soon;
    const auto symbol = data_->symbolizer->find(kKernelSpace, kText + 0x1000, TimeNs{2'060'000'000});
    EXPECT_TRUE(!symbol || symbol->name != "bpf_prog_a") << soon;
  }
}

// Another program is loaded at the address of a removed one.
TEST_F(Fold, ABpfProgramHasItsNameFromItsLoad) {
  for (const uint64_t offset : {0U, 8U}) {
    start();
    feed(perfio::KsymbolRecord{kText.value + 0x1008, 64, 1, false, "bpf_prog_a"}, 1'000'000'000);
    feed(perfio::KsymbolRecord{kText.value + 0x1008, 64, 1, true, "bpf_prog_a"}, 2'000'000'000);
    feed(perfio::KsymbolRecord{kText.value + 0x1008 - offset, 64, 1, false, "bpf_prog_b"}, 2'050'000'000);
    finish();
    EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x1009, TimeNs{2'020'000'000})->name, "bpf_prog_a");
    EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x1009, TimeNs{2'060'000'000})->name, "bpf_prog_b") << offset;
  }
}

}  // namespace
}  // namespace ptd
