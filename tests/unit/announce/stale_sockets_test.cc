// AnnounceSocket removes what killed recorders left in the temporary folder, and nothing else.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "capture/announce/announce_socket.h"

namespace ptd::announce {
namespace {

namespace fs = std::filesystem;

class StaleSockets : public testing::Test {
 protected:
  StaleSockets() {
    std::string name = (fs::temp_directory_path() / "stale-XXXXXX").string();
    top_ = ::mkdtemp(name.data());
    const char* before = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): one thread
    if (before != nullptr) before_ = before;
    ::setenv("TMPDIR", top_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~StaleSockets() override {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    fs::remove_all(top_);
  }

  /// Makes a folder as a recorder does, with a socket that stays bound as long as the result.
  Fd make(const std::string& name) {
    const std::string folder = top_ + "/" + name;
    EXPECT_EQ(::mkdir(folder.c_str(), 0700), 0);
    Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder + "/socket";
    std::copy(path.begin(), path.end(), address.sun_path);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  /// Dates a folder back as if its recorder had been started an hour ago.
  void age(const std::string& name) {
    const timespec then{::time(nullptr) - 3600, 0};
    const timespec times[2] = {then, then};
    EXPECT_EQ(::utimensat(AT_FDCWD, (top_ + "/" + name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
  [[nodiscard]] bool there(const std::string& name) const { return fs::exists(fs::symlink_status(top_ + "/" + name)); }
  std::string top_, before_;
};

TEST_F(StaleSockets, OfADeadRecorderAreRemoved) {
  make("ptdecode-announce-aaaaaa") = Fd();
  age("ptdecode-announce-aaaaaa");
  fs::create_directory(top_ + "/ptdecode-announce-bbbbbb");  // killed before it made the socket
  fs::permissions(top_ + "/ptdecode-announce-bbbbbb", fs::perms::owner_all);
  age("ptdecode-announce-bbbbbb");
  const auto socket = AnnounceSocket::create();
  ASSERT_TRUE(socket.ok());
  EXPECT_FALSE(there("ptdecode-announce-aaaaaa"));
  EXPECT_FALSE(there("ptdecode-announce-bbbbbb"));
}

TEST_F(StaleSockets, OfALiveRecorderStay) {
  const Fd live = make("ptdecode-announce-aaaaaa");
  age("ptdecode-announce-aaaaaa");
  make("ptdecode-announce-bbbbbb") = Fd();  // young: perhaps one whose socket is not bound yet
  const auto first = AnnounceSocket::create(), second = AnnounceSocket::create();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(there("ptdecode-announce-aaaaaa/socket"));
  EXPECT_TRUE(there("ptdecode-announce-bbbbbb/socket"));
  EXPECT_TRUE(fs::exists((*first)->variable().substr((*first)->variable().find("socket=") + 7)));
}

TEST_F(StaleSockets, LinksAndForeignContentStay) {
  // A link that leads to a folder with a dead socket; a link in place of the socket; a file beside it; another name; another mode.
  make("elsewhere") = Fd();
  age("elsewhere");
  fs::create_directory_symlink(top_ + "/elsewhere", top_ + "/ptdecode-announce-aaaaaa");
  age("ptdecode-announce-aaaaaa");
  for (const char* name : {"ptdecode-announce-bbbbbb", "ptdecode-announce-cccccc"}) {
    fs::create_directory(top_ + "/" + name);
    fs::permissions(top_ + "/" + name, fs::perms::owner_all);
  }
  fs::create_symlink(top_ + "/elsewhere/socket", top_ + "/ptdecode-announce-bbbbbb/socket");
  std::ofstream(top_ + "/ptdecode-announce-cccccc/letter") << "precious";
  make("ptdecode-announce-dddddd") = Fd();
  fs::permissions(top_ + "/ptdecode-announce-dddddd", fs::perms::all);
  for (const char last : {'b', 'c', 'd'}) age("ptdecode-announce-" + std::string(6, last));
  ASSERT_TRUE(AnnounceSocket::create().ok());
  EXPECT_TRUE(there("elsewhere/socket"));
  EXPECT_TRUE(there("ptdecode-announce-aaaaaa"));
  EXPECT_TRUE(there("ptdecode-announce-bbbbbb/socket"));
  EXPECT_TRUE(there("ptdecode-announce-cccccc/letter"));
  EXPECT_TRUE(there("ptdecode-announce-dddddd/socket"));
}

TEST_F(StaleSockets, OfAnotherUserStay) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  make("ptdecode-announce-aaaaaa") = Fd();
  ASSERT_EQ(::chown((top_ + "/ptdecode-announce-aaaaaa").c_str(), 65534, 65534), 0);
  age("ptdecode-announce-aaaaaa");
  ASSERT_TRUE(AnnounceSocket::create().ok());
  EXPECT_TRUE(there("ptdecode-announce-aaaaaa/socket"));
}

}  // namespace
}  // namespace ptd::announce
