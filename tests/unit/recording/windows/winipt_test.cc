// Dumps of ipt.sys: rings, and each way in which a dump can be damaged. Lists of modules, and the files that are used for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "ptdecode/recording.h"
#include "recording/windows/module_list.h"
#include "recording/windows/winipt_dump.h"
#include "tests/unit/image/pe_support.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::TempDir;
using pe_test::PeImage;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kPsb("\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x23", 18);  // with PSBEND

struct Ring {
  uint64_t thread = 8;
  std::string bytes;
  uint32_t offset = 0;
  uint32_t timing = 0, mtc = 0, ratio = 0;
  int64_t size = -1;  // claimed; -1: the bytes
};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string entry_of(const Ring& ring) {
  std::string out;
  put(out, ring.thread);
  for (const uint32_t value : {ring.timing, ring.mtc, ring.ratio, ring.offset}) put(out, value);
  put(out, static_cast<uint32_t>(ring.size < 0 ? static_cast<int64_t>(ring.bytes.size()) : ring.size));
  return out + ring.bytes;
}

std::string dump_of(const std::vector<Ring>& rings, bool header = true, uint16_t version = 1, uint16_t valid = 1) {
  std::string body, out;
  for (const Ring& ring : rings) body += entry_of(ring);
  if (!header) return body;
  put(out, version);
  put(out, valid);
  put(out, static_cast<uint32_t>(body.size()));
  return out + body;
}

Result<WiniptDump> read_text(const TempDir& dir, const std::string& text) {
  static std::vector<std::shared_ptr<const MappedFile>> kept;  // streams refer to it
  auto file = MappedFile::open(dir.write("dump", text));
  if (!file.ok()) return file.error();
  kept.push_back(*file);
  auto dump = read_winipt(**file);
  if (dump.ok()) {
    for (AuxStream& stream : dump->streams) stream.finish();
  }
  return dump;
}

std::string content_of(const AuxStream& stream) {
  std::vector<std::byte> scratch;
  const Bytes bytes = stream.read(stream.begin_offset(), stream.end_offset(), scratch);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> texts_of(const std::vector<Finding>& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings) texts.push_back(finding.what);
  return texts;
}

Result<std::unique_ptr<Recording>> open_dump(const TempDir& dir, const std::string& dump, const std::string& list = {},
                                             const std::string& root = {}) {
  RawOptions raw;
  raw.winipt_path = dir.write("dump", dump);
  if (!list.empty()) raw.modules_path = dir.write("modules", list);
  OpenOptions options;
  options.debug_dirs.clear();
  if (!root.empty()) options.symfs = {root};
  return Recording::open_raw(raw, options);
}

const std::string kTrace = kPsb + "0123456789abcdef";  // the first 18 bytes are a packet

TEST(Winipt, RingsAreUnrolled) {
  struct Case {
    const char* name;
    std::string bytes;
    uint32_t offset;
    std::string want;
    uint64_t begin;
  };
  const std::string zeros(30, '\0'), later = "xyz" + kPsb + "!!!";
  const std::vector<Case> cases = {
      {"empty", zeros, 0, "", 0},
      {"not full", kTrace + zeros, 34, kTrace, 0},
      {"exactly full", kTrace, 34, kTrace, 0},
      {"exactly full, next byte at the start", kTrace, 0, kTrace, 0},
      {"was full", later.substr(10) + later.substr(0, 10), static_cast<uint32_t>(later.size() - 10), later, later.size() - 10},
      {"was full, next byte at the start", later, 0, later, later.size()},
      {"was full, next byte at the end", later, static_cast<uint32_t>(later.size()), later, later.size()},
      {"the oldest bytes are padding", kTrace + zeros + "x", 34, zeros + "x" + kTrace, 34},
  };
  const TempDir dir;
  for (const Case& each : cases) {
    for (const bool header : {true, false}) {
      const auto dump = read_text(dir, dump_of({{12, each.bytes, each.offset}}, header));
      ASSERT_TRUE(dump.ok()) << each.name;
      ASSERT_EQ(dump->streams.size(), 1U) << each.name;
      EXPECT_EQ(dump->streams[0].tid, 12) << each.name;
      EXPECT_EQ(content_of(dump->streams[0]), each.want) << each.name;
      EXPECT_EQ(dump->streams[0].begin_offset(), each.begin) << each.name;
      EXPECT_EQ(dump->has_psb, each.want.find(kPsb) != std::string::npos) << each.name;
      EXPECT_THAT(texts_of(dump->findings), IsEmpty()) << each.name;
    }
  }
}

TEST(Winipt, APacketThatTheEndOfTheRingDivides) {
  const TempDir dir;
  for (uint32_t cut = 1; cut < kPsb.size(); ++cut) {
    const std::string bytes = "ab" + kPsb + "cd";
    const auto dump =
        read_text(dir, dump_of({{12, bytes.substr(cut + 2) + bytes.substr(0, cut + 2), static_cast<uint32_t>(bytes.size()) - cut - 2}}));
    ASSERT_TRUE(dump.ok());
    EXPECT_EQ(content_of(dump->streams[0]), bytes);
    EXPECT_TRUE(dump->has_psb) << cut;
  }
}

TEST(Winipt, TheClockIsThatOfTheHeaders) {
  const TempDir dir;
  const auto opened = open_dump(dir, dump_of({{8, kTrace, 34}, {12, kTrace, 34, 1, 3, 84}, {16, kTrace, 34, 2, 3, 84}}));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const pt::Config& config = (*opened)->decoder_options().config;
  EXPECT_EQ(config.mtc_period, 3);
  EXPECT_EQ(config.tsc_ctc_ratio_n, 84U);
  EXPECT_EQ(config.tsc_ctc_ratio_d, 1U);
  EXPECT_TRUE(config.has_mtc);
  std::vector<int32_t> tids;
  for (const StreamInfo& stream : (*opened)->streams()) tids.push_back(stream.tid);
  EXPECT_THAT(tids, ElementsAre(8, 12, 16));
  const auto other = read_text(dir, dump_of({{8, kTrace, 34, 1, 3, 84}, {12, kTrace, 34, 1, 16, 84}, {16, kTrace, 34, 7, 3, 84}}));
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(texts_of(other->findings),
              testing::UnorderedElementsAre(HasSubstr("differ from thread to thread"), HasSubstr("MTC frequency above 15"),
                                            HasSubstr("unknown timing settings (thread 16)")));
}

TEST(Winipt, DamagedDumps) {
  struct Case {
    const char* name;
    std::string dump;
    std::vector<std::string> contents;
    const char* finding;
  };
  std::string lying = dump_of({{8, kTrace, 34}});
  lying[4] = 100;
  const std::string cut = dump_of({{8, kTrace, 34}, {12, kTrace, 34}});
  const std::vector<Case> cases = {
      {"ring offset outside", dump_of({{8, kTrace, 35}, {12, kTrace, 34}}), {"", kTrace}, "ring offset outside of the ring"},
      {"huge ring offset", dump_of({{8, kTrace, 0xffffffff}, {12, kTrace, 34}}), {"", kTrace}, "ring offset outside of the ring"},
      {"the size of all is too large", lying, {kTrace}, "is cut: it has 62 of 100 bytes"},
      {"a ring is cut", cut.substr(0, cut.size() - 10), {kTrace, kTrace.substr(0, 24)}, "is cut: trace is missing (thread 12)"},
      {"a header is cut", cut.substr(0, cut.size() - 40), {kTrace}, "ends within the header of a thread"},
      {"a ring of 4 GiB", dump_of({{8, kTrace, 34}, {12, kTrace, 34, 0, 0, 0, 0xffffffff}}), {kTrace, kTrace}, "is cut: trace is missing"},
      {"a thread twice", dump_of({{8, kTrace, 34}, {8, kTrace + "x", 35}}), {kTrace, ""}, "more than once"},
      {"thread 0", dump_of({{0, kTrace, 34}}), {kTrace}, "thread id of no thread"},
      {"a thread of 64 bits", dump_of({{8, kTrace, 34}, {uint64_t{1} << 40, kTrace, 34}}), {kTrace, kTrace}, "thread id of no thread"},
      {"not valid", dump_of({{8, kTrace, 34}}, true, 1, 0), {kTrace}, "not valid"},
  };
  const TempDir dir;
  for (const Case& each : cases) {
    const auto dump = read_text(dir, each.dump);
    ASSERT_TRUE(dump.ok()) << each.name;
    std::vector<std::string> contents;
    for (const AuxStream& stream : dump->streams) contents.push_back(content_of(stream));
    EXPECT_EQ(contents, each.contents) << each.name;
    EXPECT_THAT(texts_of(dump->findings), testing::Contains(HasSubstr(each.finding))) << each.name;
    const auto opened = open_dump(dir, each.dump);
    ASSERT_TRUE(opened.ok()) << each.name << ": " << opened.error().message;
    EXPECT_THAT(texts_of((*opened)->findings()), testing::Contains(HasSubstr(each.finding))) << each.name;
  }
}

// IptTlGetTrace() of [winipt]'s ipttool: HeapAlloc(HEAP_ZERO_MEMORY) of the size that was asked for, and WriteFile() of the whole.
TEST(Winipt, ZerosAfterTheLastThreadAreNoThreads) {
  const TempDir dir;
  for (const bool header : {true, false}) {
    for (const size_t zeros : {1U, 27U, 28U, 29U, 100'000U, 1U << 20}) {
      std::string text = dump_of({{8, kTrace, 34}, {12, kTrace, 34}}, header) + std::string(zeros, '\0');
      const auto size = static_cast<uint32_t>(text.size() - 8);
      if (header) std::memcpy(text.data() + 4, &size, sizeof size);
      const auto dump = read_text(dir, text);
      ASSERT_TRUE(dump.ok());
      EXPECT_EQ(dump->streams.size(), 2U) << zeros;
      EXPECT_THAT(texts_of(dump->findings), IsEmpty()) << zeros;
      EXPECT_THAT(dump->warnings, IsEmpty()) << zeros;
    }
  }
}

TEST(Winipt, RefusedFiles) {
  const TempDir dir;
  for (const auto& [name, dump, code] : std::vector<std::tuple<const char*, std::string, ErrorCode>>{
           {"empty", "", ErrorCode::empty_file},
           {"7 bytes", "1234567", ErrorCode::truncated_header},
           {"version 2", dump_of({{8, kTrace, 34}}, true, 2), ErrorCode::unsupported_version},
           {"another file", std::string(100, 'x'), ErrorCode::unsupported_version},
           {"a raw trace", kTrace, ErrorCode::unsupported_version},
           {"zeros", std::string(100, '\0'), ErrorCode::no_trace},
           {"no trace", dump_of({{8, std::string(64, '\0'), 0}}), ErrorCode::no_trace}}) {
    const auto opened = open_dump(dir, dump);
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.error().code, code) << name << ": " << opened.error().message;
  }
}

TEST(Winipt, EveryTruncationAndEveryChangedByteOfTheHeaders) {
  const TempDir dir;
  const std::string zeros(20, '\0');
  for (const bool header : {true, false}) {
    const std::string dump =
        dump_of({{8, kTrace + zeros, 34, 1, 3, 84}, {12, kTrace.substr(20) + kTrace.substr(0, 20), 14, 1, 3, 84}}, header);
    for (size_t size = 0; size < dump.size(); ++size) {
      const auto read = read_text(dir, dump.substr(0, size));
      if (!read.ok()) continue;
      for (const AuxStream& stream : read->streams) EXPECT_LE(content_of(stream).size(), size);
      EXPECT_FALSE(read->findings.empty() && (header || (size != 82))) << size;  // 82: the end of the first ring
    }
    for (size_t at = 0; at < dump.size(); at = at + 1 == 36 ? 90 : at + 1) {
      for (const int change : {1, 0x80, 0xff}) {
        std::string changed = dump;
        changed[at] = static_cast<char>(changed[at] ^ change);
        (void)open_dump(dir, changed);
      }
    }
  }
}

TEST(Winipt, ThousandsOfThreads) {
  const TempDir dir;
  std::vector<Ring> rings{{8, kTrace, 34}};
  for (uint64_t i = 0; i < WiniptDump::kMostThreads; ++i) rings.push_back({12 + 4 * i, "", 0});
  const auto dump = read_text(dir, dump_of(rings));
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->streams.size(), WiniptDump::kMostThreads);
  EXPECT_THAT(texts_of(dump->findings), ElementsAre(HasSubstr("more than 16384 threads")));
}

std::vector<std::tuple<uint64_t, uint64_t, std::string>> listed(const std::string& text) {
  const auto list = parse_module_list(text, "LIST");
  if (!list.ok()) return {{0, 0, list.error().message}};
  std::vector<std::tuple<uint64_t, uint64_t, std::string>> modules;
  for (const ListedModule& module : *list) modules.emplace_back(module.base, module.size_bytes, module.path);
  return modules;
}

TEST(ModuleList, Forms) {
  const auto want = ElementsAre(std::tuple(0x7ff6a3b10000, 0x3f000, "C:\\a, \"b\"\\app.exe"),
                                std::tuple(0x7ffb10000000, 0x1f0000, "C:\\Windows\\ntdll.dll"));
  EXPECT_THAT(listed("\"BaseAddress\",\"ModuleMemorySize\",\"FileName\"\r\n\"140716281954304\",\"2031616\",\"C:\\Windows\\ntdll.dll\"\r\n"
                     "\"140697284968448\",\"258048\",\"C:\\a, \"\"b\"\"\\app.exe\"\r\n"),
              want);
  EXPECT_THAT(listed("\xef\xbb\xbf#TYPE Selected\nPath,Other,Size,Base\n\"C:\\a, "
                     "\"\"b\"\"\\app.exe\",x,0x3F000,0x7ff6a3b10000\n\nC:\\Windows\\ntdll.dll,x,0x1f0000,0x7ffb10000000"),
              want);
  EXPECT_THAT(
      listed(
          "0:000> lm f\nstart             end                 module name\n00007ff6`a3b10000 00007ff6`a3b4f000   app      C:\\a, "
          "\"b\"\\app.exe\n"
          "00007ffb`10000000 00007ffb`101f0000   ntdll    C:\\Windows\\ntdll.dll\n\nUnloaded modules:\n00007ffb`20000000 00007ffb`20001000 "
          "  x   x.dll\n"),
      want);
  const auto stamped = parse_module_list("base,size,path,TimeDateStamp\n0x1000,4096,a.dll,0x5eadbeef\n0x3000,4096,b.dll,\n", "LIST");
  ASSERT_TRUE(stamped.ok());
  EXPECT_EQ((*stamped)[0].timestamp, 0x5eadbeefU);
  EXPECT_FALSE((*stamped)[1].timestamp);
}

TEST(ModuleList, BadLists) {
  const std::string header = "base,size,path\n";
  for (const auto& [text, why] : std::vector<std::pair<std::string, const char*>>{
           {"", "lists no module"},
           {"nothing\n", "lists no module"},
           {header, "lists no module"},
           {"\xff\xfe"
            "b",
            "UTF-16"},
           {header + "1000", "LIST:2: has fewer fields"},
           {header + "zzz,1,a", "LIST:2: 'zzz' is no address"},
           {header + "7ff612340000,1,a", "LIST:2: '7ff612340000' is no address"},  // hex needs 0x
           {header + "1,-1,a", "'-1' is no size"},
           {header + "1,0,a", "does not fit"},
           {header + "0xffffffffffffffff,1,a", "does not fit"},
           {header + "1,1,", "has no path"},
           {"base,size,path,timestamp\n1,1,a,0x100000000", "is no TimeDateStamp"},
           {"00007ff6`a3b10000 00007ff6`a3b4f000   app  (deferred)\n", "use 'lm f'"},
           {"2000 1000 app C:\\app.exe\n", "ends before it starts"}}) {
    EXPECT_THAT(listed(text), ElementsAre(testing::FieldsAre(0U, 0U, HasSubstr(why)))) << text;
  }
  std::string many = header;
  for (int i = 0; i < 8193; ++i) many += "1,1,a\n";
  EXPECT_THAT(listed(many), ElementsAre(testing::FieldsAre(0U, 0U, HasSubstr("more than 8192 modules"))));
  EXPECT_THAT(listed(std::string(1 << 20, ',')), ElementsAre(testing::FieldsAre(0U, 0U, HasSubstr("lists no module"))));
}

int byte_at(const Recording& recording, uint64_t address) {
  const Timeline& timeline = recording.timeline();
  const SectionId id = timeline.section_at(recording.decoder_options().default_space, Ip{address}, kTimeMin);
  if (id == kNoSection) return -1;
  const Section& section = timeline.section(id);
  const uint64_t at = address - section.ip.value;
  return at < section.code.bytes.size() ? std::to_integer<int>(section.code.bytes[at]) : -1;
}

class Modules : public testing::Test {
 protected:
  static constexpr uint64_t kBase = 0x7ff700000000;
  const std::string dump_ = dump_of({{8, kTrace, 34}});
  const std::string list_ = "base,size,path\n0x7ff700000000,0x4000,C:\\Windows\\System32\\Some.dll\n";
  TempDir dir_;

  static PeImage image() {
    PeImage image;
    image.put_relocations({0xa010, 0});
    return image;
  }
  /// Opens with the list; expects that the module's code is there or not, and the findings.
  void expect(bool found, const testing::Matcher<std::vector<std::string>>& findings, const std::string& list, const char* what) {
    const auto opened = open_dump(dir_, dump_, list, dir_.path() + "/root");
    ASSERT_TRUE(opened.ok()) << what << ": " << opened.error().message;
    EXPECT_EQ(byte_at(**opened, kBase + 0x1000), found ? 0x90 : -1) << what;
    EXPECT_EQ((*opened)->missing_images().size(), found ? 0U : 1U) << what;
    EXPECT_THAT(texts_of((*opened)->timeline().findings()), findings) << what;
  }
};

TEST_F(Modules, AreFoundBelowRootsWithoutRegardToCase) {
  for (const char* place : {"root/Windows/System32/Some.dll", "root/windows/SYSTEM32/some.DLL", "root/C/Windows/System32/Some.dll",
                            "root/some.dll", "SOME.dll"}) {
    const std::string written = dir_.write(place, image().text());
    expect(true, IsEmpty(), list_, place);
    std::filesystem::remove(written);
  }
  expect(false, ElementsAre(HasSubstr("C:/Windows/System32/Some.dll was not found: supply it")), list_, "absent");
  // Modules of the kernel, as WinDbg's `lm f` lists them.
  const std::string system = "base,size,path\n0x7ff700000000,0x4000,\\SystemRoot\\system32\\Some.dll\n";
  for (const char* place : {"root/Windows/System32/Some.dll", "root/SystemRoot/System32/Some.dll", "root/Some.dll"}) {
    const std::string written = dir_.write(place, image().text());
    expect(true, IsEmpty(), system, place);
    std::filesystem::remove(written);
  }
}

TEST_F(Modules, AnotherFileIsNamedAndNotUsed) {
  PeImage other = image();
  other.put<uint32_t>(PeImage::kOptional + 56, 0x5000);
  dir_.write("root/Windows/System32/Some.dll", other.text());
  expect(false, ElementsAre(HasSubstr("has an image of 0x5000 bytes, but the list says 0x4000 for C:/Windows/System32/Some.dll: not used")),
         list_, "another size");
  dir_.write("root/Some.dll", image().text());
  expect(true, IsEmpty(), list_, "another size, and the right one elsewhere");
  const std::string stamped = "base,size,path,timestamp\n0x7ff700000000,0x4000,C:\\Some.dll,";
  expect(true, IsEmpty(), stamped + "0x5eadbeef\n", "the right time");
  expect(false, ElementsAre(HasSubstr("has TimeDateStamp 0x5eadbeef, but the list says 0x1")), stamped + "0x1\n", "another time");
  dir_.write("root/Some.dll", "MZ");
  expect(false, ElementsAre(HasSubstr("Some.dll is not a PE file: not used")), stamped + "0x5eadbeef\n", "no PE file");
}

TEST_F(Modules, WithDamagedRelocationsHaveNoCode) {
  PeImage damaged = image();
  damaged.put<uint32_t>(PeImage::kReloc + 4, 0x7000);
  dir_.write("root/Some.dll", damaged.text());
  expect(false, ElementsAre(HasSubstr("Some.dll has base relocations whose sizes contradict each other: not used")), list_, "damaged");
}

TEST_F(Modules, LinksDoNotLeadOutOfTheRoot) {
  const std::string outside = dir_.write("outside/Some.dll", image().text());
  std::filesystem::create_directories(dir_.path() + "/root");
  ASSERT_EQ(::symlink(outside.c_str(), (dir_.path() + "/root/Some.dll").c_str()), 0);
  expect(false, ElementsAre(HasSubstr("Some.dll cannot be read")), list_, "link");
  std::filesystem::remove(dir_.path() + "/root/Some.dll");
  expect(false, ElementsAre(HasSubstr("was not found")), "base,size,path\n0x7ff700000000,0x4000,C:\\..\\outside\\..\\..\\x.dll\n",
         "parents");
}

TEST_F(Modules, ThatOverlapAreNamed) {
  dir_.write("root/Some.dll", image().text());
  expect(true, ElementsAre(HasSubstr("C:/b.dll and C:/Windows/System32/Some.dll overlap")), list_ + "0x7ff700003000,0x4000,C:\\b.dll\n",
         "overlap");
}

TEST_F(Modules, HaveTheSymbolsOfTheirFiles) {
  dir_.write("root/Some.dll", image().text());
  const auto opened = open_dump(dir_, dump_, list_ + "0x7ff800000000,0x1000,C:\\app.exe\n", dir_.path() + "/root");
  ASSERT_TRUE(opened.ok());
  const SpaceId space = (*opened)->decoder_options().default_space;
  const auto name = [&](uint64_t offset) {
    const auto symbol = (*opened)->symbolizer().find(space, Ip{kBase + offset}, kTimeMin);
    return symbol ? std::string(symbol->name) + "+" + std::to_string(symbol->offset_bytes) + " " + std::string(symbol->module) : "";
  };
  EXPECT_EQ(name(0x1010), "first+16 Some.dll");
  EXPECT_EQ(name(0x1020), "");  // .pdata ends it
  EXPECT_EQ(name(0x1058), "second_long_name+24 Some.dll");
  EXPECT_EQ(name(0x1068), "");
  EXPECT_EQ(name(0x10f0), "third+112 Some.dll");  // not in .pdata: up to the next symbol or the end of the section
  EXPECT_THAT((*opened)->symbolizer().addresses_of("third"), ElementsAre(Ip{kBase + 0x1080}));
  EXPECT_EQ((*opened)->comm_at(8, kTimeMin), "app.exe");
  const auto frame = (*opened)->symbolizer().frame_at(space, Ip{kBase + 0x1068}, kTimeMin);
  ASSERT_TRUE(frame);
  EXPECT_FALSE(frame->is_function);
}

TEST_F(Modules, NeedADumpOrATrace) {
  RawOptions raw;
  raw.pt_path = dir_.write("trace", kTrace);
  raw.winipt_path = dir_.write("dump", dump_);
  const auto both = Recording::open_raw(raw, {});
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().code, ErrorCode::contradictory_options);
  raw.winipt_path.clear();
  raw.modules_path = dir_.write("modules", list_);
  dir_.write("Some.dll", image().text());
  const auto opened = Recording::open_raw(raw, {});
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(byte_at(**opened, kBase + 0x1000), 0x90);
}

}  // namespace
}  // namespace ptd
