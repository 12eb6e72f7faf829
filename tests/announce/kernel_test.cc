// libptd-announce and user_events, with the kernel's side replaced: registration, records, relist, fork.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "announce/ptd_announce.h"
#include "perfio/announce/announcement.h"

namespace {

// [uapi/linux/user_events.h] struct user_reg, packed.
struct Registration {
  uint32_t size = 0;
  uint8_t bit = 0, bytes = 0;
  uint16_t flags = 0;
  uint64_t address = 0;
  std::string text;
};
constexpr uint32_t kWriteIndex = 5;
constexpr unsigned long kRegister = 0xc0082a00;    // DIAG_IOCSREG: _IOWR('*', 0, struct user_reg*)
constexpr unsigned long kUnregister = 0x40082a02;  // DIAG_IOCSUNREG: _IOW('*', 2, struct user_unreg*)
constexpr uint16_t kMultiFormat = 2;               // USER_EVENT_REG_MULTI_FORMAT
constexpr uint32_t kBit = 1U << 31;

std::vector<Registration> g_registrations;
std::vector<std::vector<std::byte>> g_written;
bool g_name_taken = false, g_listens = false;
std::set<uint64_t> g_words;  // that are registered; fork() copies them [kernel/trace/trace_events_user.c, user_event_mm_dup()]

}  // namespace

extern "C" {
int ptd_announce_test_open(const char* path, int flags) {
  if (std::string(path) != "/sys/kernel/tracing/user_events_data" || (flags & O_CLOEXEC) == 0) return -1;
  return open("/dev/null", flags);
}
int ptd_announce_test_ioctl(int, unsigned long request, void* argument) {
  auto* raw = static_cast<char*>(argument);
  if (request == kUnregister) {  // [uapi/linux/user_events.h] struct user_unreg, packed
    uint64_t address = 0;
    std::memcpy(&address, raw + 8, sizeof address);
    if (raw[0] != 16 || raw[4] != 31 || g_words.erase(address) == 0) return errno = ENOENT, -1;
    *reinterpret_cast<uint32_t*>(address) &= ~kBit;
    return 0;
  }
  if (request != kRegister) return errno = ENOTTY, -1;
  Registration registration;
  std::memcpy(&registration.size, raw, 4);
  registration.bit = static_cast<uint8_t>(raw[4]);
  registration.bytes = static_cast<uint8_t>(raw[5]);
  std::memcpy(&registration.flags, raw + 6, 2);
  std::memcpy(&registration.address, raw + 8, 8);
  uint64_t text = 0;
  std::memcpy(&text, raw + 16, 8);
  registration.text = reinterpret_cast<const char*>(text);
  if (g_words.contains(registration.address)) return errno = EADDRINUSE, -1;
  g_registrations.push_back(registration);
  if (g_name_taken && (registration.flags & kMultiFormat) == 0) return errno = EADDRINUSE, -1;
  g_words.insert(registration.address);
  if (g_listens) *reinterpret_cast<uint32_t*>(registration.address) |= kBit;
  std::memcpy(raw + 24, &kWriteIndex, 4);
  return 0;
}
ssize_t ptd_announce_test_writev(int, const iovec* parts, int count) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
    bytes.insert(bytes.end(), from, from + parts[i].iov_len);
  }
  g_written.push_back(bytes);
  return static_cast<ssize_t>(bytes.size());
}
}

namespace {

int g_relisted = 0;

ptd_announcement load_of(const std::vector<char>& code, uint32_t runtime) {
  ptd_announcement what{};
  what.runtime = runtime;
  what.kind = PTD_ANNOUNCE_LOAD;
  what.phase = PTD_ANNOUNCE_END;
  what.address = 0x1000;
  what.size = code.size();
  what.code = code.data();
  what.name = "f";
  return what;
}

void set_bit(bool on) {
  g_listens = on;
  uint32_t& word = ptd_announce_page.header.word;
  word = on ? word | kBit : word & ~kBit;
}

// One process goes through all of it: the library is registered once.
TEST(UserEvents, RegistrationRecordsAndFork) {
  g_name_taken = true;
  const uint32_t runtime = ptd_announce_register(
      "test", [](void*) { ++g_relisted; }, nullptr);
  ASSERT_EQ(g_registrations.size(), 2U);
  const Registration& first = g_registrations[0];
  EXPECT_EQ(first.size, 28U);
  EXPECT_EQ(first.bit, 31);
  EXPECT_EQ(first.bytes, 4);
  EXPECT_EQ(first.flags, 0);
  EXPECT_EQ(first.address, reinterpret_cast<uint64_t>(&ptd_announce_page.header.word));
  EXPECT_EQ(g_registrations[1].flags, kMultiFormat);  // the name is somebody else's: a format of our own

  const std::vector<char> code(5000, 'x');
  const ptd_announcement what = load_of(code, runtime);
  ptd_announce_code(&what);
  EXPECT_TRUE(g_written.empty());
  set_bit(true);
  ptd_announce_code(&what);
  ptd_announce_code(&what);
  EXPECT_EQ(g_relisted, 1);
  ASSERT_EQ(g_written.size(), 6U);  // the bracket of the relist, and two chunks each
  ptd::AnnounceJoiner joiner;
  for (const auto& bytes : g_written) {
    uint32_t index = 0;
    std::memcpy(&index, bytes.data(), sizeof index);
    EXPECT_EQ(index, kWriteIndex);
    EXPECT_LT(bytes.size(), 3500U);  // a page of the kernel's buffers
    const auto record = ptd::parse_announce_record(ptd::Bytes(bytes).subspan(sizeof index));
    ASSERT_TRUE(record.ok()) << record.error().message;
    joiner.add(*record, ptd::TimeNs{record->mono_ns});
  }
  const ptd::AnnounceHistory history = joiner.finish();
  ASSERT_EQ(history.announcements.size(), 4U);
  // The bracket is between.
  for (const size_t code_at : {size_t{0}, size_t{3}}) EXPECT_EQ(history.announcements[code_at].code.size(), 5000U);
  EXPECT_TRUE(history.gaps.empty());
  set_bit(false);
  ptd_announce_code(&what);
  EXPECT_EQ(g_written.size(), 6U);
  set_bit(true);
  EXPECT_EQ(g_relisted, 1);
  ::usleep(120'000);  // the listener may have begun to record only now
  ptd_announce_poll(runtime);
  ptd_announce_poll(runtime);
  EXPECT_EQ(g_relisted, 2);
  static int other_relisted = 0;  // a run-time that registers after the listener came may have code already
  const uint32_t other = ptd_announce_register(
      "other", [](void*) { ++other_relisted; }, nullptr);
  ptd_announce_poll(other);
  ptd_announce_poll(other);
  EXPECT_EQ(other_relisted, 1);
  set_bit(false);
  ptd_announce_poll(runtime);  // not noticed: there is no listener
  set_bit(true);
  ptd_announce_code(&what);
  EXPECT_GE(g_relisted, 1);
  const pid_t child = fork();
  if (child == 0) {
    const size_t written = g_written.size();
    ptd_announce_code(&what);
    const bool registered = g_registrations.size() == 4 && g_written.size() > written;
    _exit(registered && ptd_announce_page.header.pid == static_cast<uint32_t>(getpid()) ? 0 : 1);
  }
  int status = 1;
  (void)waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ptd_announce_page.header.word & kBit, kBit);  // the child let go of its own word only
}

// The kernel lays fields out one after the other: that must be the record's layout.
TEST(UserEvents, TheDescriptionIsTheRecord) {
  (void)ptd_announce_register("test", nullptr, nullptr);
  ASSERT_FALSE(g_registrations.empty());
  const std::string text = g_registrations[0].text;
  EXPECT_LT(text.size(), 512U);  // MAX_EVENT_DESC
  ASSERT_EQ(text.substr(0, 9), "ptd_code ");
  const std::map<std::string, size_t> sizes{{"u8", 1}, {"u16", 2}, {"u32", 4}, {"u64", 8}, {"__rel_loc u8[]", 4}};
  const std::map<std::string, size_t> offsets{{"version", offsetof(ptd_announce_record, version)},
                                              {"kind", offsetof(ptd_announce_record, kind)},
                                              {"phase", offsetof(ptd_announce_record, phase)},
                                              {"flags", offsetof(ptd_announce_record, flags)},
                                              {"instance", offsetof(ptd_announce_record, instance)},
                                              {"seq", offsetof(ptd_announce_record, seq)},
                                              {"mono_ns", offsetof(ptd_announce_record, mono_ns)},
                                              {"ticks", offsetof(ptd_announce_record, ticks)},
                                              {"address", offsetof(ptd_announce_record, address)},
                                              {"old_address", offsetof(ptd_announce_record, old_address)},
                                              {"size", offsetof(ptd_announce_record, size)},
                                              {"name_bytes", offsetof(ptd_announce_record, name_bytes)},
                                              {"file_bytes", offsetof(ptd_announce_record, file_bytes)},
                                              {"line_bytes", offsetof(ptd_announce_record, line_bytes)},
                                              {"code_bytes", offsetof(ptd_announce_record, code_bytes)},
                                              {"chunk", offsetof(ptd_announce_record, chunk)},
                                              {"chunks", offsetof(ptd_announce_record, chunks)},
                                              {"pid", offsetof(ptd_announce_record, pid)},
                                              {"tid", offsetof(ptd_announce_record, tid)},
                                              {"runtime", offsetof(ptd_announce_record, runtime)},
                                              {"data", offsetof(ptd_announce_record, data_loc)}};
  std::istringstream fields(text.substr(9));
  size_t at = 0, count = 0;
  for (std::string field; std::getline(fields, field, ';'); ++count) {
    field.erase(0, field.find_first_not_of(' '));
    const size_t space = field.rfind(' ');
    const std::string name = field.substr(space + 1), type = field.substr(0, space);
    ASSERT_TRUE(sizes.contains(type)) << type;
    ASSERT_TRUE(offsets.contains(name)) << name;
    EXPECT_EQ(offsets.at(name), at) << name;
    at += sizes.at(type);
  }
  EXPECT_EQ(count, offsets.size());
  EXPECT_EQ(at, sizeof(ptd_announce_record));
}

}  // namespace
