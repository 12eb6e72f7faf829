// A cs_etm recording of an arm64 kernel, made by hand, with a copy of the kernel's text from before it and one from after it: no record
// tells when the text changed, so the packets choose.
#include <elf.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>
#include <utility>

#include "cli/report/finding_text.h"
#include "image/source/elf_header.h"
#include "ptdecode/code_view.h"
#include "ptdecode/recording.h"

namespace ptd::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTextBase = 0xffffffc000080000;
constexpr uint32_t kNopBytes = 0xd503201f, kRetBytes = 0xd65f03c0;
constexpr uint32_t kForward2Bytes = 0x14000002;    // b .+8
constexpr uint32_t kIfZeroBackBytes = 0xb4ffffe0;  // cbz x0, .-4

/// A little-endian byte buffer.
struct Bin {
  std::string bytes;
  template <typename... Numbers>
  Bin& u16(Numbers... numbers) {
    (put(static_cast<uint16_t>(numbers)), ...);
    return *this;
  }
  template <typename... Numbers>
  Bin& u32(Numbers... numbers) {
    (put(static_cast<uint32_t>(numbers)), ...);
    return *this;
  }
  template <typename... Numbers>
  Bin& u64(Numbers... numbers) {
    (put(static_cast<uint64_t>(numbers)), ...);
    return *this;
  }
  template <typename Number>
  void put(Number number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
};

/// Returns a perf.data record: header and payload.
std::string record(uint32_t type, uint16_t misc, const Bin& payload) {
  return Bin().u32(type).u16(misc, 8 + payload.bytes.size()).bytes + payload.bytes;
}

// [perf-format]: header, one attribute of the PMU 8, the records, no features.
// With `records`, each record of the kernel has a time of 8 bytes at its end.
std::string perf_data(const std::string& trace, const std::string& records = {}) {
  constexpr uint64_t kEtmv4 = 0x4040404040404040, kRawFormat = 0x100;
  std::string data =
      record(70, 0, Bin().u32(3, 0).u64(1, uint64_t{8} << 32 | 1, 0, kEtmv4, 0, 8, 0x1, 0x10, 0x28000ea1, 0x4100f424, 0x488, 0, 0, 1));
  Bin map;
  map.u32(-1, 0).u64(kTextBase, 0x1000, kTextBase);
  map.bytes += std::string("[kernel.kallsyms]_text").append(2, '\0');
  Bin aux;
  aux.u64(0, trace.size(), kRawFormat);
  if (!records.empty()) {
    map.u64(1);
    aux.u64(100);
  }
  data += record(1, 1, map) + records + record(11, 0, aux);
  data += record(71, 0, Bin().u64(trace.size(), 0, 0).u32(0, -1, 0, 0)) + trace;
  Bin file;
  file.bytes = "PERFILE2";
  constexpr uint64_t kAttr = 112 + 16, kHeader = 104;
  file.u64(kHeader, kAttr, kHeader, kAttr, kHeader + kAttr, data.size(), 0, 0, 0, 0, 0, 0);
  file.u32(8, 112);  // type, size
  constexpr uint64_t kTime = 1U << 2, kTimeOfAll = 1U << 18;
  if (!records.empty()) file.u64(0, 0, kTime, 0, kTimeOfAll);  // config, period, sample_type, read_format, flags
  file.bytes.resize(kHeader + kAttr);
  return file.bytes + data;
}

/// Returns a TEXT_POKE record of one word.
std::string poke(uint64_t time, uint64_t address, uint32_t before, uint32_t after) {
  return record(20, 1, Bin().u64(address).u16(4, 4).u32(before, after, 0).u64(time));
}

/// Returns a /proc/kcore with these words at kTextBase.
std::string kcore(std::initializer_list<uint32_t> words) {
  constexpr uint64_t kCode = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
  const Elf64_Ehdr header = elf_header(ET_CORE, EM_AARCH64, 1);
  Elf64_Phdr load{};
  load.p_type = PT_LOAD;
  load.p_flags = PF_R | PF_W | PF_X;
  load.p_offset = kCode;
  load.p_vaddr = kTextBase;
  load.p_filesz = load.p_memsz = 4 * words.size();
  Bin file;
  file.put(header);
  file.put(load);
  for (const uint32_t word : words) file.u32(word);
  return file.bytes;
}

class KernelCopies : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ptd-copies-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  void copy(const std::string& name, std::initializer_list<uint32_t> words) const {
    write(name + "/kcore", kcore(words));
    write(name + "/kallsyms", "ffffffc000080000 T _text\nffffffc000080000 T fn\nffffffc000080100 T _etext\n");
    write(name + "/modules", "");
  }
  struct Found {
    uint64_t ip, end;
    unsigned flags;
    friend bool operator==(const Found&, const Found&) = default;
    friend void PrintTo(const Found& found, std::ostream* out) { *out << found.ip << ".." << found.end << " flags " << found.flags; }
  };
  static std::vector<Found> chosen_by_packets(unsigned flags);
  std::vector<Found> blocks(bool with_after) {
    OpenOptions options;
    options.path = (folder_ / "recording").string();
    if (with_after) options.kcore_after = {(folder_ / "after").string()};
    auto opened = Recording::open(options);
    std::vector<Found> found;
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
    if (!opened.ok()) return found;
    EXPECT_EQ((*opened)->streams().size(), 1U);
    gaps_.clear();
    (void)(*opened)->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
      for (const Block& block : batch.blocks) {
        const BlockInfo& info = decoder.blocks().info(block.node);
        const unsigned flags = block.flags & ~static_cast<unsigned>(BlockFlag::healed | BlockFlag::ends_in_branch);
        found.push_back({info.ip.value - kTextBase, info.ip.value - kTextBase + info.size_bytes, flags});
      }
      for (const Gap& gap : batch.gaps) gaps_.push_back(gap);
      return true;
    });
    return found;
  }
  fs::path folder_;
  std::vector<Gap> gaps_;
};

// A-Sync, info, on, kTextBase at EL1; N: only the CBZ of the first text can be not taken, E: the RET after it. Then kTextBase again: E, and
// the address of the RET; with the first text the flow would be at kTextBase. E there, then kTextBase once more, and E: possible with both
// texts.
constexpr unsigned char kTrace[] = {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x80, 0x01,
                                    0x01, 0x00, 0x04, 0x85, 0x00, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff, 0x31,  // address and context
                                    0xda,                                                                          // N, E
                                    0x9a, 0x00, 0x00, 0x08, 0x00,                                                  // kTextBase
                                    0xf7,                                                                          // E
                                    0x9a, 0x03, 0x00, 0x08, 0x00, 0xf7,                                            // the RET, E
                                    0x9a, 0x00, 0x00, 0x08, 0x00, 0xf7};                                           // kTextBase, E

/// The blocks of kTrace; `flags`: of each.
std::vector<KernelCopies::Found> KernelCopies::chosen_by_packets(unsigned flags) {
  constexpr auto kTaken = static_cast<unsigned>(BlockFlag::taken), kChosen = static_cast<unsigned>(BlockFlag::chosen);
  constexpr auto kAmbiguous = static_cast<unsigned>(BlockFlag::ambiguous);
  return {{0, 8, flags | kChosen},
          {8, 16, flags | kTaken},
          {0, 8, flags | kTaken | kChosen},
          {12, 16, flags | kTaken},
          {0, 8, flags | kTaken | kAmbiguous}};
}

TEST_F(KernelCopies, ThePacketsChooseBothInOneRun) {
  write("recording/data", perf_data({reinterpret_cast<const char*>(kTrace), sizeof kTrace}));
  copy("recording/kcore_dir", {kNopBytes, kIfZeroBackBytes, kNopBytes, kRetBytes});
  copy("after", {kNopBytes, kForward2Bytes, kNopBytes, kRetBytes});
  EXPECT_EQ(blocks(true), chosen_by_packets(static_cast<unsigned>(BlockFlag::suspect)));
  EXPECT_TRUE(gaps_.empty());
  // With the first copy alone, the packets that contradict it are reported.
  (void)blocks(false);
  ASSERT_FALSE(gaps_.empty());
  EXPECT_EQ(gaps_[0].reason, GapReason::image_mismatch);
}

// Where the changes are reported, one copy is enough and nothing is suspect. The second record says that the change is done. Once the new
// text has run, it is the only one: the last block is not ambiguous.
TEST_F(KernelCopies, AReportedChangeLeavesNothingSuspect) {
  const std::string records = poke(1, kTextBase, kNopBytes, kNopBytes) + poke(10, kTextBase + 4, kIfZeroBackBytes, kForward2Bytes) +
                              poke(20, kTextBase + 4, kForward2Bytes, kForward2Bytes);
  write("recording/data", perf_data({reinterpret_cast<const char*>(kTrace), sizeof kTrace}, records));
  copy("recording/kcore_dir", {kNopBytes, kIfZeroBackBytes, kNopBytes, kRetBytes});
  std::vector<Found> expected = chosen_by_packets(0);
  expected.back().flags = static_cast<unsigned>(BlockFlag::taken);
  EXPECT_EQ(blocks(false), expected);
  EXPECT_TRUE(gaps_.empty());
  OpenOptions options;
  options.path = (folder_ / "recording").string();
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  CodeView view((*opened)->timeline());
  for (const auto& [time, versions] : {std::pair(5U, 1U), std::pair(15U, 2U), std::pair(25U, 1U)}) {
    std::array<CodeCandidate, 16> found;
    const TimeNs at{time};
    EXPECT_EQ(view.fetch(kKernelSpace, Ip{kTextBase + 4}, Interval{at, at}, {}, found, 4).count, versions) << time;
  }
}

// Copies that are equal do not show that nothing changed in between.
TEST_F(KernelCopies, EqualCopiesProveNothing) {
  const std::string trace(reinterpret_cast<const char*>(kTrace), 27);  // up to the first E
  copy("recording/kcore_dir", {kNopBytes, kIfZeroBackBytes, kNopBytes, kRetBytes});
  copy("after", {kNopBytes, kIfZeroBackBytes, kNopBytes, kRetBytes});
  for (const bool reported : {false, true}) {
    write("recording/data", perf_data(trace, reported ? poke(1, kTextBase, kNopBytes, kNopBytes) : ""));
    const std::vector<Found> found = blocks(true);
    ASSERT_EQ(found.size(), 2U);
    for (const Found& block : found) EXPECT_EQ((block.flags & static_cast<unsigned>(BlockFlag::suspect)) == 0, reported);
  }
}

// arm64 kernels record no changes of their text: copies that differ are reported, but no record was lost.
TEST_F(KernelCopies, AChangeProvesNoLoss) {
  write("recording/data", perf_data({reinterpret_cast<const char*>(kTrace), sizeof kTrace}));
  copy("recording/kcore_dir", {kNopBytes, kIfZeroBackBytes, kNopBytes, kRetBytes});
  copy("after", {kNopBytes, kForward2Bytes, kNopBytes, kRetBytes});
  OpenOptions options;
  options.path = (folder_ / "recording").string();
  options.kcore_after = {(folder_ / "after").string()};
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const TextRecords records = text_records(**opened);
  EXPECT_EQ(records, TextRecords::none);
  const std::vector<Finding>& findings = (*opened)->timeline().findings();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_FALSE(cli::disagrees(findings[0], records));
  const std::string text = cli::finding_text(findings[0], records);
  EXPECT_NE(text.find("copies_differ: "), std::string::npos) << text;
  EXPECT_EQ(text.find("poke"), std::string::npos) << text;
  EXPECT_EQ(text.find("lost"), std::string::npos) << text;
}

// Adjacent words that changed: each word is one or the other, never parts of both. The first two differ in their second byte only, and
// the first byte in which the next two differ is 0xcc, which on x86 would be a breakpoint of one byte.
TEST_F(KernelCopies, AWordChangesAsAWhole) {
  constexpr uint32_t kCallFar = 0x94010103, kCallNear = 0x94000103, kAdd = 0x910010cc, kMove = 0xaa0103e1;
  write("recording/data", perf_data({reinterpret_cast<const char*>(kTrace), sizeof kTrace}));
  copy("recording/kcore_dir", {kCallFar, kAdd, kNopBytes, kRetBytes});
  copy("after", {kCallNear, kMove, kNopBytes, kRetBytes});
  OpenOptions options;
  options.path = (folder_ / "recording").string();
  options.kcore_after = {(folder_ / "after").string()};
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  CodeView view((*opened)->timeline());
  for (const auto& [at, before, after] : {std::tuple(0U, kCallFar, kCallNear), std::tuple(4U, kAdd, kMove)}) {
    std::array<CodeCandidate, 16> found;
    const FetchResult result = view.fetch(kKernelSpace, Ip{kTextBase + at}, Interval{}, {}, found, 4);
    ASSERT_EQ(result.count, 2U) << at;
    std::set<uint32_t> words;
    for (size_t i = 0; i < 2; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, found[i].bytes.data(), 4);
      words.insert(word);
    }
    EXPECT_EQ(words, (std::set<uint32_t>{before, after})) << at;
  }
}

}  // namespace
}  // namespace ptd::test
