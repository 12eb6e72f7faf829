// Files named by untrusted input: which are opened, and which are not.
#include "image/base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ptd {
namespace {

namespace fs = std::filesystem;

class RegularFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ptd_regular_XXXXXX").string();
    top_ = fs::canonical(::mkdtemp(name.data()));
    fs::create_directories(folder() / "sub");
    std::ofstream(folder() / "own") << "own";
    std::ofstream(folder() / "sub" / "deep") << "own";
    std::ofstream(top_ / "secret") << "secret";
    std::ofstream(top_ / "folder2") << "secret";  // its name begins like the folder's
  }
  void TearDown() override { fs::remove_all(top_); }
  [[nodiscard]] fs::path folder() const { return top_ / "folder"; }
  static std::string text_of(const RegularFile& file) {
    std::array<char, 16> text{};
    const ssize_t got = file.fd.ok() ? ::read(file.fd.get(), text.data(), text.size()) : 0;
    return {text.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
  }
  fs::path top_;
};

TEST_F(RegularFileTest, BeneathAFolder) {
  fs::create_symlink("sub/deep", folder() / "inner");
  fs::create_symlink("../own", folder() / "sub" / "up_and_in");
  fs::create_symlink("../secret", folder() / "link");
  fs::create_symlink(top_ / "secret", folder() / "absolute");
  fs::create_symlink("..", folder() / "parent");
  fs::create_symlink("/proc/self/fd/0", folder() / "magic");
  fs::create_symlink("loop", folder() / "loop");
  for (const std::string& name : {std::string("own"), std::string("./own"), std::string("sub/../own"), std::string("sub/deep"),
                                  std::string("inner"), std::string("sub/up_and_in"), (folder() / "own").string()}) {
    EXPECT_EQ(text_of(open_beneath(folder(), name)), "own") << name;
    EXPECT_EQ(text_of(open_beneath(folder().string() + "/", name)), "own") << name;
  }
  for (const std::string& name :
       {std::string("../secret"), std::string("sub/../../secret"), std::string("link"), std::string("absolute"),
        std::string("parent/secret"), std::string("magic"), std::string("loop"), std::string("/dev/zero"), (top_ / "secret").string(),
        (top_ / "folder2").string(), (folder() / ".." / "secret").string(), std::string("../absent"), std::string("../folder/own")}) {
    const RegularFile file = open_beneath(folder(), name);
    EXPECT_TRUE(!file.fd.ok() && file.outside) << name;
    EXPECT_EQ(file.why(), kOutsideReason) << name;
  }
  EXPECT_EQ(open_beneath(folder(), "absent").error, ENOENT);
  EXPECT_EQ(open_beneath(folder(), "sub").error, EISDIR);
  EXPECT_FALSE(open_beneath(folder(), "absent").outside);
}

TEST_F(RegularFileTest, AFolderThatIsReachedByALink) {
  fs::create_symlink("folder", top_ / "other");
  EXPECT_EQ(text_of(open_beneath(top_ / "other", (folder() / "own").string())), "own");
  EXPECT_EQ(text_of(open_beneath(top_ / "other", (top_ / "other" / "own").string())), "own");
}

// A FIFO without a writer would block, and a device's open() may have effects: neither is opened.
TEST_F(RegularFileTest, NothingButRegularFiles) {
  ASSERT_EQ(::mkfifo((folder() / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {(folder() / "fifo").string(), std::string("/dev/zero"), folder().string()}) {
    const int want = path == folder().string() ? EISDIR : EINVAL;
    EXPECT_EQ(open_regular(path).error, want) << path;
    EXPECT_EQ(open_recorded(path).error, want) << path;
  }
  EXPECT_EQ(open_beneath(folder(), "fifo").why(), "not a regular file");
  EXPECT_EQ(text_of(open_regular((top_ / "secret").string())), "secret");
}

TEST_F(RegularFileTest, RecordedPathsFollowNoLinkOfProcfs) {
  const Fd open(::open((top_ / "secret").c_str(), O_RDONLY));
  const std::string magic = "/proc/self/fd/" + std::to_string(open.get());
  EXPECT_EQ(text_of(open_regular(magic)), "secret");
  EXPECT_FALSE(open_recorded(magic).fd.ok());
  fs::create_symlink("secret", top_ / "link");
  EXPECT_EQ(text_of(open_recorded((top_ / "link").string())), "secret");
}

}  // namespace
}  // namespace ptd
