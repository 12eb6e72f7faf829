// The corpus' table of instruction lengths and branch classes, every row.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "decoder/insn/insn.h"
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
    const auto mode = field[0] == "64" ? ExecMode::bits64 : ExecMode::bits32;
    const auto bytes = bytes_of(field[1]);
    const Insn insn = classify(bytes, mode);
    EXPECT_EQ(insn.length_bytes, std::stoi(field[2])) << line;
    const InsnClass want = expected_class(field[4], field[5]);
    // The table leaves PTWRITE and MOV CR3 unclassified: they are sequential. It also leaves out UIRET, which [SDM] "User-Interrupt
    // Return" makes a far transfer.
    const bool uiret = insn.detail == InsnDetail::uiret && field[1] == "f30f01ec";
    EXPECT_EQ(is_branch(insn.cls) && !uiret ? insn.cls : InsnClass::other, want) << line;
    EXPECT_EQ(static_cast<int32_t>(insn.displacement), static_cast<int32_t>(std::stoul(field[3], nullptr, 0))) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 1753);
}

}  // namespace
}  // namespace ptd
