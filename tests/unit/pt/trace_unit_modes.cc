// The emulated trace unit tells the mode where it changes, as a processor does ([SDM] "MODE.Exec Packet"): with branches, after a pause,
// after lost packets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture/emulate/unit/block_tracer.h"
#include "capture/emulate/unit/code_segment.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd::emulate {
namespace {

Block block_of(ExecMode mode, uint64_t ip, BlockEnd kind) {
  Block block;
  block.ip = block.last_ip = ip;
  block.end = ip + 2;
  block.insns = 1;
  block.kind = kind;
  block.mode = mode;
  block.kernel = is_kernel_half(Ip{ip});
  return block;
}

const Block kKernel = block_of(ExecMode::bits64, 0xffffffff81000000, BlockEnd::far);
const Block k32 = block_of(ExecMode::bits32, 0x8048000, BlockEnd::software_interrupt);
const Block k64 = block_of(ExecMode::bits64, 0x401000, BlockEnd::jump);
const Block kElsewhere32 = block_of(ExecMode::bits32, 0x8049000, BlockEnd::ret);

struct TraceUnitModes : testing::Test {
  void enter(const Block& block) {
    tracer.enter(block, [this] { return tsc += 100; });
  }
  /// Branches, losses and modes so far.
  std::vector<std::string> told() {
    std::vector<std::string> words;
    pt::PacketReader reader(out);
    pt::Packet packet;
    while (reader.next(packet) == pt::PacketReader::Status::ok) {
      if (packet.kind == pt::PacketKind::mode_exec)
        words.push_back((packet.flags & pt::kFlagCsL) != 0 ? "64" : (packet.flags & pt::kFlagCsD) != 0 ? "32" : "16");
      if (packet.kind == pt::PacketKind::psb) words.push_back("PSB");
      if (packet.kind == pt::PacketKind::tip) words.push_back("TIP");
      if (packet.kind == pt::PacketKind::fup) words.push_back("FUP");
      if (packet.kind == pt::PacketKind::tip_pge) words.push_back("PGE");
      if (packet.kind == pt::PacketKind::tip_pgd) words.push_back("PGD");
      if (packet.kind == pt::PacketKind::ovf) words.push_back("OVF");
    }
    return words;
  }

  std::vector<std::byte> out;
  PtEncoder encoder{{}, out};
  BlockTracer tracer{encoder, nullptr, true};
  uint64_t tsc = 1'000'000;
};

TEST_F(TraceUnitModes, WithTheBranchThatChangesIt) {
  enter(kKernel);
  enter(k32);
  tracer.enter_handler(kKernel, {k32.end, false}, tsc += 100);  // INT n
  enter(k32);
  EXPECT_THAT(told(), testing::ElementsAre("PSB", "64", "PGE", "32", "TIP", "FUP", "64", "TIP", "32", "TIP"));
}

TEST_F(TraceUnitModes, WhereTheTraceBeginsOrGoesOn) {
  enter(kElsewhere32);
  tracer.leave_async({kElsewhere32.ip, true}, tsc += 100);
  enter(k64);
  tracer.leave_async({k64.ip, true}, tsc += 100);
  enter(k32);
  EXPECT_THAT(told(), testing::ElementsAre("PSB", "32", "PGE", "FUP", "PGD", "64", "PGE", "FUP", "PGD", "32", "PGE"));
}

TEST_F(TraceUnitModes, AfterLostPackets) {
  enter(k64);
  enter(kElsewhere32);  // the emulator did not say how
  EXPECT_EQ(tracer.counts().irregular, 1U);
  EXPECT_THAT(told(), testing::ElementsAre("PSB", "64", "PGE", "OVF", "FUP", "PSB", "32", "FUP"));
}

TEST(CodeSegments, OfLinux) {
  const auto mode = [](uint64_t ip, uint64_t selector) { return mode_of_code(ip, [selector] { return selector; }); };
  EXPECT_EQ(mode(0x401000, 0x33), ExecMode::bits64);
  EXPECT_EQ(mode(0x8048000, 0x23), ExecMode::bits32);
  EXPECT_EQ(mode(0x8048000, 0x07), ExecMode::unknown);
  EXPECT_EQ(mode(0x1000000, 0x10), ExecMode::bits64);
  const auto unasked = [] {
    ADD_FAILURE();
    return uint64_t{0x23};
  };
  EXPECT_EQ(mode_of_code(0xffffffff81000000, unasked), ExecMode::bits64);
  EXPECT_EQ(mode_of_code(0x7fffffffe000, unasked), ExecMode::bits64);
}

}  // namespace
}  // namespace ptd::emulate
