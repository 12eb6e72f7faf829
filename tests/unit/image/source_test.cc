// Sources of code bytes: ELF files, kcore, kallsyms, page dumps, build-id cache, look-up order.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>

#include "image/source/build_id.h"
#include "image/source/code_bytes.h"
#include "image/source/code_source.h"
#include "image/source/elf_file.h"
#include "image/source/kernel/kallsyms.h"
#include "image/source/page_dump.h"
#include "source_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;
using image_test::SmallElf;
using image_test::TempDir;

const std::string kIdA = "0102030405060708090a0b0c0d0e0f1011121314";
const std::string kIdB = "ff02030405060708090a0b0c0d0e0f1011121314";

std::vector<std::byte> raw_id(int first) {
  std::vector<std::byte> id;
  id.push_back(static_cast<std::byte>(first));
  for (int i = 2; i <= 20; ++i) id.push_back(static_cast<std::byte>(i));
  return id;
}

SmallElf small_elf(int first_id_byte = 1) {
  SmallElf elf;
  elf.build_id = raw_id(first_id_byte);
  elf.code = bytes_of({0x55, 0xc3, 0x90, 0xc3});
  elf.symbols = {{"_ZN3foo3barEv", 0x400202, 2}, {"main", 0x400200, 2}};
  return elf;
}

TEST(SourceBuildId, SpellingsAgree) {
  EXPECT_EQ(normalize_build_id("6AA9A4E2-6F28-2F33-377D-59FECE874C71-5B41261A"), "6aa9a4e26f282f33377d59fece874c715b41261a");
  EXPECT_EQ(normalize_build_id(kIdA), kIdA);
  const std::vector<std::byte> raw = raw_id(1);
  EXPECT_EQ(normalize_build_id(std::string(reinterpret_cast<const char*>(raw.data()), raw.size())), kIdA);
  EXPECT_EQ(normalize_build_id(std::string(20, '\0')), "");
  EXPECT_EQ(normalize_build_id(""), "");
}

TEST(SourceBuildId, PaddingDoesNotDistinguish) {
  EXPECT_TRUE(same_build_id("00112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff00000000"));
  EXPECT_FALSE(same_build_id("00112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff00000001"));
  EXPECT_FALSE(same_build_id("", kIdA));
}

TEST(SourceElf, ReadsSegmentsBuildIdAndSymbols) {
  const TempDir dir;
  const SmallElf small = small_elf();
  const std::string path = dir.write("prog", small.bytes());
  const auto elf = ElfFile::open(path);
  ASSERT_TRUE(elf.ok()) << elf.error().message;
  EXPECT_EQ((*elf)->build_id(), kIdA);
  ASSERT_EQ((*elf)->segments().size(), 1U);
  EXPECT_TRUE((*elf)->segments()[0].executable);
  uint64_t address = 0;
  EXPECT_TRUE((*elf)->address_of_offset(0x202, address));
  EXPECT_EQ(address, 0x400202U);
  EXPECT_FALSE((*elf)->address_of_offset(1U << 20, address));
  const auto symbols = (*elf)->read_symbols();
  ASSERT_EQ(symbols.size(), 2U);
  EXPECT_EQ(symbols[0].name, "main");
  EXPECT_EQ(symbols[1].address, 0x400202U);
}

TEST(SourceElf, CorpusFileHasTheIdThatItsBundleNames) {
  const std::string corpus = image_test::corpus_dir();
  if (corpus.empty()) GTEST_SKIP() << "no corpus (set PTDECODE_CORPUS)";
  const auto elf = ElfFile::open(corpus + "/pt-lldb-single/a.out");
  ASSERT_TRUE(elf.ok()) << elf.error().message;
  EXPECT_EQ((*elf)->build_id(), "6aa9a4e26f282f33377d59fece874c715b41261a");  // trace.json, "uuid"
  uint64_t main_address = 0;
  for (const ElfSymbol& symbol : (*elf)->read_symbols()) {
    if (symbol.name == "main") main_address = symbol.address;
  }
  EXPECT_EQ(main_address, 0x40050dU);  // nm a.out
}

TEST(SourceElf, HostileFilesAreReadOrRefused) {
  const TempDir dir;
  const std::vector<std::byte> good = small_elf().bytes();
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bad = good;
    if (round % 2 == 0) {
      bad.resize(random() % good.size());
    }
    for (unsigned i = 0; i < 1 + random() % 8 && !bad.empty(); ++i) bad[random() % bad.size()] = static_cast<std::byte>(random());
    const auto elf = ElfFile::open(dir.write("bad", bad));
    if (!elf.ok()) continue;
    for (const ElfSegment& segment : (*elf)->segments()) {
      EXPECT_LE(segment.file_size_bytes, bad.size());
      uint64_t address = 0;
      (void)(*elf)->address_of_offset(segment.file_offset_bytes, address);
    }
    EXPECT_LE((*elf)->read_symbols().size(), bad.size());
  }
}

TEST(SourceElf, KcoreGivesItsRanges) {
  const TempDir dir;
  SmallElf core = small_elf();
  core.type = ET_CORE;
  core.address = 0xffffffff81000000;
  const std::vector<std::byte> bytes = core.bytes();
  const auto ranges = read_kcore(dir.write("kcore", bytes));
  ASSERT_TRUE(ranges.ok()) << ranges.error().message;
  ASSERT_EQ(ranges->size(), 1U);
  EXPECT_EQ((*ranges)[0].ip.value, core.address);
  EXPECT_EQ((*ranges)[0].code.bytes[SmallElf::kCodeOffset], std::byte{0x55});
  EXPECT_FALSE(read_kcore(dir.write("prog", small_elf().bytes())).ok());
  EXPECT_FALSE(read_kcore(dir.path() + "/absent").ok());
}

TEST(SourceKallsyms, ParsesAndSkips) {
  const auto symbols = parse_kallsyms(
      "ffffffff81000200 T second\n"
      "nonsense\n"
      "ffffffff81000000 t first\n"
      "ffffffffc0001000 t helper\t[virtio]\n"
      "ffffffff81000300 D data_one\n"
      "zz T bad\n");
  ASSERT_EQ(symbols.size(), 4U);
  EXPECT_EQ(symbols[0].name, "first");
  EXPECT_EQ(symbols[3].module, "virtio");
  EXPECT_FALSE(symbols[2].is_text());
  EXPECT_EQ(address_of(symbols, "second"), 0xffffffff81000200U);
  EXPECT_EQ(address_of(symbols, "helper"), 0U);  // a module's name is not the kernel's
  EXPECT_EQ(parse_kallsyms("ffffffff81000200 T a\nffffffff81000201 T b\n", 1).size(), 1U);
}

TEST(SourceKallsyms, ParsesModules) {
  const auto modules = parse_modules(
      "virtio_blk 28672 1 - Live 0xffffffffc0388000\n"
      "virtio 20480 2 virtio_blk,virtio_pci, Live 0xffffffffc0370000 (E)\n"
      "cut 20480 2\n");
  ASSERT_EQ(modules.size(), 2U);
  EXPECT_EQ(modules[0].name, "virtio");
  EXPECT_EQ(modules[0].size_bytes, 20480U);
  EXPECT_EQ(modules[1].address, 0xffffffffc0388000U);
}

TEST(SourcePageDump, JoinsPagesThatFollowEachOther) {
  const TempDir dir;
  std::vector<std::byte> pages(3 * 4096), addresses;
  pages[0] = std::byte{1};
  pages[4096] = std::byte{2};
  pages[2 * 4096] = std::byte{3};
  for (const uint64_t address : {0x401000, 0x402000, 0x400000}) image_test::append(addresses, address);
  const auto dump = read_page_dump(dir.write("pages.dump", pages), dir.write("pages.addr", addresses));
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  const std::vector<MemoryRange>& ranges = dump->ranges;
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].ip.value, 0x400000U);
  EXPECT_EQ(ranges[0].code.bytes[0], std::byte{3});
  EXPECT_EQ(ranges[1].code.bytes.size(), 8192U);
  EXPECT_EQ(ranges[1].code.bytes[4096], std::byte{2});
  EXPECT_TRUE(dump->odd_addresses.empty());
}

TEST(SourcePageDump, LeavesOutPagesAtOddAddresses) {
  const TempDir dir;
  std::vector<std::byte> pages(4 * 4096), addresses;
  for (size_t i = 0; i < 4; ++i) pages[i * 4096] = std::byte{static_cast<unsigned char>(i + 1)};
  for (const uint64_t address : {0x401000, 0x402008, 0x402000, 0x7f01}) image_test::append(addresses, address);
  const auto dump = read_page_dump(dir.write("pages.dump", pages), dir.write("pages.addr", addresses));
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_EQ(dump->odd_addresses, (std::vector<uint64_t>{0x402008, 0x7f01}));
  ASSERT_EQ(dump->ranges.size(), 2U);  // pages between the two in the dump belong to neither
  EXPECT_EQ(dump->ranges[0].ip.value, 0x401000U);
  EXPECT_EQ(dump->ranges[0].code.bytes.size(), 4096U);
  EXPECT_EQ(dump->ranges[1].ip.value, 0x402000U);
  EXPECT_EQ(dump->ranges[1].code.bytes[0], std::byte{3});
}

TEST(SourcePageDump, RefusesCountsThatDiffer) {
  const TempDir dir;
  const std::vector<std::byte> page(4096), two(16), odd = bytes_of({1, 0, 0, 0, 0, 0, 0, 0});
  const std::string dump = dir.write("pages.dump", page);
  EXPECT_FALSE(read_page_dump(dump, dir.write("two.addr", two)).ok());
  EXPECT_FALSE(read_page_dump(dump, dir.write("odd.addr", odd)).ok());
}

CodeSourceOptions only(const TempDir& dir) {
  CodeSourceOptions options;
  options.symfs = {dir.path() + "/root"};
  options.build_id_cache = dir.path() + "/cache";
  options.use_host_files = false;
  return options;
}

TEST(SourceLookup, SymfsFirstThenCache) {
  const TempDir dir;
  const std::vector<std::byte> bytes = small_elf().bytes();
  CodeSource source(only(dir));
  EXPECT_EQ(source.find({"/bin/prog", kIdA, 0, 4096}).status, CodeStatus::not_found);
  dir.write("cache/.build-id/01/" + kIdA.substr(2) + "/elf", bytes);
  CodeSource with_cache(only(dir));
  EXPECT_EQ(with_cache.find({"/bin/prog", kIdA, 0, 4096}).file_path, dir.path() + "/cache/.build-id/01/" + kIdA.substr(2) + "/elf");
  dir.write("root/bin/prog", bytes);
  CodeSource with_both(only(dir));
  const FoundCode found = with_both.find({"/bin/prog", kIdA, SmallElf::kCodeOffset, 2});
  EXPECT_EQ(found.file_path, dir.path() + "/root/bin/prog");
  ASSERT_EQ(found.code.bytes.size(), 2U);
  EXPECT_EQ(found.code.bytes[0], std::byte{0x55});
  EXPECT_TRUE(found.findings.empty());
}

TEST(SourceLookup, WrongBuildIdIsRefusedAndNamed) {
  const TempDir dir;
  dir.write("root/bin/prog", small_elf(0xff).bytes());
  CodeSource source(only(dir));
  const FoundCode found = source.find({"/bin/prog", kIdA, 0, 4096});
  EXPECT_EQ(found.status, CodeStatus::wrong_build_id);
  EXPECT_TRUE(found.code.bytes.empty());
  ASSERT_FALSE(found.findings.empty());
  EXPECT_EQ(found.findings[0].kind, FindingKind::build_id_mismatch);
  EXPECT_NE(found.findings[0].what.find(kIdB), std::string::npos);
  EXPECT_NE(found.findings[0].what.find(kIdA), std::string::npos);
}

TEST(SourceLookup, WithoutAnIdTheFileIsTakenAndDoubtsAreTold) {
  const TempDir dir;
  const std::vector<std::byte> bytes = small_elf().bytes();
  dir.write("root/bin/prog", bytes);
  CodeSource source(only(dir));
  EXPECT_TRUE(source.find({"/bin/prog", "", 0, bytes.size()}).findings.empty());
  const FoundCode longer = source.find({"/bin/prog", "", 0, bytes.size() + 65536});
  EXPECT_EQ(longer.status, CodeStatus::found);
  ASSERT_EQ(longer.findings.size(), 1U);
  EXPECT_EQ(longer.findings[0].kind, FindingKind::file_changed);
  const FoundCode beyond = source.find({"/bin/prog", "", 1U << 20, 4096});
  EXPECT_EQ(beyond.status, CodeStatus::too_short);
  EXPECT_TRUE(beyond.code.bytes.empty());
}

TEST(SourceLookup, DeletedAndAnonymousMemoryHasNoBytes) {
  const TempDir dir;
  dir.write("root/bin/prog", small_elf().bytes());
  CodeSource source(only(dir));
  EXPECT_EQ(source.find({"/bin/prog (deleted)", "", 0, 4096}).status, CodeStatus::deleted);
  EXPECT_EQ(source.find({"/bin/prog (deleted)", kIdA, 0, 4096}).status, CodeStatus::found);  // the id proves it
  for (const char* path : {"//anon", "[heap]", "[stack]", "/memfd:jit (deleted)", "anon_inode:[perf_event]", ""}) {
    EXPECT_EQ(source.find({path, "", 0, 4096}).status, CodeStatus::anonymous) << path;
  }
}

// fexecve() of a memfd.
TEST(SourceLookup, AMemfdHasTheFileOfItsBuildId) {
  const TempDir dir, other;
  const std::string cached =
      dir.write("cache/.build-id/" + std::string(kIdA).substr(0, 2) + "/" + std::string(kIdA).substr(2) + "/elf", small_elf().bytes());
  CodeSourceOptions cache = only(other);
  cache.build_id_cache = dir.path() + "/cache";
  EXPECT_EQ(CodeSource(cache).find({"/memfd:prog (deleted)", kIdA, 0, 4096}).file_path, cached);
  const std::string supplied = dir.write("root/memfd:prog (deleted)", small_elf().bytes());
  EXPECT_EQ(CodeSource(only(dir)).find({"/memfd:prog (deleted)", kIdA, 0, 4096}).file_path, supplied);
  EXPECT_EQ(CodeSource(only(dir)).find({"/memfd:prog (deleted)", "", 0, 4096}).status, CodeStatus::anonymous);
  EXPECT_NE(CodeSource(only(other)).find({"/memfd:prog (deleted)", kIdA, 0, 4096}).status, CodeStatus::found);
}

TEST(SourceLookup, AFileMayBeNamedLikeADeletedOne) {
  const TempDir dir;
  const std::vector<std::byte> bytes = small_elf().bytes();
  const std::string path = dir.write("bin/prog (deleted)", bytes), deleted = dir.write("bin/other", bytes) + " (deleted)";
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  MappedPath wanted{path, "", 0, 4096};
  wanted.file_id = {major(info.st_dev), minor(info.st_dev), info.st_ino};
  CodeSource source(CodeSourceOptions{});
  EXPECT_EQ(source.find(wanted).file_path, path);
  EXPECT_EQ(source.find({path, kIdA, 0, 4096}).file_path, path);
  wanted.file_id.inode += 1;
  EXPECT_EQ(source.find(wanted).status, CodeStatus::deleted);
  EXPECT_EQ(source.find({deleted, "", 0, 4096}).status, CodeStatus::deleted);
}

/// Returns the number of read() calls of this process; 0: unknown.
uint64_t reads_of_process() {
  uint64_t reads = 0;
  std::ifstream io("/proc/self/io");
  for (std::string name; io >> name && name != "syscr:";) io >> name;
  io >> reads;
  return reads;
}

// A file with another inode number is looked up in this process's memory map, which is long: once.
TEST(SourceLookup, RecordsOfAnotherFileReadTheMemoryMapOnce) {
  const TempDir dir;
  MappedPath wanted{dir.write("bin/prog", small_elf().bytes()), "", 0, 4096};
  wanted.file_id = {0, 0, 1};
  CodeSource source(CodeSourceOptions{});
  EXPECT_EQ(source.find(wanted).status, CodeStatus::replaced);
  const uint64_t before = reads_of_process();
  if (before == 0) GTEST_SKIP() << "no /proc/self/io";
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(source.find(wanted).status, CodeStatus::replaced);
  EXPECT_LT(reads_of_process(), before + 100);
}

TEST(SourceLookup, ABareNameInASymfsRootNeedsTheId) {
  const TempDir dir;
  dir.write("root/prog", small_elf().bytes());
  CodeSource source(only(dir));
  EXPECT_EQ(source.find({"/usr/bin/prog", kIdA, 0, 4096}).status, CodeStatus::found);
  EXPECT_EQ(source.find({"/usr/bin/prog", "", 0, 4096}).status, CodeStatus::not_found);
}

TEST(SourceLookup, AnotherMachinesRecordingTakesLocalFilesOnlyById) {
  const TempDir dir;
  const std::string local = dir.write("local/prog", small_elf().bytes());
  CodeSourceOptions options;
  CodeSource here(options);
  EXPECT_EQ(here.find({local, "", 0, 4096}).status, CodeStatus::found);
  CodeSource elsewhere(options);
  elsewhere.set_same_host(false);
  EXPECT_EQ(elsewhere.find({local, "", 0, 4096}).status, CodeStatus::not_found);
  EXPECT_EQ(elsewhere.find({local, kIdA, 0, 4096}).status, CodeStatus::found);
}

constexpr int64_t kSecond = 1'000'000'000;

// Returns the identity that the kernel records for a mapping of this file, from stat().
FileId id_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return {major(info.st_dev), minor(info.st_dev), info.st_ino};
}

void set_modified(const std::string& path, int64_t second) {
  const std::array<timespec, 2> times = {timespec{second, 0}, timespec{second, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0);
}

FoundCode find_recorded(const std::string& path, const FileId& id, int64_t recorded_at_ns, const std::string& own_folder = {},
                        bool share = false) {
  CodeSourceOptions options;
  options.recorded_at_ns = recorded_at_ns;
  options.own_folder = own_folder;
  options.share = share;
  CodeSource source(options);
  MappedPath wanted{path, "", 0, 4096};
  wanted.file_id = id;
  return source.find(wanted);
}

TEST(SourceLookup, AnotherInodeAtTheRecordedPathIsRefused) {
  const TempDir dir;
  const std::string path = dir.write("prog", small_elf().bytes());
  const std::string other = dir.write("other", small_elf(0xff).bytes());
  const FileId recorded = id_of(path);
  const int64_t later = (time(nullptr) + 1000) * kSecond;
  const FoundCode same = find_recorded(path, recorded, later);
  EXPECT_EQ(same.status, CodeStatus::found);
  EXPECT_FALSE(same.assumed);
  EXPECT_TRUE(same.findings.empty());
  set_modified(other, 1);
  ASSERT_EQ(::rename(other.c_str(), path.c_str()), 0);
  for (const std::string& own : {std::string(), dir.path()}) {  // also next to the recording
    for (const bool share : {false, true}) {
      const FoundCode found = find_recorded(path, recorded, later, own, share);
      EXPECT_EQ(found.status, CodeStatus::replaced) << own << share;
      EXPECT_TRUE(found.code.bytes.empty());
      ASSERT_EQ(found.findings.size(), 1U);
      EXPECT_EQ(found.findings[0].kind, FindingKind::file_changed);
      EXPECT_NE(found.findings[0].what.find(path), std::string::npos);
    }
  }
}

TEST(SourceLookup, AFileWrittenAfterTheRecordingIsRefused) {
  const TempDir dir;
  const std::string path = dir.write("prog", small_elf().bytes());
  const FileId id = id_of(path);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  const int64_t written = info.st_mtim.tv_sec * kSecond + info.st_mtim.tv_nsec;
  EXPECT_EQ(find_recorded(path, id, written).status, CodeStatus::found);
  EXPECT_EQ(find_recorded(path, id, written - 1).status, CodeStatus::replaced) << "within the same second";
  EXPECT_EQ(find_recorded(path, FileId{}, written - 1).status, CodeStatus::replaced) << "without an inode";
}

TEST(SourceLookup, AFileThatMayHaveChangedIsAssumed) {
  const TempDir dir;
  const std::string path = dir.write("prog", small_elf().bytes());
  const FileId id = id_of(path);
  set_modified(path, 1);  // as cp -p and touch do; only the kernel sets the time of change
  const FoundCode touched = find_recorded(path, id, 1000 * kSecond);
  EXPECT_EQ(touched.status, CodeStatus::found);
  EXPECT_TRUE(touched.assumed);
  ASSERT_EQ(touched.findings.size(), 1U);
  EXPECT_EQ(touched.findings[0].kind, FindingKind::file_changed);
  const int64_t later = (time(nullptr) + 1000) * kSecond;
  EXPECT_FALSE(find_recorded(path, id, later).assumed);
  const FoundCode elsewhere = find_recorded(path, {id.maj + 1, id.min, id.inode}, later);
  EXPECT_EQ(elsewhere.status, CodeStatus::found);
  EXPECT_TRUE(elsewhere.assumed) << "another device: its number may change when the machine starts again";
  EXPECT_FALSE(elsewhere.findings.empty());
  const FoundCode unknown = find_recorded(path, FileId{}, later);
  EXPECT_EQ(unknown.status, CodeStatus::found);
  EXPECT_TRUE(unknown.assumed) << "nothing recorded says which file it was";
}

TEST(SourceLookup, AFileThatChangedAfterItWasMappedIsDoubted) {
  const auto wall_ns = [] {
    timespec now{};
    EXPECT_EQ(::clock_gettime(CLOCK_REALTIME, &now), 0);
    return static_cast<uint64_t>(now.tv_sec * kSecond + now.tv_nsec);
  };
  const TempDir dir;
  const std::string touched = dir.write("touched", small_elf().bytes()), written = dir.write("written", small_elf().bytes());
  RecordTimes times;
  times.add(wall_ns() - 10 * kSecond);
  ::usleep(100'000);  // more than the times of files are exact
  const uint64_t mapped = wall_ns();
  times.add(mapped + 10 * kSecond);
  ::usleep(100'000);
  set_modified(touched, 1);
  std::ofstream(written, std::ios::app) << "more";
  const std::string created = dir.write("created", small_elf().bytes());
  const auto find = [&](const std::string& path, uint64_t time_ns, bool shared) {
    CodeSourceOptions options;
    options.recorded_at_ns = static_cast<int64_t>(times.last_ns);
    CodeSource source(options);
    source.set_record_times(times);
    MappedPath wanted{path, "", 0, 4096};
    wanted.file_id = id_of(path);
    wanted.time_ns = time_ns;
    wanted.shared = shared;
    return source.find(wanted);
  };
  for (const bool shared : {false, true}) {
    const FoundCode code = find(touched, mapped, shared);
    EXPECT_EQ(code.status, CodeStatus::found) << "its name or its attributes may be what changed";
    EXPECT_TRUE(code.assumed && code.doubted);
    EXPECT_EQ(find(created, mapped, shared).status, CodeStatus::replaced) << "not there yet: its inode number was used again";
    for (const std::string& path : {touched, written, created}) {
      const FoundCode later = find(path, times.last_ns, shared);
      EXPECT_EQ(later.status, CodeStatus::found) << path;
      EXPECT_FALSE(later.assumed) << path;
    }
  }
  EXPECT_EQ(find(written, mapped, false).status, CodeStatus::replaced);
  const FoundCode visible = find(written, mapped, true);
  EXPECT_EQ(visible.status, CodeStatus::found) << "a shared mapping shows what is written later";
  EXPECT_TRUE(visible.assumed && visible.doubted);
  EXPECT_EQ(find(touched, 0, false).status, CodeStatus::replaced)
      << "without a time: mapped before the first record, when it did not exist";
  times = {};
  EXPECT_FALSE(find(touched, mapped, false).assumed) << "no record has a time";
}

TEST(SourceLookup, AFileThatWasWrittenToAfterItWasMappedIsAssumedDespiteItsBuildId) {
  const TempDir dir;
  const std::string path = dir.write("prog", small_elf().bytes());
  dir.write("root" + path, small_elf().bytes());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  const auto written = static_cast<uint64_t>(info.st_mtim.tv_sec * kSecond + info.st_mtim.tv_nsec);
  RecordTimes times;  // the recording's clock is the wall clock
  times.add(written - 10 * kSecond);
  times.add(written + 10 * kSecond);
  const auto find = [&](uint64_t mapped, bool told = false, bool same_host = true, const std::string& root = {}) {
    CodeSourceOptions options;
    options.recorded_at_ns = static_cast<int64_t>(times.last_ns);
    options.same_host = same_host;
    if (!root.empty()) options.symfs = {root};
    CodeSource source(options);
    if (told) {
      source.add_rewritten(1, 0x400000, mapped);
    } else {
      source.set_record_times(times);
    }
    MappedPath wanted{path, kIdA, 0, 4096};
    wanted.pid = 1;
    wanted.address = 0x400000;
    wanted.time_ns = mapped;
    return source.find(wanted);
  };
  const auto is_doubted = [](const FoundCode& code) {
    EXPECT_EQ(code.status, CodeStatus::found);
    EXPECT_EQ(code.assumed, !code.findings.empty());
    EXPECT_EQ(code.doubted, code.assumed);
    for (const Finding& finding : code.findings) {
      EXPECT_EQ(finding.kind, FindingKind::file_changed);
      EXPECT_NE(finding.what.find("was written to after it was mapped"), std::string::npos);
    }
    return code.assumed;
  };
  EXPECT_TRUE(is_doubted(find(written - kSecond)));
  EXPECT_FALSE(is_doubted(find(written))) << "mapped as soon as it was built";
  EXPECT_FALSE(is_doubted(find(written + kSecond)));
  EXPECT_TRUE(is_doubted(find(written + kSecond, true))) << "its recorder knows";
  EXPECT_FALSE(is_doubted(find(written - kSecond, false, false))) << "another machine's file has its own times";
  EXPECT_FALSE(is_doubted(find(written - kSecond, false, true, dir.path() + "/root"))) << "a copy of a file has its own times";
  set_modified(path, 1);
  EXPECT_FALSE(is_doubted(find(written - kSecond))) << "as a package manager leaves a file";
}

TEST(SourceLookup, NamedPipesDoNotHang) {
  const TempDir dir;
  dir.write("root/x", std::string("x"));
  ASSERT_EQ(::mkfifo((dir.path() + "/root/pipe").c_str(), 0600), 0);
  CodeSource source(only(dir));
  EXPECT_EQ(source.find({"/pipe", "", 0, 4096}).status, CodeStatus::not_found);
}

TEST(SourceLookup, DebugFileByBuildId) {
  const TempDir dir;
  SmallElf stripped = small_elf();
  std::vector<std::byte> bytes = stripped.bytes();
  // Without its section headers the file has no symbol table.
  auto* header = reinterpret_cast<Elf64_Ehdr*>(bytes.data());
  header->e_shnum = 0;
  header->e_shoff = 0;
  header->e_shstrndx = 0;
  const std::string prog = dir.write("root/bin/prog", bytes);
  const std::string debug = dir.write("debug/.build-id/01/" + kIdA.substr(2) + ".debug", small_elf().bytes());
  CodeSourceOptions options = only(dir);
  options.debug_dirs = {dir.path() + "/debug"};
  CodeSource source(options);
  EXPECT_EQ(source.find_debug_file(prog, prog).path, debug);
  dir.write("debug/.build-id/01/" + kIdA.substr(2) + ".debug", small_elf(0xff).bytes());
  CodeSource wrong(options);
  EXPECT_EQ(wrong.find_debug_file(prog, prog).path, "");
}

// The check value is of the catalogue of parametrised CRC algorithms (CRC-32/ISO-HDLC).
TEST(SourceLookup, Crc32) {
  const std::string text = "123456789";
  const Bytes bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32_of(bytes), 0xCBF43926U);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) EXPECT_EQ(crc32_of(bytes.subspan(cut), crc32_of(bytes.first(cut))), 0xCBF43926U) << cut;
  EXPECT_EQ(crc32_of({}), 0U);
}

// Returns the build id of this process's vdso as the dynamic linker sees it.
std::string own_vdso_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (info->dlpi_addr != reinterpret_cast<uint64_t>(host_vdso().data())) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& program = info->dlpi_phdr[i];
          if (program.p_type != PT_NOTE) continue;
          const Bytes notes(reinterpret_cast<const std::byte*>(info->dlpi_addr + program.p_vaddr), program.p_memsz);
          *static_cast<std::string*>(out) = build_id_in_notes(notes);
        }
        return 0;
      },
      &id);
  return id;
}

TEST(SourceLookup, VdsoOfThisMachineOnlyWithItsId) {
  const std::string id = own_vdso_id();
  if (id.empty()) GTEST_SKIP() << "this process has no vdso with a build id";
  CodeSource source(CodeSourceOptions{});
  const FoundCode found = source.find({"[vdso]", id, 0, 4096});
  EXPECT_EQ(found.status, CodeStatus::found);
  ASSERT_EQ(found.code.bytes.size(), 4096U);
  EXPECT_EQ(std::memcmp(found.code.bytes.data(), host_vdso().data(), 4096), 0);
  EXPECT_NE(source.find({"[vdso]", kIdA, 0, 4096}).status, CodeStatus::found);
  EXPECT_NE(source.find({"[vdso]", "", 0, 4096}).status, CodeStatus::found);
}

}  // namespace
}  // namespace ptd
