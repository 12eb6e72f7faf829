// The ring between a program with libptd-announce and a listener.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "image/source/jitdump.h"
#include "tests/unit/announce/program.h"

namespace ptd::announce {
namespace {

bool equals(const std::vector<std::byte>& a, const std::vector<char>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

TEST_F(Ring, IdleProgramWritesNothing) {
  Program program([](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    const ptd_announcement what = load_of(0x1000, code_of(16, 1), "f", runtime);
    for (int i = 0; i < 1000; ++i) ptd_announce_code(&what);
    steps.wait();
  });
  const std::vector<RingPlace> places = find_rings(program.pid());
  ASSERT_EQ(places.size(), 1U);
  const auto ring = AnnounceRing::open(program.pid(), places[0]);
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  EXPECT_EQ((*ring)->given_out(), 0U);
  EXPECT_TRUE((*ring)->is_of(program.pid()));
  const auto second = AnnounceRing::open(program.pid(), places[0]);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::busy);
}

// In seccomp's strict mode, any other system call than exit ends the process.
TEST_F(Ring, IdleProgramMakesNoSystemCall) {
  const pid_t pid = fork();
  if (pid == 0) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    const auto code = code_of(16, 1);
    const ptd_announcement what = load_of(0x1000, code, "f", runtime);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) syscall(SYS_exit, 2);
    for (int i = 0; i < 1000; ++i) {
      ptd_announce_code(&what);
      ptd_announce_poll(runtime);
    }
    syscall(SYS_exit, 0);
  }
  int status = -1;
  (void)waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Ring, CodeLargerThanARecordComesInChunks) {
  Program program([](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
    const auto code = code_of(10000, 3);
    constexpr ptd_announce_line kLines[] = {{0, 10}, {17, 11}};
    ptd_announcement what = load_of(0x7000, code, "function", runtime);
    what.file = "source.c";
    what.lines = kLines;
    what.line_count = 2;
    ptd_announce_code(&what);
    what.kind = PTD_ANNOUNCE_UNLOAD;
    what.code = nullptr;
    ptd_announce_code(&what);
    steps.wait();
  });
  const AnnounceHistory history = heard_of(program);
  EXPECT_TRUE(history.attached);
  EXPECT_TRUE(history.gaps.empty());
  ASSERT_EQ(history.announcements.size(), 2U);
  const Announcement& load = history.announcements[0];
  EXPECT_EQ(load.kind, AnnounceKind::load);
  EXPECT_EQ(load.address, 0x7000U);
  EXPECT_EQ(load.name, "function");
  EXPECT_EQ(load.file, "source.c");
  EXPECT_TRUE(equals(load.code, code_of(10000, 3)));
  EXPECT_EQ(history.announcements[1].kind, AnnounceKind::unload);
  EXPECT_TRUE(heard.errors.empty());
}

void announce_all(void* code) {
  for (int i = 0; i < 5; ++i) {
    ptd_announcement what = load_of(0x100000 + 0x100 * static_cast<uint64_t>(i), *static_cast<std::vector<char>*>(code), "live", 1);
    what.flags = PTD_ANNOUNCE_RELISTED;
    ptd_announce_code(&what);
  }
}

// More records than the ring holds: no unread record is overwritten, dropped ones leave a gap, and a relist follows.
TEST_F(Ring, OverrunLosesWhatIsNewAndRelists) {
  Program program([](const Steps& steps) {
    auto code = code_of(3000, 1);
    const uint32_t runtime = ptd_announce_register("test", announce_all, &code);
    steps.wait();
    for (uint64_t i = 0; i < 5000; ++i) {
      const ptd_announcement what = load_of(0x1000 + i * 0x1000, code, "f", runtime);
      ptd_announce_code(&what);
    }
    steps.wait();
    const ptd_announcement what = load_of(0x900000000, code, "last", runtime);
    ptd_announce_code(&what);
    steps.wait();
  });
  listener.look({program.pid()});
  program.go();
  drain();
  program.go();
  drain();
  listener.stop();
  const AnnounceHistory history = heard.of(program.pid());
  ASSERT_EQ(history.gaps.size(), 1U);
  uint64_t loads = 0, relisted = 0;
  for (const Announcement& what : history.announcements) {
    loads += what.kind == AnnounceKind::load && !what.relisted ? 1 : 0;
    relisted += what.relisted ? 1 : 0;
    EXPECT_TRUE(what.kind != AnnounceKind::load || equals(what.code, code_of(3000, 1)));
  }
  EXPECT_GT(loads, 1000U);
  EXPECT_LT(loads, 5001U);
  EXPECT_EQ(loads + history.gaps[0].count, 5001U);  // a load of 3000 bytes is one record
  EXPECT_EQ(relisted, 10U);                         // when the reader came, and after the loss
  const auto last =
      std::find_if(history.announcements.begin(), history.announcements.end(), [](const auto& what) { return what.name == "last"; });
  ASSERT_NE(last, history.announcements.end());
  EXPECT_EQ(history.announcements.end() - last, 8);  // the list of all code, in its bracket, comes after it
}

// Without drain() between them, 5 announcements at an attach: relist of each run-time, once.
TEST_F(Ring, EachRuntimeIsAskedOnce) {
  static std::atomic<int> asked[3];
  Program program([](const Steps& steps) {
    uint32_t runtimes[3];
    for (int i = 0; i < 3; ++i)
      runtimes[i] = ptd_announce_register(
          "test", [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &asked[i]);
    steps.wait();
    for (int round = 0; round < 4; ++round) {
      for (const uint32_t runtime : runtimes) ptd_announce_poll(runtime);
    }
    for (const auto& count : asked) {
      if (count != 1) _exit(1);
    }
    ptd_announce_unregister(runtimes[1]);
    if (ptd_announce_register("again", nullptr, nullptr) != runtimes[1]) _exit(2);
  });
  listener.look({program.pid()});
  program.go();
  EXPECT_EQ(program.end(), 0);
  drain();
  listener.stop();
  const AnnounceHistory history = heard.of(program.pid());
  EXPECT_EQ(history.announcements.size(), 6U);  // a bracket each
}

TEST_F(Ring, ThreadsShareIt) {
  constexpr uint64_t kThreads = 100, kEach = 200;
  Program program([](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([t, runtime] {
        for (uint64_t i = 0; i < kEach; ++i) {
          const auto code = code_of(20 + (t + i) % 5000, static_cast<char>(t));
          const ptd_announcement what = load_of((t << 20) + 0x1000, code, "f", runtime);
          ptd_announce_code(&what);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  listener.look({program.pid()});
  std::thread ending([&] { program.go(); });
  std::atomic<bool> done = false;
  std::thread watch([&] {
    ending.join();
    done = true;
  });
  while (!done) drain();
  watch.join();
  (void)program.end();
  listener.look({});
  const AnnounceHistory history = heard.of(program.pid());
  uint64_t missing = 0;
  for (const AnnounceGap& gap : history.gaps) missing += gap.count;
  uint64_t whole = 0;
  for (const Announcement& what : history.announcements) {
    const auto t = what.address >> 20;
    ++whole;
    EXPECT_TRUE(equals(what.code, code_of(what.size_bytes, static_cast<char>(t))));
  }
  EXPECT_TRUE(heard.errors.empty());
  EXPECT_LE(whole, kThreads * kEach);
  EXPECT_TRUE(missing != 0 || whole == kThreads * kEach) << whole;
}

// A forked child makes its own ring, also if its parent announces; both go on.
TEST_F(Ring, ForkedChildAnnouncesForItself) {
  Program program([](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    const auto code = code_of(16, 1);
    const ptd_announcement first = load_of(0x1000, code, "parent", runtime), second = load_of(0x2000, code, "child", runtime);
    steps.wait();
    ptd_announce_code(&first);
    const pid_t child = fork();
    if (child == 0) {
      ptd_announce_code(&second);
      steps.wait();
      ptd_announce_code(&second);
      _exit(find_rings(getpid()).size() == 1 ? 0 : 1);
    }
    int status = 1;
    (void)waitpid(child, &status, 0);
    ptd_announce_code(&first);
    _exit(status);
  });
  listener.look({program.pid()});
  program.go();  // the child waits
  const int32_t child = program.pid() + 1;
  std::vector<int32_t> pids{program.pid()};
  for (int32_t pid = child; pid < child + 200; ++pid) {
    if (!find_rings(pid).empty()) pids.push_back(pid);
  }
  listener.look(pids);
  drain();
  program.go();
  EXPECT_EQ(program.end(), 0);
  listener.look({});
  EXPECT_EQ(listener.rings(), 2U);
  const AnnounceHistory parent = heard.of(program.pid());
  ASSERT_EQ(parent.announcements.size(), 2U);
  EXPECT_EQ(parent.announcements[1].name, "parent");
  EXPECT_TRUE(parent.gaps.empty());
  ASSERT_EQ(heard.pids.size(), 2U);
  for (const auto& [instance, pid] : heard.pids) {
    if (pid == program.pid()) continue;
    const AnnounceHistory own = heard.joiners[instance].finish();
    ASSERT_EQ(own.announcements.size(), 2U);
    EXPECT_EQ(own.announcements[0].name, "child");
    EXPECT_TRUE(own.gaps.empty());
  }
}

// A listener of the child only: the parent's ring is shared until the child's next announcement.
TEST_F(Ring, ListenerOfAForkedChildOnly) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  Program program([&](const Steps& steps) {
    auto code = code_of(3000, 1);
    const uint32_t runtime = ptd_announce_register("test", announce_all, &code);
    const pid_t child = fork();
    if (child != 0) {
      (void)!write(ready[1], &child, sizeof child);
      pause();
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 3; ++i) {
      steps.wait();
      ptd_announce_poll(runtime);
    }
  });
  pid_t child = 0;
  ASSERT_EQ(read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  listener.look({child});
  EXPECT_EQ(listener.rings(), 0U);
  program.go();  // makes a ring
  listener.look({child});
  EXPECT_EQ(listener.rings(), 1U);
  program.go();  // tells its code
  drain();
  const AnnounceHistory history = heard.of(child);
  ASSERT_EQ(history.announcements.size(), 7U);
  EXPECT_TRUE(history.announcements[1].relisted);
  EXPECT_TRUE(history.gaps.empty());
}

TEST_F(Ring, NothingIsLeftAfterExec) {
  Program program([](const Steps& steps) {
    (void)ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
    execlp("sleep", "sleep", "100", nullptr);
  });
  EXPECT_EQ(find_rings(program.pid()).size(), 1U);
  listener.look({program.pid()});
  program.go();
  for (int i = 0; i < 1000 && !find_rings(program.pid()).empty(); ++i) usleep(5000);
  EXPECT_TRUE(find_rings(program.pid()).empty());
}

volatile sig_atomic_t g_signals = 0;
std::vector<char> g_code;

// A handler interrupts announcements at any place.
TEST_F(Ring, SignalHandlersAnnounce) {
  Program program([](const Steps& steps) {
    g_code = code_of(100, 5);
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
    struct sigaction action {};
    action.sa_handler = [](int) {
      ptd_announcement what = load_of(0x5000, g_code, "handler", 1);
      what.flags = PTD_ANNOUNCE_NO_RELIST;
      ptd_announce_code(&what);
      g_signals = g_signals + 1;
    };
    (void)sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 50}, {0, 50}};
    (void)setitimer(ITIMER_REAL, &often, nullptr);
    const auto code = code_of(4000, 9);
    for (int i = 0; i < 200 || (g_signals < 50 && i < 10'000'000); ++i) {
      const ptd_announcement what = load_of(0x9000, code, "main", runtime);
      if (i < 300) ptd_announce_code(&what);
    }
    const itimerval never{};
    (void)setitimer(ITIMER_REAL, &never, nullptr);
    steps.wait();
  });
  const AnnounceHistory history = heard_of(program);
  uint64_t from_handler = 0;
  for (const Announcement& what : history.announcements) {
    if (what.name == "handler") ++from_handler;
    EXPECT_TRUE(equals(what.code, what.name == "handler" ? code_of(100, 5) : code_of(4000, 9)));
  }
  EXPECT_GE(from_handler, 50U);
  EXPECT_TRUE(history.gaps.empty());
}

// What a killed program announced completely is read; nothing waits for what it began.
TEST_F(Ring, KilledProgram) {
  Program program([](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
    const auto code = code_of(3000, 1);
    const ptd_announcement what = load_of(0x1000, code, "f", runtime);
    for (int i = 0; i < 10; ++i) ptd_announce_code(&what);
    (void)kill(getpid(), SIGKILL);
  });
  listener.look({program.pid()});
  program.go();
  (void)program.end();
  listener.look({});
  const AnnounceHistory history = heard.of(program.pid());
  EXPECT_EQ(history.announcements.size(), 10U);
  EXPECT_TRUE(history.gaps.empty());
}

// A program may close descriptors that it did not open, and reuse their numbers: its files stay as they are.
TEST_F(Ring, ClosedDescriptors) {
  const std::string path = testing::TempDir() + "announce_closed." + std::to_string(getpid());
  Program program([&](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
    (void)ptd_announce_jitdump(testing::TempDir().c_str());
    for (int fd = 30; fd > 2; --fd) (void)close(fd);
    const int own = open(path.c_str(), O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 8; ++i) (void)dup(own);
    const auto code = code_of(64, 1);
    const ptd_announcement what = load_of(0x1000, code, "f", runtime);
    ptd_announce_code(&what);
    const pid_t child = fork();
    if (child == 0) {
      ptd_announce_code(&what);
      _exit(fcntl(own, F_GETFD) < 0 ? 1 : 0);
    }
    int status = 1;
    (void)waitpid(child, &status, 0);
    struct stat info {};
    _exit(fstat(own, &info) == 0 && info.st_size == 0 ? status : 1);
  });
  listener.look({program.pid()});
  program.go();
  EXPECT_EQ(program.end(), 0);
  (void)unlink(path.c_str());
}

TEST_F(Ring, Jitdump) {
  const std::string folder = testing::TempDir();
  Program program([&](const Steps& steps) {
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    if (ptd_announce_jitdump(folder.c_str()) != 0) _exit(1);
    const auto code = code_of(64, 1);
    ptd_announcement what = load_of(0x1000, code, "first", runtime);
    ptd_announce_code(&what);
    what.address = 0x2000;
    what.name = "second";
    ptd_announce_code(&what);
    steps.wait();
  });
  const std::string path = folder + "/jit-" + std::to_string(program.pid()) + ".dump";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> names;
  uint64_t last = 0;
  const auto result = read_jitdump(std::as_bytes(std::span(text)), [&](const JitCode& code) {
    names.push_back(code.name);
    EXPECT_TRUE(equals({code.code.begin(), code.code.end()}, code_of(64, 1)));
    EXPECT_GE(code.time, last);
    last = code.time;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->damage.empty());
  EXPECT_EQ(result->header.pid, static_cast<uint32_t>(program.pid()));
  EXPECT_EQ(names, (std::vector<std::string>{"first", "second"}));
  std::ifstream maps("/proc/" + std::to_string(program.pid()) + "/maps");
  const std::string mapped{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_NE(mapped.find("r-xp 00000000"), std::string::npos);
  EXPECT_NE(mapped.find("jit-" + std::to_string(program.pid()) + ".dump"), std::string::npos);
  (void)unlink(path.c_str());
}

// A program that a recorder started sends its ring, and a reader has it also when the program has ended. So does a forked child.
TEST_F(Ring, OfferedThroughTheSocket) {
  auto socket = AnnounceSocket::create();
  ASSERT_TRUE(socket.ok());
  Program program([&](const Steps&) {
    const std::string variable = (*socket)->variable();
    (void)setenv("PTD_ANNOUNCE", variable.c_str() + variable.find('=') + 1, 1);
    const uint32_t runtime = ptd_announce_register("test", nullptr, nullptr);
    const auto code = code_of(5000, 1);
    const ptd_announcement what = load_of(0x1000, code, "short", runtime);
    ptd_announce_code(&what);
    if (fork() == 0) ptd_announce_code(&what);
    (void)waitpid(-1, nullptr, 0);
  });
  EXPECT_EQ(program.end(), 0);
  uint64_t offers = 0;
  (*socket)->take([&](AnnounceSocket::Offer offer) {
    ++offers;
    listener.take(std::move(offer));
  });
  listener.look({});
  EXPECT_EQ(offers, 2U);
  const AnnounceHistory history = heard.of(program.pid());
  ASSERT_EQ(history.announcements.size(), 1U);
  EXPECT_EQ(history.announcements[0].name, "short");
  EXPECT_TRUE(history.gaps.empty());
  EXPECT_EQ(heard.joiners.size(), 2U);
}

// What is sent to the socket is not trusted: files that are no rings are refused, and closed.
TEST_F(Ring, OtherFilesThroughTheSocket) {
  const Fd plain(memfd_create("ptd-announce", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(plain.get(), 1 << 20), 0);
  Fd sealed(memfd_create("ptd-announce", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sealed.get(), 1 << 20), 0);
  ptd_announce_header header{};
  std::memcpy(header.magic, PTD_ANNOUNCE_MAGIC, sizeof header.magic);
  header.version = 9;
  ASSERT_EQ(pwrite(sealed.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  const auto refused = [&](const Fd& file, uint32_t uid) { return AnnounceRing::adopt(getpid(), uid, Fd(dup(file.get()))).error(); };
  EXPECT_EQ(refused(plain, getuid()).code, ErrorCode::untrusted_file);
  EXPECT_EQ(refused(sealed, getuid()).code, ErrorCode::untrusted_file);
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(refused(sealed, getuid() + 1).code, ErrorCode::untrusted_file);
  EXPECT_EQ(refused(sealed, getuid()).code, ErrorCode::bad_version);
  EXPECT_NE(refused(sealed, getuid()).message.find("version 9"), std::string::npos);
  header.version = PTD_ANNOUNCE_VERSION;
  header.ring_offset = 4096;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{12345}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{1} << 20}) {
    header.ring_bytes = bytes;
    ASSERT_EQ(pwrite(sealed.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
    EXPECT_EQ(refused(sealed, getuid()).code, ErrorCode::bad_header) << bytes;
  }
  EXPECT_EQ(refused(Fd(open("/dev/null", O_RDWR | O_CLOEXEC)), getuid()).code, ErrorCode::untrusted_file);
}

// A process may send a descriptor that it cannot open itself (O_PATH): opening a device can have effects, so nothing but a memfd is opened.
TEST_F(Ring, OfferedFilesAreNotOpened) {
  const std::string path = testing::TempDir() + "announce_offered." + std::to_string(getpid());
  ASSERT_TRUE(Fd(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)).ok());
  const Fd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.get(), path.c_str(), IN_OPEN), 0);
  const auto refused = AnnounceRing::adopt(getpid(), getuid(), Fd(open(path.c_str(), O_PATH | O_CLOEXEC)));
  EXPECT_EQ(refused.error().code, ErrorCode::untrusted_file);
  std::array<char, 4096> events{};
  EXPECT_LT(read(watch.get(), events.data(), events.size()), 0) << "the file was opened";
  (void)unlink(path.c_str());
}

// The kernel delays the open of a file with a lease for 45 seconds, unless the opener does not wait.
TEST_F(Ring, ALeaseDelaysNobody) {
  const Fd file(memfd_create("ptd-announce", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const auto before = signal(SIGIO, SIG_IGN);
  const Fd holder(open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(fcntl(holder.get(), F_SETLEASE, F_WRLCK), 0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(AnnounceRing::adopt(getpid(), getuid(), Fd(dup(file.get()))).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  (void)signal(SIGIO, before);
}

// A mapping whose name is that of a ring, of a file of another file system, is none.
TEST_F(Ring, AFileThatIsNamedLikeARing) {
  const std::string folder = testing::TempDir() + "announce_named." + std::to_string(getpid()),
                    path = folder + "/memfd:ptd-announce (deleted)";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const Fd file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  void* const mapping = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  EXPECT_TRUE(find_rings(getpid()).empty());
  (void)munmap(mapping, 4096);
  (void)unlink(path.c_str());
  (void)rmdir(folder.c_str());
}

// Neither the ring of a process nor the recorder's socket can be opened by another user, so he cannot place code there.
TEST_F(Ring, AnotherUserReachesNothing) {
  constexpr uid_t kNobody = 65534;
  if (getuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const auto socket = AnnounceSocket::create();
  ASSERT_TRUE(socket.ok());
  Program program([](const Steps& steps) {
    (void)ptd_announce_register("test", nullptr, nullptr);
    steps.wait();
  });
  const std::vector<RingPlace> places = find_rings(program.pid());
  ASSERT_EQ(places.size(), 1U);
  // Returns how many of the ways to the ring and to the socket are open to this process.
  const auto reached = [&]() -> int {
    int count = AnnounceRing::open(program.pid(), places[0]).ok() ? 1 : 0;
    for (int number = 3; number < 64; ++number) {
      struct stat info {};
      const Fd file(::open(("/proc/" + std::to_string(program.pid()) + "/fd/" + std::to_string(number)).c_str(), O_RDWR | O_CLOEXEC));
      if (file.ok() && fstat(file.get(), &info) == 0 && info.st_ino == places[0].inode) ++count;
    }
    const std::string variable = (*socket)->variable();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    variable.copy(address.sun_path, sizeof address.sun_path - 1, variable.find("socket=") + 7);
    const Fd end(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (sendto(end.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 1) ++count;
    return count;
  };
  const auto reached_as = [&](uid_t user) {
    const pid_t child = fork();
    if (child == 0) _exit(setgid(user) == 0 && setuid(user) == 0 ? reached() : 99);
    int status = -1;
    (void)waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(reached_as(0), 3);  // the ring, its descriptor, the socket
  EXPECT_EQ(reached_as(kNobody), 0);
}

// The variable's ring starts with the program: a reader that comes later loses nothing.
TEST_F(Ring, FromTheStart) {
  Program program([](const Steps& steps) {
    (void)setenv("PTD_ANNOUNCE", "ring", 1);
    const uint32_t runtime = ptd_announce_register("test", announce_all, nullptr);
    const auto code = code_of(64, 1);
    const ptd_announcement what = load_of(0x1000, code, "early", runtime);
    ptd_announce_code(&what);
    steps.wait();
  });
  listener.look({program.pid()});
  drain();
  const AnnounceHistory history = heard.of(program.pid());
  ASSERT_EQ(history.announcements.size(), 1U);
  EXPECT_EQ(history.announcements[0].name, "early");
  EXPECT_TRUE(history.gaps.empty());
}

}  // namespace
}  // namespace ptd::announce
