// BootCode: what a log of code that ran does to a copy of the kernel's code, and the records that it gives.
#include "capture/emulate/system/boot_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "capture/emulate/plugin/code_log.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kText = 0xffffffff81000000, kInit = 0xffffffff83000000;

class BootCodeTest : public testing::Test {
 protected:
  BootCodeTest() {
    std::string name = (fs::temp_directory_path() / "ptdecode-boot-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    // An ELF core of one segment: [ELF] "ELF Header", "Program Header".
    std::string core(0x1000, '\0');
    const auto put = [&](size_t at, uint64_t value, size_t bytes) { std::memcpy(core.data() + at, &value, bytes); };
    core.replace(0, 7, "\177ELF\2\1\1");
    put(16, 4, 2), put(18, 62, 2), put(20, 1, 4), put(32, 64, 8), put(52, 64, 2), put(54, 56, 2), put(56, 1, 2);
    put(64, 1, 4), put(68, 5, 4), put(72, 0x800, 8), put(80, kText, 8), put(96, 16, 8), put(104, 16, 8);
    core.replace(0x800, 16, "0123456789abcdef");
    std::ofstream(folder_ + "/core", std::ios::binary) << core;
  }
  ~BootCodeTest() override { fs::remove_all(folder_); }
  static Bytes bytes(const char* text) { return std::as_bytes(std::span(text, std::strlen(text))); }
  std::string text_of_copy() const {
    std::ifstream file(folder_ + "/core", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {}).substr(0x800, 16);
  }
  /// "TIME ADDRESS OLD>NEW" of each record before `time_ns`.
  static std::vector<std::string> records(BootCode& code, uint64_t time_ns) {
    std::vector<std::string> lines;
    const auto text = [](const std::vector<std::byte>& all) { return std::string(reinterpret_cast<const char*>(all.data()), all.size()); };
    EXPECT_TRUE(code.up_to(time_ns,
                           [&](const perfio::TextPokeRecord& poke, uint64_t when) {
                             lines.push_back(std::to_string(when) + " " + (poke.addr >= kInit ? "init+" : "text+") +
                                             std::to_string(poke.addr - (poke.addr >= kInit ? kInit : kText)) + " " + text(poke.old_bytes) +
                                             ">" + text(poke.new_bytes));
                             return Status();
                           })
                    .ok());
    return lines;
  }
  Result<BootCode> open() {
    return BootCode::open(folder_ + "/log", folder_ + "/core", [](uint64_t time) { return time * 10; });
  }
  std::string folder_;
};

TEST_F(BootCodeTest, FirstVersionsAreTheStartAndChangesAreRecords) {
  CodeLog log;
  ASSERT_TRUE(log.open(folder_ + "/log"));
  log.see(5, kText, bytes("AB23"));       // the copy was changed after it ran
  log.see(6, kInit, bytes("init"));       // not in the copy
  log.see(7, kText, bytes("AB23"));       // nothing new
  log.see(9, kText + 1, bytes("12345"));  // B becomes 1
  log.see(12, kInit, bytes("inIT"));
  log.see(14, kText + 1, bytes("B2"));  // and B again
  log.close();
  EXPECT_EQ(log.failures(), 0U);
  Result<BootCode> code = open();
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(text_of_copy(), "AB23456789abcdef");
  EXPECT_THAT(records(*code, 100), testing::ElementsAre("50 init+0 >init", "90 text+1 B>1"));
  EXPECT_THAT(records(*code, UINT64_MAX), testing::ElementsAre("120 init+2 it>IT", "140 text+1 1>B", "140 text+0 AB>01"));
}

TEST_F(BootCodeTest, ARecordOfTheKernelIsNotRepeated) {
  CodeLog log;
  ASSERT_TRUE(log.open(folder_ + "/log"));
  log.see(5, kText, bytes("01"));
  log.see(9, kText, bytes("XY"));
  log.close();
  Result<BootCode> code = open();
  ASSERT_TRUE(code);
  perfio::TextPokeRecord poke;
  poke.addr = kText;
  for (const char c : {'X', 'Y'}) poke.new_bytes.push_back(static_cast<std::byte>(c));
  code->on_poke(poke);
  EXPECT_THAT(records(*code, UINT64_MAX), testing::ElementsAre("90 text+0 XY>01"));  // as the copy has it
}

TEST_F(BootCodeTest, WithoutOrWithACutLog) {
  EXPECT_THAT(records(*open(), UINT64_MAX), testing::IsEmpty());
  EXPECT_EQ(text_of_copy(), "0123456789abcdef");
  const uint64_t head[] = {1, kText, 1000};
  std::ofstream(folder_ + "/log", std::ios::binary).write(reinterpret_cast<const char*>(head), sizeof(head)) << "zz";
  EXPECT_TRUE(open().ok());
  EXPECT_EQ(text_of_copy(), "zz23456789abcdef");
}

}  // namespace
}  // namespace ptd::emulate
