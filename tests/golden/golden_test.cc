// Runs every case of tests/golden/cases. `golden --rewrite` writes the actual results into the files; commit that separately, after
// reviewing each line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tests/golden/golden_case.h"

namespace ptd::golden {
namespace {

const char* kind_name(FindingKind kind) {
  switch (kind) {
    case FindingKind::poke_old_bytes_mismatch:
      return "poke_old_bytes_mismatch";
    case FindingKind::poke_healed:
      return "poke_healed";
    case FindingKind::poke_lost_by_copy:
      return "poke_lost_by_copy";
    case FindingKind::base_copy_redated:
      return "base_copy_redated";
    case FindingKind::base_copy_unexplained:
      return "base_copy_unexplained";
    case FindingKind::records_lost:
      return "records_lost";
    case FindingKind::section_overlap:
      return "section_overlap";
    default:
      return "other";
  }
}

std::vector<std::string> finding_words(const Timeline& timeline) {
  std::vector<std::string> words;
  for (const Finding& finding : timeline.findings()) {
    char ip[32];
    std::snprintf(ip, sizeof ip, " %llx", static_cast<unsigned long long>(finding.ip.value));
    words.push_back(kind_name(finding.kind) + std::string(ip));
  }
  std::sort(words.begin(), words.end());
  return words;
}

class GoldenTest : public testing::Test {
 public:
  explicit GoldenTest(Case test) : case_(std::move(test)) {}
  void TestBody() override {
    ASSERT_EQ(case_.error, "") << case_.path;
    ASSERT_FALSE(case_.want.empty()) << case_.path;
    const Timeline timeline = build_timeline(case_, false);
    EXPECT_EQ(decode_case(case_, timeline, 4096), case_.want) << case_.why;
    EXPECT_EQ(decode_case(case_, timeline, 1), case_.want) << "with batches of one block";
    Case exact = case_;
    exact.options.exact_only = true;
    EXPECT_EQ(decode_case(exact, timeline, 4096), case_.want) << "without the fast path";
    if (!case_.erratum.empty()) {
      EXPECT_NE(decode_without_erratum(case_, timeline), case_.want) << "without " << case_.erratum;
    }
    std::vector<std::string> findings = case_.findings;
    std::sort(findings.begin(), findings.end());
    EXPECT_EQ(finding_words(timeline), findings);
    if (!case_.frozen_differs) return;
    EXPECT_NE(decode_case(case_, build_timeline(case_, true), 4096), case_.want) << "a timeline frozen at its first version must fail here";
  }

 private:
  Case case_;
};

std::vector<std::string> case_paths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PTD_GOLDEN_DIR)) {
    if (entry.path().extension() == ".case") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace
}  // namespace ptd::golden

int main(int argc, char** argv) {
  using namespace ptd::golden;
  testing::InitGoogleTest(&argc, argv);
  const bool rewrite = argc > 1 && std::strcmp(argv[1], "--rewrite") == 0;
  for (const std::string& path : case_paths()) {
    Case test = load_case(path);
    if (rewrite) {
      rewrite_want(test, decode_case(test, build_timeline(test, false), 4096));
      continue;
    }
    const std::string name = test.name;
    testing::RegisterTest("Golden", name.c_str(), nullptr, path.c_str(), __FILE__, __LINE__,
                          [test]() -> testing::Test* { return new GoldenTest(test); });
  }
  return rewrite ? 0 : RUN_ALL_TESTS();
}
