// How a listener notices that a process is gone.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/unit/announce/program.h"

namespace ptd::announce {
namespace {

// The descriptor of the process's own ring.
int open_own_ring() {
  const std::vector<RingPlace> rings = find_rings(getpid());
  for (int fd = 3; fd < 1024 && rings.size() == 1; ++fd) {
    struct stat info {};
    if (fstat(fd, &info) == 0 && info.st_ino == rings[0].inode && info.st_dev == rings[0].device) return fd;
  }
  return -1;
}

// A look that does not find the mapping, as on a busy system, loses nothing.
TEST_F(Ring, MissedByALook) {
  Program program([](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    const auto code = code_of(16, 1);
    const ptd_announcement first = load_of(0x1000, code, "first", runtime), second = load_of(0x2000, code, "second", runtime);
    steps.wait();
    ptd_announce_code(&first);
    void* const page = &ptd_announce_page;
    const int fd = open_own_ring();
    if (mmap(page, PTD_ANNOUNCE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page || fd < 0)
      _exit(1);
    steps.wait();
    if (mmap(page, PTD_ANNOUNCE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != page) _exit(1);
    ptd_announce_code(&second);
    steps.wait();
  });
  listener.look({program.pid()});
  drain();
  program.go();
  EXPECT_TRUE(find_rings(program.pid()).empty());
  listener.look({program.pid()});
  drain();
  program.go();
  listener.look({program.pid()});
  drain();
  EXPECT_EQ(listener.rings(), 1U);
  const AnnounceHistory history = heard.of(program.pid());
  std::vector<std::string> names;
  for (const Announcement& what : history.announcements) {
    if (what.kind == AnnounceKind::load) names.push_back(what.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"first", "second"}));
  EXPECT_TRUE(history.gaps.empty());
}

const auto announce_one = [](const Steps& steps) {
  const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
  const auto code = code_of(16, 1);
  const ptd_announcement what = load_of(0x1000, code, "f", runtime);
  steps.wait();
  ptd_announce_code(&what);
  steps.wait();
};

// Another reader has the ring, up to the end or for a moment.
TEST_F(Ring, ReadByAnother) {
  Program program(announce_one);
  const auto other = AnnounceRing::open(program.pid(), find_rings(program.pid()).at(0));
  ASSERT_TRUE(other.ok());
  for (int i = 0; i < 3; ++i) listener.look({program.pid()});
  EXPECT_EQ(listener.listening(), 0U);
  listener.stop();
  ASSERT_EQ(listener.troubles().size(), 1U);
  EXPECT_NE(listener.troubles()[0].find("are read by another recorder"), std::string::npos);
  const AnnounceHistory history = heard.of(program.pid());
  ASSERT_EQ(history.gaps.size(), 1U);
  EXPECT_EQ(history.gaps[0].time, Interval{});
}

TEST_F(Ring, ReadByAnotherAtFirst) {
  Program program(announce_one);
  auto other = AnnounceRing::open(program.pid(), find_rings(program.pid()).at(0));
  ASSERT_TRUE(other.ok());
  listener.look({program.pid()});
  EXPECT_EQ(listener.listening(), 0U);
  other->reset();
  const AnnounceHistory history = heard_of(program);
  EXPECT_EQ(history.announcements.size(), 1U);
  EXPECT_TRUE(history.gaps.empty());
  EXPECT_TRUE(listener.troubles().empty());
}

// The thread that began the process has ended, others go on.
TEST_F(Ring, FirstThreadEnds) {
  Program program([](const Steps& steps) {
    (void)ptd_announce_register("test", nullptr, nullptr);
    static const Steps* in_step = nullptr;
    in_step = &steps;
    std::thread([] {
      for (std::string text; text.find(") Z ") == std::string::npos; usleep(1000)) {
        std::ifstream file("/proc/self/stat");
        std::getline(file, text);
      }
      const auto code = code_of(16, 1);
      const ptd_announcement what = load_of(0x1000, code, "other", 0);
      in_step->wait();
      ptd_announce_code(&what);
      in_step->wait();
    }).detach();
    (void)syscall(SYS_exit, 0);  // of this thread only
  });
  listener.look({program.pid()});
  EXPECT_EQ(listener.listening(), 1U);
  program.go();
  listener.look({program.pid()});
  drain();
  EXPECT_EQ(listener.listening(), 1U);
  EXPECT_EQ(heard.of(program.pid()).announcements.size(), 1U);
}

// A process may end while its files in /proc are read.
TEST(HasEnded, ProcessThatEndsMeanwhile) {
  EXPECT_FALSE(has_ended(getpid()));
  for (int i = 0; i < 300; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    std::thread reaper([child] { (void)waitpid(child, nullptr, 0); });
    while (!has_ended(child)) {
    }
    reaper.join();
    EXPECT_TRUE(has_ended(child));
  }
}

}  // namespace
}  // namespace ptd::announce
