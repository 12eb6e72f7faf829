// Files and names that a recording refers to often: memory does not grow with how often, or under how many paths.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kFirstCode = 0x7f0000000000;

/// A jitdump of process 10: one function of 16 bytes without its code, which moves `moves` times. Its records do not name a process.
std::vector<std::byte> moving_jitdump(const std::string& name, uint64_t moves) {
  std::vector<std::byte> dump;
  const auto put = [&](auto value) { image_test::append(dump, value); };
  put(uint32_t{0x4A695444}), put(uint32_t{1}), put(uint32_t{40}), put(uint32_t{62}), put(uint32_t{0}), put(uint32_t{10}), put(uint64_t{0}),
      put(uint64_t{0});
  put(uint32_t{0}), put(static_cast<uint32_t>(16 + 40 + name.size() + 1)), put(uint64_t{1000}), put(uint32_t{0}), put(uint32_t{10});
  put(kFirstCode), put(kFirstCode), put(uint64_t{16}), put(uint64_t{1});
  for (const char c : name) put(c);
  put('\0');
  for (uint64_t i = 0; i < moves; ++i) {
    const uint64_t from = kFirstCode + 16 * i, to = from + 16;
    put(uint32_t{1}), put(uint32_t{16 + 48}), put(uint64_t{1001 + i}), put(uint32_t{0}), put(uint32_t{10});
    put(to), put(from), put(to), put(uint64_t{16}), put(uint64_t{1});
  }
  return dump;
}

/// Returns another path of /tmp/`name`.
std::string spelled(int number, const std::string& name) {
  std::string path = "/tmp/";
  for (int i = 0; i < number; ++i) path += "./";
  return path + name;
}

TEST_F(Fold, AllMovesOfAFunctionShareItsName) {
  dir_.write("tmp/jit-10.dump", moving_jitdump("_ZN3foo3barEv", 50));
  comm(10, 10, "java", false, 0);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  finish();
  std::set<const std::string*> names;
  for (const NamedRange& range : data_->symbolizer->pick_all().ranges) names.insert(range.name.shared());
  EXPECT_EQ(data_->symbolizer->pick_all().ranges.size(), 51U);
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(**names.begin(), "foo::bar()");
}

TEST_F(Fold, AJitdumpUnderManyPathsIsReadForAFewProcesses) {
  dir_.write("tmp/jit-10.dump", moving_jitdump("a", 0));
  for (int pid = 10; pid < 100; ++pid) {
    comm(pid, pid, "java", false, 0);
    map(pid, 0x7f1000000000, spelled(pid - 10, "jit-10.dump"), 10);
  }
  finish();
  EXPECT_EQ(data_->symbolizer->pick_all().ranges.size(), 8U);
  ASSERT_FALSE(data_->warnings.empty());
  EXPECT_NE(data_->warnings[0].find("mapped by too many processes"), std::string::npos);
}

TEST_F(Fold, APerfMapOfManyProcessesIsReadForAFew) {
  const std::string first = dir_.write("tmp/perf-10.map", "7f0000000000 10 a\n");
  for (int pid = 10; pid < 100; ++pid) {
    if (pid != 10) std::filesystem::create_hard_link(first, dir_.path() + "/tmp/perf-" + std::to_string(pid) + ".map");
    comm(pid, pid, "java", false, 0);
    map(pid, kFirstCode, "//anon", 10);
  }
  finish();
  EXPECT_EQ(data_->symbolizer->pick_all().ranges.size(), 8U);
}

TEST_F(Fold, AFileUnderManyPathsHasItsSymbolsOnce) {
  image_test::SmallElf elf;
  elf.type = ET_DYN;
  elf.address = 0;
  elf.code.resize(0x100);
  elf.symbols = {{"_ZN3foo3barEv", 0x220, 0x20}};
  dir_.write("tmp/big", elf.bytes());
  comm(10, 10, "prog", false, 0);
  for (int i = 0; i < 3; ++i) map(10, kFirstCode + 0x10000 * static_cast<uint64_t>(i), spelled(i, "big"), 10);
  finish();
  const SpaceId space = data_->contexts.at_thread(10, TimeNs{20}).space;
  std::set<const char*> names;
  for (uint64_t i = 0; i < 3; ++i) {
    const auto symbol = data_->symbolizer->find(space, Ip{kFirstCode + 0x10000 * i + 0x223}, TimeNs{20});
    ASSERT_TRUE(symbol) << i;
    EXPECT_EQ(symbol->name, "foo::bar()");
    names.insert(symbol->name.data());
  }
  EXPECT_EQ(names.size(), 1U);
}

/// A bundle of LLDB whose cpus name one file of switches, and whose modules one file of code, under several paths.
TEST(RepeatedFiles, OfAnLldbBundleAreReadOnce) {
  const image_test::TempDir dir;
  image_test::SmallElf elf;
  elf.code = image_test::bytes_of({0xc3});
  const std::string file = dir.write("a", elf.bytes());
  std::filesystem::create_hard_link(file, dir.path() + "/b");
  std::filesystem::create_hard_link(dir.write("trace", std::string(16, '\0')), dir.path() + "/trace2");
  dir.write("switches", std::string(32, '\0'));
  dir.write(
      "trace.json",
      R"({"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":85,"stepping":4},"processes":[{"pid":1,"threads":[{"tid":1}],
                "modules":[{"systemPath":"/bin/a","file":"a","loadAddress":4194304},{"systemPath":"/bin/b","file":"b","loadAddress":8388608}]}],
                "cpus":[{"id":0,"iptTrace":"trace","contextSwitchTrace":"switches"},{"id":1,"contextSwitchTrace":"./switches"},
                        {"id":2,"iptTrace":"trace2","contextSwitchTrace":"././switches"}]})");
  OpenRequest options;
  options.path = dir.path() + "/trace.json";
  RecordingData data;
  const Status status = load_lldb_bundle(options, data);
  ASSERT_TRUE(status.ok()) << status.error().message;
  const auto count_of = [&](const char* text) {
    return std::count_if(data.warnings.begin(), data.warnings.end(),
                         [&](const std::string& warning) { return warning.find(text) != std::string::npos; });
  };
  EXPECT_EQ(count_of("its switches are used for the first"), 1);
  EXPECT_EQ(count_of("the trace is used for the first"), 1);
  EXPECT_EQ(data.streams.size(), 1U);
  ASSERT_EQ(data.elf_files.size(), 2U);
  EXPECT_EQ(data.elf_files.begin()->second, std::next(data.elf_files.begin())->second);
}

}  // namespace
}  // namespace ptd
