// Sideband fold: hand-made records -> spaces, mappings, edits, contexts, names.
#include <algorithm>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;
using image_test::SmallElf;
using image_test::TempDir;

TEST_F(Fold, ForkCopiesExecReplacesThreadsShare) {
  comm(10, 10, "shell", false, 0);
  map(10, 0x400000, "/bin/one", 0);
  fork(10, 11, 11, 1000);           // child process
  fork(10, 10, 12, 1100);           // thread of the parent: ppid == pid
  comm(11, 11, "two", true, 2000);  // exec
  map(11, 0x400000, "/bin/two", 2001);
  finish();
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 500), 0x55);
  EXPECT_EQ(user_byte(11, 0x400000 + kCode, 1500), 0x55);
  EXPECT_EQ(user_byte(11, 0x400000 + kCode, 2500), 0x90);
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 2500), 0x55);
  EXPECT_EQ(user_byte(12, 0x400000 + kCode, 2500), 0x55);
  EXPECT_EQ(data_->contexts.at_thread(12, TimeNs{1500}).space, data_->contexts.at_thread(10, TimeNs{1500}).space);
  EXPECT_NE(data_->contexts.at_thread(11, TimeNs{1500}).space, data_->contexts.at_thread(10, TimeNs{1500}).space);
  EXPECT_EQ(data_->thread_names.at(11), "two");
  EXPECT_EQ(data_->thread_names.at(12), "shell");
}

TEST_F(Fold, PerfsOwnForksDoNotCopy) {
  map(10, 0x400000, "/bin/one", 0);
  fork(10, 11, 11, 0);
  finish();
  EXPECT_EQ(user_byte(11, 0x400000 + kCode, 500), -1);
}

TEST_F(Fold, AMappingReplacesFromItsTimeOn) {
  map(10, 0x400000, "/bin/one", 0);
  map(10, 0x400000, "/bin/two", 3000);
  finish();
  const SpaceId space = data_->timeline.section(0).space;
  EXPECT_EQ(byte_at(space, 0x400000 + kCode, 2999), 0x55);
  EXPECT_EQ(byte_at(space, 0x400000 + kCode, 3000), 0x90);
}

TEST_F(Fold, WrongAndAbsentFilesAreMissingImages) {
  map(10, 0x400000, "/bin/one", 0, std::string(20, '\x77'));
  map(10, 0x500000, "/bin/none", 0);
  map(10, 0x600000, "//anon", 0);
  finish();
  ASSERT_EQ(data_->missing.size(), 3U);
  const auto reason_of = [&](const std::string& path) {
    const auto found = std::find_if(data_->missing.begin(), data_->missing.end(), [&](const MissingImage& m) { return m.path == path; });
    return found == data_->missing.end() ? std::string() : found->reason;
  };
  EXPECT_EQ(reason_of("/bin/one"), "wrong build id");
  EXPECT_EQ(reason_of("/bin/none"), "file not found");
  EXPECT_EQ(reason_of("//anon"), "anonymous memory");
  EXPECT_EQ(std::count_if(data_->timeline.findings().begin(), data_->timeline.findings().end(),
                          [](const Finding& f) { return f.kind == FindingKind::build_id_mismatch; }),
            1);
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 5), -1);
}

TEST_F(Fold, AProcessHasAFileSystemOfItsOwn) {
  SmallElf elf;
  elf.code = bytes_of({0x91, 0xc3});
  dir_.write("box/bin/one", elf.bytes());
  options_.process_symfs[10] = {dir_.path() + "/box"};
  start();
  comm(10, 10, "boxed", false, 0);
  comm(20, 20, "free", false, 0);
  map(10, 0x400000, "/bin/one", 0);
  map(20, 0x400000, "/bin/one", 0);
  fork(10, 11, 11, 1000);
  comm(11, 11, "one", true, 2000);
  map(11, 0x400000, "/bin/one", 2001);  // a child: uses the same file system
  finish();
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 500), 0x91);
  EXPECT_EQ(user_byte(20, 0x400000 + kCode, 500), 0x55);
  EXPECT_EQ(user_byte(11, 0x400000 + kCode, 2500), 0x91);
}

TEST_F(Fold, AnonymousMemoryInPlaceOfTextIsTakenForACopy) {
  comm(10, 10, "huge", false, 0);
  map(10, 0x400000, "/bin/one", 0);
  map(10, 0x400000, "//anon", 1000);
  map(10, 0x400000, "//anon", 1001);  // announced again, as by mprotect
  map(10, 0x500000, "//anon", 1000);
  finish();
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 500), 0x55);
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 1500), 0x55);
  EXPECT_EQ(user_byte(10, 0x500000 + kCode, 1500), -1);
  const SpaceId space = data_->contexts.at_thread(10, TimeNs{1500}).space;
  EXPECT_FALSE(data_->timeline.section(data_->timeline.section_at(space, Ip{0x400000 + kCode}, TimeNs{500})).assumed);
  EXPECT_TRUE(data_->timeline.section(data_->timeline.section_at(space, Ip{0x400000 + kCode}, TimeNs{1500})).assumed);
  ASSERT_EQ(data_->warnings.size(), 1U);
  EXPECT_NE(data_->warnings[0].find("mapped anonymous memory over the text of /bin/one"), std::string::npos);
}

TEST_F(Fold, AMappingCanBeGiven) {
  options_.assumed.push_back({10, dir_.path() + "/bin/two", 0, 0, 0x700000});
  options_.assumed.push_back({99, dir_.path() + "/bin/two", 0, 0, 0x700000});
  start();
  comm(10, 10, "mapped", false, 0);
  map(10, 0x700000, "//anon", 500);
  finish();
  EXPECT_EQ(user_byte(10, 0x700000 + kCode, 100), 0x90);
  EXPECT_EQ(user_byte(10, 0x700000 + kCode, 900), 0x90);
  const SpaceId space = data_->contexts.at_thread(10, TimeNs{900}).space;
  EXPECT_TRUE(data_->timeline.section(data_->timeline.section_at(space, Ip{0x700000 + kCode}, TimeNs{900})).assumed);
  ASSERT_EQ(data_->warnings.size(), 1U);
  EXPECT_NE(data_->warnings[0].find("no process 99 was recorded"), std::string::npos);
}

TEST_F(Fold, BuildIdsOfTheHeaderApplyToMappingsWithout) {
  features_.build_ids.push_back({"/bin/one", std::string(20, '\x77'), -1, 0});
  map(10, 0x400000, "/bin/one", 0);
  finish();
  ASSERT_EQ(data_->missing.size(), 1U);
  EXPECT_EQ(data_->missing[0].build_id, "7777777777777777777777777777777777777777");
}

TEST_F(Fold, SwitchesInBothForms) {
  comm(10, 10, "a", false, 0);
  comm(20, 20, "b", false, 0);
  perfio::SwitchRecord out;
  out.out = out.cpu_wide = true;
  out.next_prev_pid = out.next_prev_tid = 20;
  feed(out, 1000, 10, 10, 3);
  perfio::SwitchRecord in;
  in.cpu_wide = true;
  in.next_prev_pid = in.next_prev_tid = 10;
  feed(in, 1010, 20, 20, 3);
  feed(perfio::SwitchRecord{}, 2000, 10, 10, 4);  // per-process recording: IN
  perfio::SwitchRecord plain_out;
  plain_out.out = true;
  feed(plain_out, 2500, 10, 10, 4);
  finish();
  const ContextTrack& contexts = data_->contexts;
  EXPECT_EQ(contexts.at_cpu(3, TimeNs{500}).tid, 10);  // the leaving thread was running before
  EXPECT_EQ(contexts.at_cpu(3, TimeNs{1005}).tid, 20);
  EXPECT_EQ(contexts.at_cpu(3, TimeNs{5000}).pid, 20);
  EXPECT_EQ(contexts.at_cpu(4, TimeNs{2600}).tid, 10);  // no other thread is traced there
  EXPECT_NE(contexts.at_cpu(3, TimeNs{500}).space, contexts.at_cpu(3, TimeNs{5000}).space);
}

TEST_F(Fold, SchedSwitchSamplesFindTheProcessOfAThread) {
  fork(10, 10, 12, 100);
  feed(perfio::SchedSwitchSample{0, 12}, 1000, 0, 0, 1);
  feed(perfio::SchedSwitchSample{12, 0}, 2000, 10, 12, 1);
  finish();
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{1500}).pid, 10);
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{2500}).tid, 0);
}

TEST_F(Fold, PokesBecomeEditsAtTheirTime) {
  poke(0, {}, bytes_of({0x0f, 0x1f, 0x44, 0x00, 0x00}), 1000);
  poke(0, bytes_of({0x0f, 0x1f, 0x44, 0x00, 0x00}), bytes_of({0xe9, 0x01, 0x02, 0x03, 0x04}), 2000);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value, 1500), 0x0f);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value, 2500), 0xe9);
  EXPECT_TRUE(data_->timeline.findings().empty());
}

TEST_F(Fold, FrozenTimelinesKeepTheFirstBytes) {
  options_.freeze = true;
  start();
  poke(0, bytes_of({0x90}), bytes_of({0xc3}), 1000);
  finish();
  EXPECT_NE(byte_at(kKernelSpace, kText.value, 1500), 0xc3);
}

TEST_F(Fold, PokesOutsideTheKernelAreBadRecords) {
  feed(perfio::TextPokeRecord{0x400000, bytes_of({1}), bytes_of({2})}, 1000);
  feed(perfio::TextPokeRecord{~uint64_t{0}, bytes_of({1, 2}), bytes_of({2, 3})}, 1000);
  finish();
  ASSERT_EQ(data_->timeline.findings().size(), 2U);
  EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::bad_record);
}

TEST_F(Fold, EveryNthPokeIsDroppedBySeed) {
  options_.drop_nth_poke = 10;
  options_.drop_poke_seed = 3;
  std::vector<uint64_t> dropped;
  for (uint64_t i = 0; i < 40; ++i) {
    if (SidebandFold::drops(options_, i)) dropped.push_back(i);
  }
  EXPECT_EQ(dropped, (std::vector<uint64_t>{3, 13, 23, 33}));
  options_.drop_poke_seed = 1234;
  uint64_t count = 0;
  for (uint64_t i = 0; i < 10000; ++i) count += SidebandFold::drops(options_, i) ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(count), 1000, 120);
}

TEST_F(Fold, OutOfLinePagesLiveByPokes) {
  feed(perfio::KsymbolRecord{kText.value + 0x5000, 4096, 2, false, "kprobe_insn_page"}, 1000);
  poke(0x5000, {}, bytes_of({0xcc, 0xc3}), 1100);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x5000, 1500), 0xcc);
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x5001, TimeNs{1500})->name, "kprobe_insn_page");
  EXPECT_TRUE(data_->missing.empty());
}

// kprobe slots end with their page's name, without a poke (kernel/kprobes.c, "collect_one_slot"): reuse of the page is not a lost record.
TEST_F(Fold, OutOfLinePagesGoWithTheirName) {
  const auto name_page = [&](bool unregister, uint64_t time) {
    feed(perfio::KsymbolRecord{kText.value + 0x5000, 4096, 2, unregister, "kprobe_insn_page"}, time);
  };
  name_page(false, 1000);
  poke(0x5000, {}, bytes_of({0xcc, 0xc3}), 1100);
  name_page(true, 2000);
  name_page(false, 3000);
  poke(0x5000, {}, bytes_of({0x90, 0xc3}), 3100);
  finish();
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x5000, 1500), 0xcc);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x5000, 2500), -1);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x5000, 3500), 0x90);
  EXPECT_TRUE(data_->timeline.findings().empty());
}

TEST_F(Fold, LostRecordsSuspectTheImageFromTheRingsLastRecord) {
  poke(0, bytes_of({0x90}), bytes_of({0xc3}), 1000, 2);
  poke(8, bytes_of({0x90}), bytes_of({0xc3}), 1500, 1);
  feed(perfio::LostRecord{0, 50, false}, 4000, 0, 0, 2);
  finish();
  EXPECT_EQ(data_->lost.lost_records, 1U);
  EXPECT_EQ(data_->lost.records, 50U);
  ASSERT_EQ(data_->timeline.suspect_windows().size(), 1U);
  EXPECT_EQ(data_->timeline.suspect_windows()[0], (Interval{TimeNs{1000}, TimeNs{4000}}));
}

// One ring for events of the target, one for the kernel's code, both on one cpu: a loss in one does not affect the other.
TEST_F(Fold, RecordsThatOneOfTwoRingsLostAreDatedByThatRing) {
  constexpr uint64_t kTarget = 71, kKernel = 72, kBehind = 73;
  const auto on_ring = [&](uint64_t id, perfio::Payload payload, uint64_t time) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.sample_id.cpu = 2;
    record.sample_id.id = id;
    record.sample_id.time = time;
    record.sample_id.has_time = true;
    fold_->on_record(record);
  };
  perfio::Record index;
  index.type = 69;  // PERF_RECORD_ID_INDEX: nr, then id, idx, cpu, tid
  const std::vector<uint64_t> words = {0, 2, kTarget, 4, 2, ~uint64_t{0}, kKernel, 5, 2, ~uint64_t{0}, kBehind, 4, 2, ~uint64_t{0}, 0};
  index.raw = std::as_bytes(std::span(words));
  fold_->on_record(index);
  const auto lost = [&](uint64_t id, uint64_t time) { on_ring(id, perfio::LostRecord{id, 5, false}, time); };
  on_ring(kKernel, perfio::TextPokeRecord{kText.value, bytes_of({0x90}), bytes_of({0xc3})}, 1000);
  on_ring(kTarget, perfio::CommRecord{7, 7, "one", false}, 3900);
  lost(kKernel, 4000);
  on_ring(kTarget, perfio::CommRecord{7, 7, "two", false}, 5000);
  lost(kKernel, 0);  // without a time: until the ring's next record
  on_ring(kTarget, perfio::CommRecord{7, 7, "three", false}, 5500);
  on_ring(kKernel, perfio::TextPokeRecord{kText.value, bytes_of({0xc3}), bytes_of({0x90})}, 6000);
  lost(kTarget, 6500);
  on_ring(kKernel, perfio::TextPokeRecord{kText.value, bytes_of({0x90}), bytes_of({0xc3})}, 7000);
  for (int i = 0; i < 3; ++i) lost(kTarget, 0);                     // nothing follows
  on_ring(kBehind, perfio::CommRecord{7, 7, "four", false}, 8000);  // of no ring: does not belong to the two entries
  finish();
  std::vector<Interval> windows;
  std::string last;
  for (const Finding& finding : data_->timeline.findings()) {
    if (finding.kind != FindingKind::records_lost) continue;
    windows.push_back(finding.time);
    last = finding.what;
  }
  EXPECT_EQ(last, "15 records of cpu 2 were lost") << "three in a row are one";
  const auto window = [](uint64_t begin, uint64_t end) { return Interval{TimeNs{begin}, TimeNs{end}}; };
  EXPECT_EQ(windows, (std::vector<Interval>{window(1000, 4000), window(4000, 6000), window(5500, 6500), Interval{TimeNs{6500}, kTimeMax}}));
}

TEST_F(Fold, GuestRecordsAreCountedAndLeftOut) {
  perfio::MmapRecord guest;
  guest.pid = 0;
  guest.addr = kText.value;
  guest.size_bytes = 4096;
  guest.guest = true;
  feed(guest, 0);
  finish();
  EXPECT_EQ(fold_->guest_records(), 1U);
  EXPECT_EQ(data_->timeline.section_count(), 0U);
}

TEST_F(Fold, KernelCopiesNamesAndTheBreakpointEntry) {
  SmallElf core;
  core.type = ET_CORE;
  core.address = kText.value;
  core.code = bytes_of({0x48, 0x89});
  dir_.write("kcore_dir/kcore", core.bytes());
  dir_.write("kcore_dir/kallsyms", "ffffffff81000200 T start\nffffffff81000201 T asm_exc_int3\nffffffff81000400 D data\n");
  dir_.write("kcore_dir/modules", std::string());
  KernelImage::Copies copies;
  copies.kcore_dir = dir_.path() + "/kcore_dir";
  finish(copies);
  EXPECT_EQ(data_->decoder.breakpoint_entry.value, kText.value + 0x201);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x200, 77), 0x48);
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x200, TimeNs{1})->name, "start");
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, kText + 0x3ff, TimeNs{1})->name, "asm_exc_int3");
  EXPECT_FALSE(data_->symbolizer->find(kKernelSpace, kText + 0x400, TimeNs{1}));
}

// kallsyms has neither sizes nor times. Code of BPF, probes and trampolines has its names from records, in their times and sizes.
TEST_F(Fold, NamesOfGeneratedCodeEndWithTheirRecords) {
  const auto record = [&](uint64_t offset, uint32_t size, uint16_t type, bool ends, const char* name, uint64_t time) {
    feed(perfio::KsymbolRecord{kText.value + offset, size, type, ends, name}, time);
  };
  record(0x3000, 0x154, 2, false, "ftrace_trampoline", 1000);
  record(0x5000, 0x100, 2, true, "ftrace_trampoline", 1000);  // was there before the recording
  record(0x3000, 0x154, 2, true, "ftrace_trampoline", 2000);
  record(0x6000, 0x40, 2, true, "ftrace_trampoline", 1000);  // likewise; another one came to its place
  record(0x6000, 0x40, 2, false, "other_trampoline", 1200);
  record(0x9000, 0x80, 1, false, "bpf_prog_1", 0);
  record(0xb000, 0x10, 2, false, "ftrace_trampoline", 1500);  // before a module came to its place
  record(0xb000, 0x10, 2, true, "ftrace_trampoline", 1600);
  dir_.write(
      "kcore_dir/kallsyms",
      "ffffffff81003000 t ftrace_trampoline [__builtin__ftrace]\nffffffff81005000 t ftrace_trampoline [__builtin__ftrace]\n"
      "ffffffff81006000 t other_trampoline [__builtin__ftrace]\n"
      "ffffffff81007000 t kprobe_insn_page [__builtin__kprobes]\nffffffff81009000 t bpf_prog_1 [bpf]\nffffffff8100b000 t one [late]\n"
      "ffffffff8100b020 t two [late]\n");
  dir_.write("kcore_dir/modules", "late 4096 0 - Live 0xffffffff8100b000\n");
  KernelImage::Copies copies;
  copies.kcore_dir = dir_.path() + "/kcore_dir";
  finish(copies);
  const auto name_at = [&](uint64_t offset, uint64_t time) {
    const auto found = data_->symbolizer->find(kKernelSpace, kText + offset, TimeNs{time});
    return found ? std::string(found->name) + ' ' + std::string(found->module) : std::string();
  };
  const std::string trampoline = "ftrace_trampoline [__builtin__ftrace]", slots = "kprobe_insn_page [__builtin__kprobes]";
  EXPECT_EQ(name_at(0x3153, 1500), trampoline);
  EXPECT_EQ(name_at(0x3154, 1500), "");
  EXPECT_EQ(name_at(0x3000, 900), "");
  EXPECT_EQ(name_at(0x3000, 2500), "");
  EXPECT_EQ(name_at(0x50ff, 900), trampoline);
  EXPECT_EQ(name_at(0x5100, 900), "");
  EXPECT_EQ(name_at(0x5000, 1100), "");
  EXPECT_EQ(name_at(0x6000, 900), trampoline);
  EXPECT_EQ(name_at(0x6000, 1100), "");
  EXPECT_EQ(name_at(0x6000, 1300), "other_trampoline [__builtin__ftrace]");
  EXPECT_EQ(name_at(0x7fff, 5000), slots);
  EXPECT_EQ(name_at(0x8000, 5000), "");
  EXPECT_EQ(name_at(0x907f, 5000), "bpf_prog_1 [bpf]");
  EXPECT_EQ(name_at(0x9080, 5000), "");
  EXPECT_EQ(name_at(0xb008, 1550), trampoline);
  EXPECT_EQ(name_at(0xb008, 1700), "one [late]");
  EXPECT_EQ(name_at(0xb020, 1550), "two [late]");
  EXPECT_EQ(name_at(0xbfff, 1700), "two [late]");
  EXPECT_EQ(name_at(0xc000, 1700), "");
}

// The running kernel, in the layout of a real machine.
class RunningKernel : public Fold {
 protected:
  RunningKernel() {
    SmallElf core;
    core.type = ET_CORE;
    core.address = kText.value;
    core.code = bytes_of({0x48, 0x89});
    dir_.write("machine/proc/kcore", core.bytes());
    dir_.write("machine/proc/kallsyms",
               "ffffffff81000000 T _text\nffffffff81000200 T _stext\nffffffff81000201 T asm_exc_int3\nffffffff81000202 T _etext\n");
    dir_.write("machine/proc/modules", std::string());
    std::string notes("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
    notes += std::string(20, '\x42');
    dir_.write("machine/sys/kernel/notes", notes);
    perfio::MmapRecord kernel;
    kernel.kernel = kernel.executable = true;
    kernel.addr = kText.value;
    kernel.size_bytes = 0x1000000;
    kernel.file_offset_bytes = kText.value;
    kernel.path = "[kernel.kallsyms]_text";
    kernel_ = kernel;
    copies_.running = dir_.path() + "/machine";
    copies_.last_record = TimeNs{900};
  }
  perfio::MmapRecord kernel_;
  KernelImage::Copies copies_;
};

TEST_F(RunningKernel, OfTheSameBootGivesItsText) {
  feed(kernel_, 0);
  features_.build_ids.push_back({"[kernel.kallsyms]", std::string(20, '\x42'), -1, 1});
  poke(0x200, bytes_of({0x90}), bytes_of({0x48}), 500);  // patched before the copy was read
  fold_->finish(features_, copies_, true);
  image_->finish(*data_);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x200, 700), 0x48);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x200, 300), 0x90);
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x201, 300), 0x89);
  EXPECT_EQ(data_->decoder.breakpoint_entry.value, kText.value + 0x201);
  ASSERT_EQ(data_->warnings.size(), 1U);
  EXPECT_NE(data_->warnings[0].find("has not rebooted"), std::string::npos);
}

TEST_F(RunningKernel, AnotherAddressOrBuildIsAnotherBoot) {
  for (const bool other_build : {false, true}) {
    start();
    perfio::MmapRecord kernel = kernel_;
    if (!other_build) kernel.file_offset_bytes += 0x200000;
    feed(kernel, 0);
    features_.build_ids = {{"[kernel.kallsyms]", std::string(20, other_build ? '\x43' : '\x42'), -1, 1}};
    fold_->finish(features_, copies_, true);
    image_->finish(*data_);
    EXPECT_EQ(byte_at(kKernelSpace, kText.value + 0x200, 700), -1);
    EXPECT_TRUE(data_->warnings.empty());
  }
}

TEST_F(Fold, WithoutACopyTheKernelIsKnownButMissing) {
  perfio::MmapRecord kernel;
  kernel.kernel = true;
  kernel.addr = kText.value;
  kernel.size_bytes = 0x1000000;
  kernel.path = "[kernel.kallsyms]_text";
  feed(kernel, 0);
  features_.build_ids.push_back({"[kernel.kallsyms]", std::string(20, '\x42'), -1, 1});
  finish();
  ASSERT_EQ(data_->missing.size(), 1U);
  EXPECT_EQ(data_->missing[0].path, "[kernel.kallsyms]");
  EXPECT_EQ(data_->missing[0].build_id, "4242424242424242424242424242424242424242");
  CodeView view(data_->timeline);
  std::array<CodeCandidate, 2> out;
  EXPECT_EQ(view.fetch(kKernelSpace, kText, {}, {}, out).status, FetchStatus::no_bytes);
}

TEST_F(Fold, JitdumpCodeLivesFromItsLoadToItsReplacement) {
  std::vector<std::byte> dump;
  const auto put = [&](auto value) { image_test::append(dump, value); };
  put(uint32_t{0x4A695444}), put(uint32_t{1}), put(uint32_t{40}), put(uint32_t{62}), put(uint32_t{0}), put(uint32_t{10}), put(uint64_t{0}),
      put(uint64_t{0});
  const auto load = [&](uint64_t time, uint64_t index, const char* name, int byte) {
    put(uint32_t{0}), put(static_cast<uint32_t>(16 + 40 + 2 + 1)), put(time), put(uint32_t{10}), put(uint32_t{10});
    put(uint64_t{0x7f0000000000}), put(uint64_t{0x7f0000000000}), put(uint64_t{1}), put(index);
    put(name[0]), put('\0'), put(static_cast<uint8_t>(byte));
  };
  load(1000, 1, "a", 0x11);
  load(2000, 2, "b", 0x22);
  dir_.write("tmp/jit-10.dump", dump);
  comm(10, 10, "java", false, 0);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  finish();
  EXPECT_EQ(user_byte(10, 0x7f0000000000, 1500), 0x11);
  EXPECT_EQ(user_byte(10, 0x7f0000000000, 2500), 0x22);
  const SpaceId space = data_->contexts.at_thread(10, TimeNs{1500}).space;
  EXPECT_EQ(data_->symbolizer->find(space, Ip{0x7f0000000000}, TimeNs{1500})->name, "a");
  EXPECT_EQ(data_->symbolizer->find(space, Ip{0x7f0000000000}, TimeNs{2500})->name, "b");
  EXPECT_TRUE(data_->missing.empty());
}

/// A jitdump of process 10 with one function of one byte, `a`, at 0x7f0000000000 from time 1000.
std::vector<std::byte> small_jitdump() {
  std::vector<std::byte> dump;
  const auto put = [&](auto value) { image_test::append(dump, value); };
  put(uint32_t{0x4A695444}), put(uint32_t{1}), put(uint32_t{40}), put(uint32_t{62}), put(uint32_t{0}), put(uint32_t{10}), put(uint64_t{0}),
      put(uint64_t{0});
  put(uint32_t{0}), put(uint32_t{16 + 40 + 2 + 1}), put(uint64_t{1000}), put(uint32_t{10}), put(uint32_t{10});
  put(uint64_t{0x7f0000000000}), put(uint64_t{0x7f0000000000}), put(uint64_t{1}), put(uint64_t{1}), put('a'), put('\0'), put(uint8_t{0x11});
  return dump;
}

TEST_F(Fold, ADamagedJitdumpIsAFindingAndItsCodeSuspectFromThenOn) {
  std::vector<std::byte> dump = small_jitdump();
  const auto put = [&](auto value) { image_test::append(dump, value); };
  put(uint32_t{0}), put(uint32_t{16 + 40 + 2 + 1}), put(uint64_t{2000});  // the rest was never written
  dir_.write("tmp/jit-10.dump", dump);
  comm(10, 10, "java", false, 0);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  finish();
  EXPECT_EQ(user_byte(10, 0x7f0000000000, 1500), 0x11);
  ASSERT_EQ(data_->timeline.findings().size(), 1U);
  EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::records_lost);
  EXPECT_NE(data_->timeline.findings()[0].what.find("jit-10.dump"), std::string::npos);
  EXPECT_EQ(data_->timeline.findings()[0].time.first, TimeNs{1000});
  ASSERT_EQ(data_->timeline.suspect_windows().size(), 1U);
  EXPECT_EQ(data_->timeline.suspect_windows()[0].first, TimeNs{1000});
}

TEST_F(Fold, AJitdumpThatCannotBeReadIsAFinding) {
  dir_.write("tmp/jit-10.dump", bytes_of({'n', 'o'}));
  comm(10, 10, "java", false, 0);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  finish();
  ASSERT_EQ(data_->timeline.findings().size(), 1U);
  EXPECT_NE(data_->timeline.findings()[0].what.find("jit-10.dump"), std::string::npos);
}

TEST_F(Fold, AJitdumpMappedAgainAndAgainIsReadOnce) {
  dir_.write("tmp/jit-10.dump", small_jitdump());
  comm(10, 10, "java", false, 0);
  for (int i = 0; i < 500; ++i) map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  for (int pid = 11; pid < 500; ++pid) map(pid, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  finish();
  EXPECT_EQ(user_byte(10, 0x7f0000000000, 1500), 0x11);
  EXPECT_LE(data_->symbolizer->pick_all().ranges.size(), 8U);
}

TEST_F(Fold, AddressFiltersBecomeRanges) {
  fold_->set_filter("filter 0xffffffff81000000/0x1000,start 0x10@/bin/one,filter 0x200/16@/bin/one");
  map(10, 0x400000, "/bin/one", 0);
  finish();
  ASSERT_EQ(data_->decoder.filter.size(), 2U);
  EXPECT_EQ(data_->decoder.filter[0].last.value, 0xffffffff81000fffU);
  EXPECT_EQ(data_->decoder.filter[1].first.value, 0x400200U);
  EXPECT_EQ(data_->decoder.filter[1].last.value, 0x40020fU);
}

TEST_F(Fold, AFilterThatCannotBePlacedIsNone) {
  fold_->set_filter("filter 0xffffffff81000000/0x1000,filter 0x200/16@/bin/absent");
  finish();
  EXPECT_TRUE(data_->decoder.filter.empty());
}

TEST(LiveRanges, OverlapsEndWhatTheyCover) {
  LiveRanges lives;
  const size_t a = lives.open(Ip{100}, 100, TimeNs{1});
  const size_t b = lives.open(Ip{300}, 100, TimeNs{2});
  const size_t c = lives.open(Ip{150}, 200, TimeNs{10});  // covers the end of a and the start of b
  lives.close(Ip{150}, TimeNs{20});
  lives.close(Ip{100}, TimeNs{30});  // no longer open
  EXPECT_EQ(lives.live(a), (Interval{TimeNs{1}, TimeNs{9}}));
  EXPECT_EQ(lives.live(b), (Interval{TimeNs{2}, TimeNs{9}}));
  EXPECT_EQ(lives.live(c), (Interval{TimeNs{10}, TimeNs{20}}));
}

}  // namespace
}  // namespace ptd
