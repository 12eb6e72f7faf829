// Debug information of a file that is truncated while it is read: libelf maps it, not MappedFile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "image/base/shrunk_files.h"
#include "image/symbols/source_lines.h"
#include "image/symbols/source_warnings.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

class ShrunkDebug : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers handle SIGBUS themselves";
#endif
    fs::copy_file("/proc/self/exe", path_);
  }
  void TearDown() override { fs::remove(path_); }
  const std::string path_ = testing::TempDir() + "shrunk-debug." + std::to_string(getpid());
  const std::shared_ptr<SourceWarnings> warnings_ = std::make_shared<SourceWarnings>();
};

TEST_F(ShrunkDebug, AProgramIsReported) {
  const uint64_t known = shrunk_file_count();
  const auto lines = SourceLines::open(path_, warnings_);
  if (!lines) GTEST_SKIP() << "this program has no debug information";
  fs::resize_file(path_, 4096);
  (void)lines->visit([](const SourceUnit&) { return true; });
  EXPECT_EQ(shrunk_files(known), std::vector{path_});
}

}  // namespace
}  // namespace ptd
