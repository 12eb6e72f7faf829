// Rings of processes that ended in the middle of an announcement: what was complete is read, at bounded cost.
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/announce/program.h"

namespace ptd::announce {
namespace {

constexpr uint64_t kOffset = 4096;

// A ring as a process of this user may offer it, with one complete record at each position, and `filler` in what lies between them.
Fd ring_of(uint64_t ring_bytes, const std::vector<uint64_t>& positions, const std::string& filler = {}) {
  Fd file(memfd_create(PTD_ANNOUNCE_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(kOffset + ring_bytes)), 0);
  ptd_announce_header header{};
  std::memcpy(header.magic, PTD_ANNOUNCE_MAGIC, sizeof header.magic);
  header.version = PTD_ANNOUNCE_VERSION;
  header.header_bytes = sizeof header;
  header.word = PTD_ANNOUNCE_WORD_RING;
  header.flags = PTD_ANNOUNCE_HEADER_FROM_START;
  header.ring_offset = kOffset;
  header.ring_bytes = ring_bytes;
  EXPECT_EQ(pwrite(file.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  EXPECT_EQ(pwrite(file.get(), filler.data(), filler.size(), kOffset), static_cast<ssize_t>(filler.size()));
  for (const uint64_t position : positions) {
    const ptd_announce_slot slot{position | 1, 0, 0};
    EXPECT_EQ(pwrite(file.get(), &slot, sizeof slot, static_cast<off_t>(kOffset + position)), static_cast<ssize_t>(sizeof slot));
  }
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return file;
}

blkcnt_t blocks_of(const Fd& file) {
  struct stat info {};
  EXPECT_EQ(fstat(file.get(), &info), 0);
  return info.st_blocks;
}

// Searching a hole would allocate all of it.
TEST(LeftoverRing, HolesAreSkipped) {
  const Fd file = ring_of(256U << 20, {1U << 20, (1U << 20) + 16, 128U << 20, (256U << 20) - 16});
  auto ring = AnnounceRing::adopt(getpid(), getuid(), Fd(dup(file.get())));
  ASSERT_TRUE(ring.ok());
  const blkcnt_t before = blocks_of(file);
  uint64_t records = 0;
  const uint64_t searched = (*ring)->read_rest([&](Bytes) { ++records; });
  EXPECT_EQ(records, 4U);
  EXPECT_LE(searched, 3U * 4096);
  EXPECT_EQ(blocks_of(file), before);
}

// Each look searches a bounded number of bytes. The next one goes on, and the end names what was not searched.
TEST(LeftoverRing, ALookIsBounded) {
  constexpr uint64_t kRing = 1U << 16, kRings = 7;
  uint64_t records = 0;
  AnnounceListener listener([&](const Heard& heard) { records += heard.record.empty() ? 1 : 0; }, false, 2 * kRing);
  Program ended([](const Steps&) {});
  ASSERT_EQ(ended.end(), 0);
  for (uint64_t i = 0; i < kRings; ++i) listener.take({ended.pid(), getuid(), ring_of(kRing, {kRing / 2}, std::string(kRing, 'x'))});
  ASSERT_EQ(listener.listening(), kRings);
  for (const uint64_t want : {2U, 4U}) {
    listener.look({});
    EXPECT_EQ(records, want);
    EXPECT_EQ(listener.listening(), kRings - want);
    EXPECT_TRUE(listener.troubles().empty());
  }
  listener.stop();
  EXPECT_EQ(records, 4U);
  ASSERT_EQ(listener.troubles().size(), kRings - 4);
  EXPECT_NE(listener.troubles()[0].find("are not read to their end"), std::string::npos);
}

}  // namespace
}  // namespace ptd::announce
