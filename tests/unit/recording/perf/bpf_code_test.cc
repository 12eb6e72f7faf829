// Code and names of BPF programs and trampolines.
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;

TEST_F(Fold, BpfSubProgramsHaveTheirOwnBytes) {
  perfio::BpfProgInfo program;
  program.id = 7;
  program.name = "filter";
  program.jited_insns = bytes_of({0x11, 0x12, 0x13, 0x21, 0x22});
  program.jited_ksyms = {kText.value + 0x1000, kText.value + 0x2000};
  program.jited_func_lens = {3, 2};
  features_.bpf_progs.push_back(program);
  perfio::KsymbolRecord symbol{kText.value + 0x1000, 3, 1, false, "bpf_prog_1_filter"};
  feed(symbol, 1000);
  symbol.addr = kText.value + 0x2000;
  symbol.size_bytes = 2;
  symbol.name = "bpf_prog_2_helper";
  feed(symbol, 1000);
  feed(perfio::BpfRecord{1, 7, {}}, 1000);
  feed(perfio::KsymbolRecord{kText.value + 0x3000, 64, 1, false, "bpf_trampoline_1"}, 1500);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 2000), 0x11);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x2000, 2000), 0x21);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x2001, 2000), 0x22);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 500), -1);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3000, 2000), -1);
  ASSERT_EQ(data_->timeline.findings().size(), 1U);
  EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::bpf_bytes_missing);
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x2001, TimeNs{2000})->name, "bpf_prog_2_helper");
}

TEST_F(Fold, ABpfAddressReusedByAnotherProgram) {
  for (const uint32_t id : {1U, 2U}) {
    perfio::BpfProgInfo program;
    program.id = id;
    program.jited_insns = bytes_of({id == 1 ? 0xaa : 0xbb});
    program.jited_ksyms = {kText.value + 0x1000};
    program.jited_func_lens = {1};
    features_.bpf_progs.push_back(program);
  }
  feed(perfio::KsymbolRecord{kText.value + 0x1000, 1, 1, false, "bpf_prog_a"}, 1000);
  feed(perfio::BpfRecord{1, 1, {}}, 1000);
  feed(perfio::KsymbolRecord{kText.value + 0x1000, 1, 1, true, "bpf_prog_a"}, 2000);
  feed(perfio::KsymbolRecord{kText.value + 0x1000, 1, 1, false, "bpf_prog_b"}, 3000);
  feed(perfio::BpfRecord{1, 2, {}}, 3000);
  feed(perfio::KsymbolRecord{kText.value + 0x1000, 1, 1, true, "bpf_prog_b"}, 4000);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 1500), 0xaa);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 3500), 0xbb);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x1000, 10'000'000'000), -1);  // long after the grace period
}

// A program of four bytes, loaded at 1000. `read`: its bytes, which a recorder reads after the load.
class PokedProgram : public Fold {
 protected:
  void load(std::initializer_list<int> read) {
    perfio::BpfProgInfo program;
    program.id = 7;
    program.jited_insns = bytes_of(read);
    program.jited_ksyms = {kText.value + 0x1000};
    program.jited_func_lens = {4};
    features_.bpf_progs = {program};
    feed(perfio::KsymbolRecord{kText.value + 0x1000, 4, 1, false, "bpf_prog_1"}, 1000);
    feed(perfio::BpfRecord{1, 7, {}}, 1000);
  }
  int byte(uint64_t offset, uint64_t time) { return byte_at(kKernelSpace, kText.value + 0x1000 + offset, time); }
};

TEST_F(PokedProgram, IsReadAfterAPoke) {
  load({0x22, 0x44, 0x50, 0xc3});
  poke(0x1000, bytes_of({0x10}), bytes_of({0x11}), 2000);
  poke(0x1001, bytes_of({0x40}), bytes_of({0x44}), 3000);
  poke(0x1000, bytes_of({0x11}), bytes_of({0x22}), 4000);
  poke(0x1002, bytes_of({0x50}), bytes_of({0x55}), 5000);  // after it was read
  finish();
  EXPECT_TRUE(data_->timeline.findings().empty());
  EXPECT_EQ(byte(0, 1500), 0x10);
  EXPECT_EQ(byte(0, 2500), 0x11);
  EXPECT_EQ(byte(0, 4500), 0x22);
  EXPECT_EQ(byte(1, 1500), 0x40);
  EXPECT_EQ(byte(1, 3500), 0x44);
  EXPECT_EQ(byte(2, 4500), 0x50);
  EXPECT_EQ(byte(2, 5500), 0x55);
}

// Its bytes are those after the second poke and before the first: a record was lost.
TEST_F(PokedProgram, WasNeverWhatWasRead) {
  load({0x10, 0x44, 0x50, 0xc3});
  poke(0x1000, bytes_of({0x10}), bytes_of({0x11}), 2000);
  poke(0x1001, bytes_of({0x40}), bytes_of({0x44}), 3000);
  finish();
  ASSERT_FALSE(data_->timeline.findings().empty());
  EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::poke_old_bytes_mismatch);
}

TEST_F(PokedProgram, HasPokesThatDoNotContinueEachOther) {
  load({0x22, 0x44, 0x50, 0xc3});
  poke(0x1000, bytes_of({0x10}), bytes_of({0x11}), 2000);
  poke(0x1000, bytes_of({0x12}), bytes_of({0x22}), 3000);
  finish();
  EXPECT_FALSE(data_->timeline.findings().empty());
  EXPECT_EQ(byte(0, 3500), 0x22);
}

// The records of trampolines say that each takes a page; since Linux 6.9 they lie in one with others (bpf_jit_comp.c,
// "arch_alloc_bpf_trampoline").
TEST_F(Fold, TrampolinesShareAPage) {
  const auto name_code = [&](uint64_t offset, uint32_t size, const char* name, std::initializer_list<int> code, uint64_t time) {
    feed(perfio::KsymbolRecord{kText.value + offset, size, 1, false, name}, time);
    poke(offset, {}, bytes_of(code), time);
  };
  name_code(0x3000, 4096, "bpf_trampoline_1", {0x55, 0xc3}, 1000);
  name_code(0x3100, 2, "bpf_prog_1", {0xaa, 0xc3}, 2000);
  name_code(0x3200, 4096, "bpf_trampoline_1", {0x56, 0xc3}, 3000);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3000, 3500), 0x55);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3100, 3500), 0xaa);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3200, 3500), 0x56);
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x3101, TimeNs{3500})->name, "bpf_prog_1");
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x3001, TimeNs{3500})->name, "bpf_trampoline_1");
}

// A recording without TEXT_POKE records has no bytes of trampolines: they do not hide those of programs.
TEST_F(Fold, TrampolinesWithoutBytesShareAPage) {
  perfio::BpfProgInfo program;
  program.id = 7;
  program.jited_insns = bytes_of({0xaa, 0xc3});
  program.jited_ksyms = {kText.value + 0x3100};
  program.jited_func_lens = {2};
  features_.bpf_progs = {program};
  feed(perfio::KsymbolRecord{kText.value + 0x3100, 2, 1, false, "bpf_prog_1"}, 1000);
  feed(perfio::BpfRecord{1, 7, {}}, 1000);
  feed(perfio::KsymbolRecord{kText.value + 0x3000, 4096, 1, false, "bpf_trampoline_1"}, 2000);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3100, 1500), 0xaa);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3100, 2500), 0xaa);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x3000, 2500), -1);
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x3101, TimeNs{2500})->name, "bpf_prog_1");
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x30ff, TimeNs{2500})->name, "bpf_trampoline_1");
}

}  // namespace
}  // namespace ptd
