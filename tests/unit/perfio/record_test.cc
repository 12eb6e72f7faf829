// Bodies of records: bytes written by hand after linux/perf_event.h, compared with the values they encode.
#include "perfio/format/record_parse.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::hex;

Payload parse(uint32_t type, uint16_t misc, const std::string& body) {
  Payload out;
  EXPECT_TRUE(parse_body({type, misc, 0}, hex(body), out)) << "type " << type;
  return out;
}

TEST(RecordParse, MmapIsUserCode) {
  const auto mmap =
      std::get<MmapRecord>(parse(1, 2, "0a000000 0b000000  0010400000000000 0020000000000000 0030000000000000 2f612f62 00000000"));
  EXPECT_EQ(mmap.pid, 10);
  EXPECT_EQ(mmap.tid, 11);
  EXPECT_EQ(mmap.addr, 0x401000U);
  EXPECT_EQ(mmap.size_bytes, 0x2000U);
  EXPECT_EQ(mmap.file_offset_bytes, 0x3000U);
  EXPECT_EQ(mmap.path, "/a/b");
  EXPECT_TRUE(mmap.executable);
  EXPECT_FALSE(mmap.kernel);
  EXPECT_FALSE(mmap.guest);
}

TEST(RecordParse, MmapDataBitAndModes) {
  const std::string body = "ffffffff 00000000  0000000081ffffff 0010000000000000 0000000000000000 6b00";
  EXPECT_FALSE(std::get<MmapRecord>(parse(1, 0x2002, body)).executable);
  EXPECT_TRUE(std::get<MmapRecord>(parse(1, 1, body)).kernel);
  const auto guest = std::get<MmapRecord>(parse(1, 4, body));
  EXPECT_TRUE(guest.kernel);
  EXPECT_TRUE(guest.guest);
}

TEST(RecordParse, Mmap2WithInode) {
  const auto mmap = std::get<MmapRecord>(parse(10, 2,
                                               "01000000 02000000 0010000000000000 0020000000000000 0000000000000000"
                                               "b3000000 05000000 b565000000000000 0900000000000000 05000000 02100000 782f7900"));
  EXPECT_EQ(mmap.maj, 0xb3U);
  EXPECT_EQ(mmap.min, 5U);
  EXPECT_EQ(mmap.inode, 0x65b5U);
  EXPECT_EQ(mmap.inode_generation, 9U);
  EXPECT_EQ(mmap.prot, 5U);
  EXPECT_EQ(mmap.flags, 0x1002U);
  EXPECT_TRUE(mmap.executable);
  EXPECT_EQ(mmap.path, "x/y");
  EXPECT_TRUE(mmap.build_id.empty());
}

TEST(RecordParse, Mmap2WithBuildId) {
  const std::string body =
      "01000000 02000000 0010000000000000 0020000000000000 0000000000000000"
      "14000000 0102030405060708090a0b0c0d0e0f1011121314 01000000 00000000 7a00";
  const auto mmap = std::get<MmapRecord>(parse(10, 0x4002, body));
  EXPECT_EQ(build_id_hex(mmap.build_id), "0102030405060708090a0b0c0d0e0f1011121314");
  EXPECT_EQ(mmap.inode, 0U);
  EXPECT_FALSE(mmap.executable);
}

TEST(RecordParse, Mmap2BuildIdLongerThanItsField) {
  const std::string body =
      "01000000 02000000 0010000000000000 0020000000000000 0000000000000000"
      "ff000000 0102030405060708090a0b0c0d0e0f1011121314 05000000 00000000 7a00";
  EXPECT_EQ(std::get<MmapRecord>(parse(10, 0x4002, body)).build_id.size(), 20U);
}

TEST(RecordParse, CommForkExit) {
  const auto comm = std::get<CommRecord>(parse(3, 0x2000, "01000000 02000000 6563686f 00000000"));
  EXPECT_EQ(comm.comm, "echo");
  EXPECT_TRUE(comm.exec);
  const std::string task = "01000000 02000000 03000000 04000000 ff00000000000000";
  const auto fork = std::get<TaskRecord>(parse(7, 0, task));
  EXPECT_EQ(fork.pid, 1);
  EXPECT_EQ(fork.ppid, 2);
  EXPECT_EQ(fork.tid, 3);
  EXPECT_EQ(fork.ptid, 4);
  EXPECT_EQ(fork.time, 255U);
  EXPECT_FALSE(fork.exit);
  EXPECT_TRUE(std::get<TaskRecord>(parse(4, 0, task)).exit);
}

TEST(RecordParse, Switches) {
  EXPECT_FALSE(std::get<SwitchRecord>(parse(14, 0, "")).out);
  const auto out = std::get<SwitchRecord>(parse(15, 0x6000, "05000000 06000000"));
  EXPECT_TRUE(out.out && out.preempt && out.cpu_wide);
  EXPECT_EQ(out.next_prev_pid, 5);
  EXPECT_EQ(out.next_prev_tid, 6);
}

TEST(RecordParse, TextPokeKeepsOldAndNewApart) {
  const auto poke = std::get<TextPokeRecord>(parse(20, 1, "0010008100ffffff 0200 0300 aabb c1c2c3 000000"));
  EXPECT_EQ(poke.addr, 0xffffff0081001000ULL);
  EXPECT_EQ(poke.old_bytes, hex("aabb"));
  EXPECT_EQ(poke.new_bytes, hex("c1c2c3"));
}

TEST(RecordParse, TextPokeLongerThanRecordIsRefused) {
  Payload out;
  EXPECT_FALSE(parse_body({20, 1, 0}, hex("0010008100ffffff 0200 0700 aabb c1c2c3 000000"), out));
}

TEST(RecordParse, Ksymbol) {
  const auto symbol = std::get<KsymbolRecord>(parse(17, 1, "0010000000000000 40000000 0200 0100 6674 72616365 0000"));
  EXPECT_EQ(symbol.addr, 0x1000U);
  EXPECT_EQ(symbol.size_bytes, 0x40U);
  EXPECT_EQ(symbol.type, 2);
  EXPECT_TRUE(symbol.unregister);
  EXPECT_EQ(symbol.name, "ftrace");
}

TEST(RecordParse, BpfLostAuxItraceHwId) {
  const auto bpf = std::get<BpfRecord>(parse(18, 1, "0100 0000 2a000000 0102030405060708"));
  EXPECT_EQ(bpf.type, 1);
  EXPECT_EQ(bpf.id, 42U);
  EXPECT_EQ(bpf.tag, hex("0102030405060708"));
  const auto lost = std::get<LostRecord>(parse(2, 0, "0500000000000000 0700000000000000"));
  EXPECT_EQ(lost.id, 5U);
  EXPECT_EQ(lost.count, 7U);
  const auto samples = std::get<LostRecord>(parse(13, 0, "0900000000000000"));
  EXPECT_TRUE(samples.samples);
  EXPECT_EQ(samples.count, 9U);
  const auto aux = std::get<AuxRecord>(parse(11, 0, "0010000000000000 0004000000000000 0500000000000000"));
  EXPECT_EQ(aux.aux_offset_bytes, 0x1000U);
  EXPECT_EQ(aux.aux_size_bytes, 0x400U);
  EXPECT_EQ(aux.flags, 5U);
  EXPECT_EQ(std::get<ItraceStartRecord>(parse(12, 0, "03000000 04000000")).tid, 4);
  EXPECT_EQ(std::get<AuxOutputHwIdRecord>(parse(21, 0, "1100000000000000")).hw_id, 0x11U);
}

TEST(RecordParse, NamespacesCountIsBounded) {
  const auto spaces = std::get<NamespacesRecord>(parse(16, 0, "01000000 02000000 0100000000000000 0300000000000000 0400000000000000"));
  ASSERT_EQ(spaces.dev_ino.size(), 1U);
  EXPECT_EQ(spaces.dev_ino[0], (std::pair<uint64_t, uint64_t>(3, 4)));
  Payload out;
  EXPECT_FALSE(parse_body({16, 0, 0}, hex("01000000 02000000 ffffffffffffff0f 0300000000000000"), out));
}

TEST(RecordParse, TimeConvShortAndLong) {
  const auto short_form = std::get<TimeConvRecord>(parse(79, 0, "1f00000000000000 aaaaaa6a00000000 91cb436300000000"));
  EXPECT_EQ(short_form.time_shift, 31U);
  EXPECT_EQ(short_form.time_mult, 0x6aaaaaaaU);
  EXPECT_TRUE(short_form.cap_user_time_zero);
  EXPECT_FALSE(short_form.cap_user_time_short);
  const auto long_form = std::get<TimeConvRecord>(
      parse(79, 0, "1f00000000000000 aaaaaa6a00000000 91cb436300000000 0500000000000000 ffffffffffffff00 00 01 000000000000"));
  EXPECT_EQ(long_form.time_cycles, 5U);
  EXPECT_EQ(long_form.time_mask, 0xffffffffffffffU);
  EXPECT_FALSE(long_form.cap_user_time_zero);
  EXPECT_TRUE(long_form.cap_user_time_short);
}

TEST(RecordParse, AuxtraceAndError) {
  AuxtraceRecord auxtrace;
  ASSERT_TRUE(parse_auxtrace(hex("0010000000000000 0020000000000000 0300000000000000 04000000 ffffffff 06000000 00000000"), auxtrace));
  EXPECT_EQ(auxtrace.size_bytes, 0x1000U);
  EXPECT_EQ(auxtrace.offset_bytes, 0x2000U);
  EXPECT_EQ(auxtrace.reference, 3U);
  EXPECT_EQ(auxtrace.idx, 4U);
  EXPECT_EQ(auxtrace.tid, -1);
  EXPECT_EQ(auxtrace.cpu, 6);
  EXPECT_FALSE(parse_auxtrace(hex("0010000000000000"), auxtrace));
  const auto error = std::get<AuxtraceErrorRecord>(
      parse(72, 0, "01000000 02000000 03000000 04000000 05000000 01000000 0010000000000000 0700000000000000 6f6f7073 00"));
  EXPECT_EQ(error.code, 2U);
  EXPECT_EQ(error.cpu, 3);
  EXPECT_EQ(error.ip, 0x1000U);
  EXPECT_EQ(error.time, 7U);
  EXPECT_EQ(error.message, "oops");
}

TEST(RecordParse, EveryTypeCutAtEveryByteIsRefusedOrRead) {
  const auto body =
      hex("01000000 02000000 0100000000000000 0300000000000000 0400000000000000 0500000000000000 0600000000000000"
          "0700000000000000 0800000000000000 0900000000000000");
  for (uint32_t type = 0; type < 90; ++type) {
    for (size_t size = 0; size <= body.size(); ++size) {
      Payload out;
      const bool good = parse_body({type, 0x4000, 0}, Bytes(body).first(size), out);
      const bool unused = type == kRecordCgroup || type == kRecordRead || type == kRecordCallchainDeferred;
      EXPECT_FALSE(good && !unused && size < fixed_body_bytes(type)) << type << " " << size;
    }
  }
}

}  // namespace
}  // namespace ptd::perfio
