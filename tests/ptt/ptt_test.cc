// Runs libipt's .ptt suite: every test on every processor that it names, against the ptxed output expected by the test. Each is decoded
// with the fast path and with the exact walker only, in large batches and in batches of one block.
//
// pttc and the suite come from a libipt source tree outside of this one: PTDECODE_PTTC is the program, PTDECODE_PTT_DIR the folder with the
// .ptt files (test/src). Without them there is nothing to run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/ptt/ptt_text.h"

namespace ptd::ptt {
namespace {

struct Difference {
  const char* test;
  const char* cause;
};

// Tests whose flow differs from ptxed's, and the reasons. See docs/DIFFERENCES.md, "libipt's tests".
constexpr Difference kDifferences[] = {
    {"bad_cpu", "an unknown processor is not an error: its trace is decoded"},
    {"ptet-evd_cr2-cfe_iret", "event data that does not go with its control-flow event is told; the flow is in no doubt"},
    {"ptet-evd_cr2-evd_vmxq", "likewise"},
    {"ptet-evd_vmxq-cfe_intr", "likewise"},
    {"ptet-evd_vmxr-cfe_rsm", "likewise"},
    {"ptet-evd_vmxr-evd-cr2", "likewise"},
    {"mtc-ovf_reset-cyc", "the ratio of clocks is kept over an overflow"},
    {"pip-pip_mov_cr3-fail", "a PIP that no MOV CR3 took is told after the gap"},
    {"ptxed-resync-nomap-tip_pge", "no packet tells that tracing ended, so no event does"},
    {"ptxed-resync-psb-bad_status-psb", "every PSB is an independent start, also one whose mode is not what the packets before it say"},
};

bool is_known_difference(const std::string& test) {
  return std::any_of(std::begin(kDifferences), std::end(kDifferences), [&](const Difference& known) { return test == known.test; });
}

// For PTWRITE ptxed prints the address only if a FUP gives it; here it is always known.
bool is_same(const std::string& ours, const std::string& theirs) {
  if (ours == theirs) return true;
  const std::string start = theirs.substr(0, theirs.size() - 1);
  return theirs.starts_with("[ptwrite: ") && ours.starts_with(start + ", ip: ");
}

// Returns both flows in two columns; empty if they are equal.
std::string difference(const std::vector<std::string>& got, const std::vector<std::string>& want) {
  if (std::equal(got.begin(), got.end(), want.begin(), want.end(), is_same)) return {};
  constexpr size_t kMost = 60;
  std::string text = "\n  ours | ptxed's\n";
  for (size_t i = 0; i < std::min(kMost, std::max(got.size(), want.size())); ++i) {
    const std::string ours = i < got.size() ? got[i] : "", theirs = i < want.size() ? want[i] : "";
    text += std::string(ours == theirs ? "  " : "> ") + ours + " | " + theirs + "\n";
  }
  return text;
}

// Compares the other expected results of a test.
std::string difference_besides_flow(const Lines& got, const Lines& want) {
  if (want.instructions != 0 && got.instructions != want.instructions) return "instructions: " + std::to_string(got.instructions);
  if (want.blocks != 0 && got.blocks != want.blocks) return "blocks: " + std::to_string(got.blocks);
  auto start = got.block_starts.begin();
  for (const uint64_t ip : want.block_starts) {  // libipt's blocks may continue through direct branches, ours do not
    start = std::find(start, got.block_starts.end(), ip);
    if (start++ == got.block_starts.end()) return "no block begins at " + std::to_string(ip);
  }
  auto event = got.events.begin();
  for (const TimedEvent& timed : want.events) {
    event = std::find_if(event, got.events.end(), [&](const TimedEvent& ours) { return ours.text == timed.text; });
    if (event == got.events.end() || !event->time.contains(timed.time)) return "time of " + timed.text;
    ++event;
  }
  return {};
}

class PttTest : public testing::Test {
 public:
  PttTest(PttRun run, std::string pttc) : run_(std::move(run)), pttc_(std::move(pttc)) {}
  void TestBody() override {
    const Made made = make(run_, pttc_);
    ASSERT_EQ(made.error, "") << run_.path;
    if (!made.expects_flow) GTEST_SKIP() << run_.test << " is for ptdump only";
    const Lines want = wanted(run_, made.want);
    for (const Way way : {Way{}, Way{true, 4096}, Way{false, 1}, Way{true, 1}}) {
      const Lines got = decoded(run_, made, way);
      std::string differs = run_.has("--quiet") ? "" : difference(got.flow, want.flow);
      if (differs.empty()) differs = difference_besides_flow(got, want);
      const std::string name = run_.path + (way.exact ? ", exact walker" : "") + ", batches of " + std::to_string(way.batch_blocks);
      if (is_known_difference(run_.test)) {
        EXPECT_FALSE(differs.empty()) << name << ": no difference any more, take it out of the table";
      } else {
        EXPECT_TRUE(differs.empty()) << name << differs;
      }
    }
  }

 private:
  PttRun run_;
  std::string pttc_;
};

// Every test in the table exists in the suite, and the document names them all.
class TableTest : public testing::Test {
 public:
  explicit TableTest(std::vector<PttRun> runs) : runs_(std::move(runs)) {}
  void TestBody() override {
    std::ifstream file(PTD_SOURCE_DIR "/docs/DIFFERENCES.md");
    const std::string document((std::istreambuf_iterator<char>(file)), {});
    for (const Difference& known : kDifferences) {
      EXPECT_TRUE(std::any_of(runs_.begin(), runs_.end(), [&](const PttRun& run) { return run.test == known.test; })) << known.test;
      EXPECT_NE(document.find(known.test), std::string::npos) << known.test;
    }
  }

 private:
  std::vector<PttRun> runs_;
};

class NoSuite : public testing::Test {
 public:
  explicit NoSuite(std::string why) : why_(std::move(why)) {}
  void TestBody() override { GTEST_SKIP() << why_; }

 private:
  std::string why_;
};

}  // namespace
}  // namespace ptd::ptt

int main(int argc, char** argv) {
  using namespace ptd::ptt;
  testing::InitGoogleTest(&argc, argv);
  const char* pttc = std::getenv("PTDECODE_PTTC");
  const char* dir = std::getenv("PTDECODE_PTT_DIR");
  std::string why;
  std::vector<PttRun> runs;
  if (pttc == nullptr || dir == nullptr) {
    why = "set PTDECODE_PTTC to libipt's pttc and PTDECODE_PTT_DIR to the folder of its .ptt tests";
  } else if (!std::filesystem::exists(pttc)) {
    why = std::string("PTDECODE_PTTC: there is no ") + pttc;
  } else {
    runs = list_runs(dir, why);
  }
  for (const PttRun& run : runs) {
    testing::RegisterTest("Ptt", run.name().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [run, pttc]() -> testing::Test* { return new PttTest(run, pttc); });
  }
  if (!runs.empty()) {
    testing::RegisterTest("Ptt", "TableOfDifferences", nullptr, nullptr, __FILE__, __LINE__,
                          [runs]() -> testing::Test* { return new TableTest(runs); });
  }
  if (runs.empty())
    testing::RegisterTest("Ptt", "NoSuite", nullptr, nullptr, __FILE__, __LINE__, [why]() -> testing::Test* { return new NoSuite(why); });
  return RUN_ALL_TESTS();
}
