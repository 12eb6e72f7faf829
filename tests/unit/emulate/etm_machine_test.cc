// The packets of a whole arm64 machine, byte by byte as [ETMv4] has them: a system call, its handler at EL1, the return to EL0.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "capture/emulate/etm/etm_stream.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kProgram = 0x1000, kVector = 0xffff000000001400;
constexpr uint32_t kSvc = 0xd4000001, kEret = 0xd69f03e0, kRet = 0xd65f03c0;

TruthBlock block_of(uint64_t ip, uint32_t word) {
  TruthBlock block{ip, {4}, std::vector<std::byte>(4)};
  std::memcpy(block.bytes.data(), &word, 4);
  return block;
}

std::vector<uint8_t> content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The packets at the start of a trace at 0x1000, at time 0x100, and those that follow.
std::vector<uint8_t> from_start(const std::vector<uint8_t>& rest) {
  std::vector<uint8_t> packets = {
      0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0x80,  // A-Sync
      0x01, 0x01, 0x00,                                                     // Trace Info
      0x02, 0x80, 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00,           // Timestamp 0x100, whole
      0x04,                                                                 // Trace On
      0x81, 0xb0, 7,    0,    0,    0,                                      // Context: EL0, id 7
      0x95, 0x80, 0x08,                                                     // address 0x1000
  };
  packets.insert(packets.end(), rest.begin(), rest.end());
  return packets;
}

TEST(EtmMachine, ASystemCallAndItsHandler) {
  const std::vector<TruthBlock> blocks = {block_of(kProgram, kSvc), block_of(kVector, kEret), block_of(kProgram + 4, kRet)};
  std::vector<std::byte> bytes;
  TruthLog log(bytes);
  const auto context = [&](uint64_t id, uint64_t level) { log.event(TruthEvent::context, id << 8 | level); };
  constexpr unsigned kCall = 2;
  log.psb(0, 0x100);
  context(7, 0);
  log.time(0x100);
  log.block(0);
  log.event(static_cast<TruthEvent>(static_cast<unsigned>(TruthEvent::exception) + kCall), kProgram + 4);
  context(7, 1);
  log.time(0x180);
  log.block(1);
  context(7, 0);
  log.time(0x200);
  log.block(2);
  log.end();
  std::string folder = (fs::temp_directory_path() / "ptd-etm-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const EtmFiles files{folder + "/packets", folder + "/truth"};
  const auto lookup = [&](uint64_t number) { return number < blocks.size() ? &blocks[number] : nullptr; };
  const Status status = encode_etm(bytes, lookup, 0, files, [](Bytes) {}, {true, 1U << 14});
  const std::vector<uint8_t> packets = content(files.packets);
  fs::remove_all(folder);
  ASSERT_TRUE(status.ok());
  const std::vector<uint8_t> expected = from_start({
      0x06, 0x05,                                // Exception: call; the preferred return address follows
      0x95, 0x01,                                // address 0x1004
      0x81, 0xb1, 7,    0, 0, 0,                 // Context: EL1
      0x9d, 0x00, 0x0a, 0, 0, 0, 0, 0xff, 0xff,  // address of the vector
      0x02, 0x80, 0x03,                          // Timestamp 0x180
      0xf7,                                      // Atom E: ERET
      0x81, 0xb0, 7,    0, 0, 0,                 // Context: EL0
      0x91,                                      // address: the last but one
      0x02, 0x80, 0x04,                          // Timestamp 0x200
  });
  EXPECT_EQ(packets, expected);
}

// The packets of a program's thread 7.
std::vector<uint8_t> packets_of(const std::vector<std::byte>& log, const std::vector<TruthBlock>& blocks,
                                const EtmMachineOptions& machine = {}) {
  std::string folder = (fs::temp_directory_path() / "ptd-etm-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  const EtmFiles files{folder + "/packets", folder + "/truth"};
  const auto lookup = [&](uint64_t number) { return number < blocks.size() ? &blocks[number] : nullptr; };
  EXPECT_TRUE(encode_etm(
                  log, lookup, 7, files, [](Bytes) {}, machine)
                  .ok());
  std::vector<uint8_t> packets = content(files.packets);
  fs::remove_all(folder);
  return packets;
}

// 13 branches that are not taken, one that is. `ete` and without it.
std::vector<uint8_t> packets_of_chain(bool ete) {
  constexpr uint32_t kCbz = 0xb4000040, kBranch = 0x14000040;  // to +8 and +0x100
  constexpr unsigned kChain = 13;
  TruthBlock chain{kProgram, std::vector<uint8_t>(kChain + 1, 4), std::vector<std::byte>((kChain + 1) * size_t{4})};
  for (unsigned i = 0; i < kChain; ++i) std::memcpy(chain.bytes.data() + i * size_t{4}, &kCbz, 4);
  std::memcpy(chain.bytes.data() + kChain * size_t{4}, &kBranch, 4);
  const std::vector<TruthBlock> blocks = {chain, block_of(kProgram + kChain * 4 + 0x100, kRet)};
  std::vector<std::byte> bytes;
  TruthLog log(bytes);
  log.psb(0, 0x100);
  log.block(0);
  log.block(1);
  log.end();
  std::vector<uint8_t> packets = packets_of(bytes, blocks, {.ete = ete});
  constexpr size_t kSyncBytes = 12 + 3 + 10 + 1 + 6 + 3;  // A-Sync, Trace Info, Timestamp, Trace On, Context, address
  EXPECT_GE(packets.size(), kSyncBytes);
  packets.erase(packets.begin(), packets.begin() + static_cast<std::ptrdiff_t>(std::min(kSyncBytes, packets.size())));
  return packets;
}

TEST(EtmMachine, EteHasASourceAddressForALongChainOfBranches) {
  EXPECT_EQ(packets_of_chain(false), (std::vector<uint8_t>{0xd5, 0xd5, 0xf8, 0xf7}));  // Atoms NNNNN NNNNN NNN E
  // Source Address 0x1034, the last two bytes of it that differ.
  EXPECT_EQ(packets_of_chain(true), (std::vector<uint8_t>{0xb4, 0x0d}));
}

// The first packets after a loss have the time of the code after it, not that of the last synchronisation before.
TEST(EtmMachine, TimeDoesNotGoBackAfterALoss) {
  constexpr uint32_t kBranch = 0x14000040;  // to +0x100
  const std::vector<TruthBlock> blocks = {block_of(kProgram, kBranch), block_of(kProgram + 0x100, kBranch),
                                          block_of(kProgram + 0x300, kRet)};
  std::vector<std::byte> bytes;
  TruthLog log(bytes);
  log.psb(0, 0x100);
  log.block(0);
  log.psb(0, 0x180);
  log.time(0x200);
  log.block(1);
  log.lose();
  log.recover();
  log.psb(0, 0x300);
  log.block(2);
  log.end();
  const std::vector<uint8_t> expected = from_start({
      0xf7,                                                                 // Atom E
      0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0x80,  // A-Sync
      0x01, 0x01, 0x00,                                                     // Trace Info
      0x02, 0x80, 0x83, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00,           // Timestamp 0x180, whole
      0x81, 0xb0, 7,    0,    0,    0,                                      // Context
      0x95, 0xc0, 0x08,                                                     // address 0x1100
      0x02, 0x80, 0x04,                                                     // Timestamp 0x200
      0x00, 0x05,                                                           // Overflow
      0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0x80,  // A-Sync
      0x01, 0x01, 0x00,                                                     // Trace Info
      0x02, 0x80, 0x86, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00,           // Timestamp 0x300, whole
      0x04,                                                                 // Trace On
      0x81, 0xb0, 7,    0,    0,    0,                                      // Context
      0x95, 0xc0, 0x09,                                                     // address 0x1300
  });
  EXPECT_EQ(packets_of(bytes, blocks), expected);
}

}  // namespace
}  // namespace ptd::emulate
