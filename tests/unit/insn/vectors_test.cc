// The corpus' table of instruction lengths and branch classes, every row.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "ptdecode/insn.h"
#include "tests/unit/insn/insn_bytes.h"

namespace ptd {
namespace {

InsnClass expected_class(const std::string& cls, const std::string& branch) {
  const bool direct = branch != "indirect";
  if (cls == "call") return direct ? InsnClass::call_direct : InsnClass::call_indirect;
  if (cls == "jmp") return direct ? InsnClass::jump_direct : InsnClass::jump_indirect;
  if (cls == "jcc") return InsnClass::jcc;
  if (cls == "ret") return InsnClass::ret;
  return InsnClass::other;
}

// The tables leave PTWRITE and MOV CR3 unclassified: they are sequential. They omit UIRET, ERETU and ERETS, which [SDM] "User-Interrupt
// Return" and [FRED] define as far transfers, and classify JMPABS as an indirect jump without displacement, because of its TIP.
void check(const std::vector<std::byte>& bytes, ExecMode mode, int length, int32_t displacement, InsnClass want) {
  const Insn insn = classify(bytes, mode);
  EXPECT_EQ(insn.length_bytes, length);
  if (insn.cls == InsnClass::jmpabs) {
    EXPECT_EQ(want, InsnClass::jump_indirect);
    return;
  }
  const bool eret = bytes == bytes_of("f20f01ca") || bytes == bytes_of("f30f01ca");
  const bool left_out = bytes == bytes_of("f30f01ec") || (eret && mode == ExecMode::bits64);
  EXPECT_EQ(left_out, insn.cls == InsnClass::far_ret && want == InsnClass::other);
  EXPECT_EQ(is_branch(insn.cls) && !left_out ? insn.cls : InsnClass::other, want);
  EXPECT_EQ(static_cast<int32_t>(insn.displacement), displacement);
}

TEST(InsnVectors, AllRows) {
  const char* env = std::getenv("PTDECODE_CORPUS");
  const std::string corpus = env != nullptr ? env : PTD_SOURCE_DIR "/../shared/corpus";
  std::ifstream file(corpus + "/x86-insn-vectors/vectors.tsv");
  if (!file) GTEST_SKIP() << "no corpus at " << corpus << "; set PTDECODE_CORPUS";
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> field;
    std::istringstream stream(line);
    for (std::string item; std::getline(stream, item, '\t');) field.push_back(item);
    ASSERT_GE(field.size(), 6U) << line;
    SCOPED_TRACE(line);
    check(bytes_of(field[1]), field[0] == "64" ? ExecMode::bits64 : ExecMode::bits32, std::stoi(field[2]),
          static_cast<int32_t>(std::stoul(field[3], nullptr, 0)), expected_class(field[4], field[5]));
    ++rows;
  }
  EXPECT_EQ(rows, 1753);
}

// Reads perf's own table, of any version: $PTDECODE_PERF_TESTS is the folder tools/perf/arch/x86/tests of a kernel source tree. Rows there
// look like
//   {{0x0f, 0x31, }, 2, 0, "", "",
TEST(InsnVectors, PerfsOwnTables) {
  const char* folder = std::getenv("PTDECODE_PERF_TESTS");
  if (folder == nullptr) GTEST_SKIP() << "PTDECODE_PERF_TESTS is not set: tools/perf/arch/x86/tests of a kernel's source";
  for (const auto& [name, mode] : {std::pair("32", ExecMode::bits32), std::pair("64", ExecMode::bits64)}) {
    std::ifstream file(std::string(folder) + "/insn-x86-dat-" + name + ".c");
    ASSERT_TRUE(file) << folder;
    int rows = 0;
    for (std::string line; std::getline(file, line);) {
      const size_t end = line.find(" }, ");
      if (!line.starts_with("{{") || end == std::string::npos) continue;
      std::string digits;
      for (size_t at = line.find("0x"); at < end; at = line.find("0x", at + 2)) digits += line.substr(at + 2, 2);
      std::string text;
      std::getline(file, text);
      SCOPED_TRACE(testing::Message() << name << ": " << text);
      std::istringstream rest(line.substr(end + 4));
      std::string length, displacement, cls, branch;
      std::getline(rest, length, ',');
      std::getline(rest, displacement, ',');
      std::getline(rest, cls, ',');
      std::getline(rest, branch, ',');
      const auto word = [](const std::string& quoted) { return quoted.substr(2, quoted.size() - 3); };
      check(bytes_of(digits), mode, std::stoi(length), static_cast<int32_t>(std::stol(displacement, nullptr, 0)),
            expected_class(word(cls), word(branch)));
      ++rows;
    }
    EXPECT_GT(rows, 500) << name;
  }
}

}  // namespace
}  // namespace ptd
