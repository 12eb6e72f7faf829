// PerfWriter and the editor: written files read back, in every form; unfinished files are read as far as possible.
#include <bit>
#include <cstring>

#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/record_encode.h"
#include "perfio/perf_writer.h"
#include "tests/support/perf_edit.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::at;
using test::full_attr;
using test::hex;
using test::lines_of;
using test::load;
using test::save;
using test::TempDir;

/// Returns a value for every payload that can be written.
std::vector<Payload> all_payloads() {
  MmapRecord mmap;
  mmap.pid = 7;
  mmap.tid = 8;
  mmap.addr = 0x400000;
  mmap.size_bytes = 0x1000;
  mmap.prot = 5;
  mmap.inode = 99;
  mmap.path = "/usr/bin/true";
  AuxtraceErrorRecord error;
  error.type = 1;
  error.message = "bad";
  return {mmap,
          CommRecord{7, 8, "true", true},
          TaskRecord{7, 1, 8, 1, 50, false},
          TaskRecord{7, 1, 8, 1, 60, true},
          SwitchRecord{true, true, true, 3, 4},
          SwitchRecord{false, false, false, -1, -1},
          KsymbolRecord{0xffffffffc0000000, 0x40, 1, true, "bpf_prog_0102030405060708_x"},
          BpfRecord{1, 5, hex("0102030405060708")},
          TextPokeRecord{0xffffffff81000000, hex("0f1f440000"), hex("e811223344")},
          TextPokeRecord{0xffffffff81000100, {}, hex("cc")},
          LostRecord{1, 5, false},
          LostRecord{0, 6, true},
          AuxRecord{0, 0x1000, 1},
          ItraceStartRecord{7, 8},
          AuxOutputHwIdRecord{3},
          NamespacesRecord{7, 8, {{1, 2}, {3, 4}}},
          ThrottleRecord{true},
          error,
          TimeConvRecord{31, 5, 6, 7, 8, true, true},
          OtherSample{0x1234}};
}

void write_all(PerfWriter& writer) {
  AuxtraceInfoRecord info;
  info.type = kAuxtraceIntelPt;
  info.priv = {8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1, 0x200, 0x3c000, 100, 2, 2, 12, 0};
  ASSERT_TRUE(writer.add_auxtrace_info(info).ok());
  uint64_t time = 1000;
  for (const Payload& payload : all_payloads()) {
    RecordContext context;
    context.sample_id = at(time);
    context.misc = kMiscUser;
    ASSERT_TRUE(writer.add(payload, context).ok());
    time += 10;
  }
  AuxtraceRecord auxtrace;
  const auto payload = hex("0282028202820282028202820282028202");  // 17 bytes: padded to 24
  auxtrace.cpu = 0;
  auxtrace.payload = payload;
  ASSERT_TRUE(writer.add_auxtrace(auxtrace).ok());
  ASSERT_TRUE(writer.add_finished_round().ok());
}

TEST(Writer, EveryPayloadReadsBack) {
  for (const int level : {0, 3}) {
    TempDir dir;
    WriterOptions options;
    options.attrs = {full_attr(1)};
    options.compression_level = level;
    auto writer = PerfWriter::create(dir / "perf.data", options);
    ASSERT_TRUE(writer.ok());
    write_all(**writer);
    ASSERT_TRUE((*writer)->finish().ok());
    auto reader = PerfReader::open(dir / "perf.data");
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_EQ((*reader)->features().compressed, level != 0);
    std::vector<Record> got;
    std::vector<std::byte> payload;
    ASSERT_TRUE((*reader)
                    ->read([&](const Record& record) {
                      got.push_back(record);
                      if (const auto* a = std::get_if<AuxtraceRecord>(&record.payload))
                        payload.assign(a->payload.begin(), a->payload.end());
                      return true;
                    })
                    .ok());
    EXPECT_EQ(payload, hex("0282028202820282028202820282028202 00000000000000"));
    EXPECT_EQ((*reader)->damage().messages.size(), 0U);
    const std::vector<Payload> want = all_payloads();
    ASSERT_EQ(got.size(), want.size() + 3);
    std::vector<size_t> kinds, want_kinds;
    for (const Record& record : got) {
      if (record.sample_id.has_time) {
        EXPECT_EQ(record.sample_id.cpu, 0);
        EXPECT_EQ(record.sample_id.tid, 8);
        kinds.push_back(record.payload.index());
      }
    }
    for (const Payload& p : want) {
      if (!std::holds_alternative<AuxtraceErrorRecord>(p) && !std::holds_alternative<TimeConvRecord>(p)) want_kinds.push_back(p.index());
    }
    EXPECT_EQ(kinds, want_kinds);
    for (const Record& record : got) {
      if (const auto* poke = std::get_if<TextPokeRecord>(&record.payload); poke != nullptr && poke->addr == 0xffffffff81000000) {
        EXPECT_EQ(poke->old_bytes, hex("0f1f440000"));
        EXPECT_EQ(poke->new_bytes, hex("e811223344"));
        EXPECT_EQ(record.misc & kMiscCpumodeMask, kMiscUser);
      }
      if (const auto* symbol = std::get_if<KsymbolRecord>(&record.payload)) {
        EXPECT_EQ(symbol->name, "bpf_prog_0102030405060708_x");
      }
      if (const auto* conv = std::get_if<TimeConvRecord>(&record.payload)) {
        EXPECT_EQ(conv->time_mask, 8U);
      }
    }
  }
}

// Linux 6.14 and later: the size of the compressed bytes comes first, and the record is padded to 8 bytes.
std::vector<std::byte> with_compressed2(const std::vector<std::byte>& file) {
  const auto number = [](const std::vector<std::byte>& bytes, size_t at, size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  const uint64_t data_at = number(file, 40, 8), data_end = data_at + number(file, 48, 8);
  std::vector<std::byte> out(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(data_at));
  for (uint64_t at = data_at; at < data_end;) {
    const uint64_t size = number(file, at + 6, 2), type = number(file, at, 4);
    const auto body = std::span(file).subspan(at + kRecordHeaderBytes, size - kRecordHeaderBytes);
    ByteWriter writer(out);
    if (type == kRecordCompressed) {
      const size_t padded = (body.size() + 7) & ~size_t{7};
      writer.u32(kRecordCompressed2).u16(0).u16(static_cast<uint16_t>(kRecordHeaderBytes + 8 + padded)).u64(body.size());
      writer.bytes(body).zeros(padded - body.size());
    } else {
      writer.bytes(std::span(file).subspan(at, size));
    }
    at += size;
    if (type != kRecordAuxtrace) continue;
    const uint64_t payload = number(file, at - size + 8, 8);
    ByteWriter(out).bytes(std::span(file).subspan(at, payload));
    at += payload;
  }
  const uint64_t data_size = out.size() - data_at, moved = out.size() - data_end;
  std::memcpy(out.data() + 48, &data_size, 8);
  const size_t table = out.size();
  out.insert(out.end(), file.begin() + static_cast<std::ptrdiff_t>(data_end), file.end());
  size_t features = 0;
  for (size_t at = 72; at < 104; at += 8) features += static_cast<size_t>(std::popcount(number(file, at, 8)));
  for (size_t i = 0; i < features; ++i) {
    const uint64_t offset = number(out, table + 16 * i, 8) + moved;
    std::memcpy(out.data() + table + 16 * i, &offset, 8);
  }
  return out;
}

TEST(Writer, TheSecondCompressedFormReadsBackAsTheFirst) {
  TempDir dir;
  WriterOptions options;
  options.attrs = {full_attr(1)};
  options.compression_level = 3;
  auto writer = PerfWriter::create(dir / "first", options);
  ASSERT_TRUE(writer.ok());
  write_all(**writer);
  ASSERT_TRUE((*writer)->finish().ok());
  const std::vector<std::byte> first = load(dir / "first"), second = with_compressed2(first);
  ASSERT_NE(second.size(), first.size());
  save(dir / "second", second);
  const auto records_of = [&](const char* name) {
    std::vector<std::pair<size_t, uint64_t>> lines;
    auto reader = PerfReader::open(dir / name);
    EXPECT_TRUE(reader.ok());
    if (!reader.ok()) return lines;
    EXPECT_TRUE((*reader)
                    ->read([&](const Record& record) {
                      lines.emplace_back(record.payload.index(), record.sample_id.time);
                      return true;
                    })
                    .ok());
    EXPECT_TRUE((*reader)->features().compressed);
    EXPECT_EQ((*reader)->damage().messages.size(), 0U);
    return lines;
  };
  const auto want = records_of("first");
  EXPECT_GT(want.size(), all_payloads().size());
  EXPECT_EQ(records_of("second"), want);
}

TEST(Writer, FeaturesReadBack) {
  TempDir dir;
  WriterOptions options;
  options.attrs = {full_attr(1), full_attr(2)};
  options.attrs[1].name = "intel_pt//k";
  auto writer = PerfWriter::create(dir / "perf.data", options);
  ASSERT_TRUE(writer.ok());
  Features features;
  features.hostname = "host";
  features.cpuid = "GenuineIntel,6,78,3";
  features.cmdline = {"perf", "record", std::string(100, 'x')};
  features.build_ids = {{"[kernel.kallsyms]", std::string("\x01\x02\x03\x04\x05\x06\x07\x08", 8), -1, kMiscKernel}};
  BpfProgInfo prog;
  prog.id = 5;
  prog.name = "probe";
  prog.load_time_ns = 77;
  prog.jited_insns = hex("9090c3 90c3");
  prog.jited_ksyms = {0xffffffffc0000000, 0xffffffffc0001000};
  prog.jited_func_lens = {3, 2};
  prog.tags = hex("0102030405060708 1112131415161718");
  prog.btf_id = 9;
  features.bpf_progs = {prog};
  features.bpf_btf[9] = hex("aabbcc");
  features.pmu_types = {{"intel_pt", 8}};
  features.has_clock_data = true;
  features.clock_data_clockid = 4;
  features.wall_clock_ns = 123456;
  features.clockid_time_ns = 456;
  (*writer)->set_features(features);
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = PerfReader::open(dir / "perf.data");
  ASSERT_TRUE(reader.ok());
  const Features& got = (*reader)->features();
  EXPECT_EQ(got.hostname, "host");
  EXPECT_EQ(got.cpuid, "GenuineIntel,6,78,3");
  EXPECT_EQ(got.cmdline, features.cmdline);
  ASSERT_EQ(got.build_ids.size(), 1U);
  EXPECT_EQ(build_id_hex(got.build_ids[0].build_id), "0102030405060708");
  EXPECT_EQ(got.build_ids[0].path, "[kernel.kallsyms]");
  ASSERT_EQ(got.bpf_progs.size(), 1U);
  EXPECT_EQ(got.bpf_progs[0].jited_insns, prog.jited_insns);
  EXPECT_EQ(got.bpf_progs[0].jited_ksyms, prog.jited_ksyms);
  EXPECT_EQ(got.bpf_progs[0].jited_func_lens, prog.jited_func_lens);
  EXPECT_EQ(got.bpf_progs[0].tags, prog.tags);
  EXPECT_EQ(got.bpf_progs[0].load_time_ns, 77U);
  EXPECT_EQ(got.bpf_progs[0].name, "probe");
  EXPECT_EQ(got.bpf_progs[0].btf_id, 9U);
  EXPECT_EQ(got.bpf_btf.at(9), hex("aabbcc"));
  EXPECT_EQ(got.wall_clock_ns, 123456U);
  EXPECT_EQ((*reader)->attrs()[1].name, "intel_pt//k");
  EXPECT_EQ((*reader)->damage().messages.size(), 0U);
}

TEST(Writer, KilledBeforeFinishKeepsEveryRecord) {
  TempDir dir;
  {
    auto writer = PerfWriter::create(dir / "perf.data", {{full_attr(1)}, false, 0});
    ASSERT_TRUE(writer.ok());
    write_all(**writer);
  }
  auto reader = PerfReader::open(dir / "perf.data");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(lines_of(**reader).size(), all_payloads().size() + 3);
  EXPECT_TRUE((*reader)->damage().cut());
}

TEST(Writer, RefusesWhatDoesNotFit) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "perf.data", {{full_attr(1)}, false, 0});
  ASSERT_TRUE(writer.ok());
  MmapRecord mmap;
  mmap.path = std::string(70000, 'x');
  EXPECT_FALSE((*writer)->add_mmap2(mmap, {}).ok());
  EXPECT_FALSE((*writer)->add(OtherRecord{}, {}).ok());
  EXPECT_FALSE((*writer)->add_raw(hex("0100000000000900")).ok());
  EXPECT_FALSE((*writer)->add_kcore_dir("/nowhere").ok());
  EXPECT_FALSE(PerfWriter::create(dir / "no/such/dir", {}).ok());
}

TEST(Writer, SchedSwitchSamples) {
  TempDir dir;
  EventAttr attr = full_attr(1);
  attr.type = kEventTypeTracepoint;
  attr.config = 300;
  attr.sample_type |= kSampleRaw;
  attr.name = "sched:sched_switch";
  auto writer = PerfWriter::create(dir / "perf.data", {{attr}, false, 0});
  ASSERT_TRUE(writer.ok());
  RecordContext context;
  context.sample_id = at(500, 3);
  ASSERT_TRUE((*writer)->add(SchedSwitchSample{41, 42}, context).ok());
  (*writer)->set_features({});
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = PerfReader::open(dir / "perf.data");
  ASSERT_TRUE(reader.ok());
  int seen = 0;
  ASSERT_TRUE((*reader)
                  ->read([&seen](const Record& record) {
                    const auto& change = std::get<SchedSwitchSample>(record.payload);
                    EXPECT_EQ(change.prev_tid, 41);
                    EXPECT_EQ(change.next_tid, 42);
                    EXPECT_EQ(record.sample_id.cpu, 3);
                    ++seen;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(seen, 1);
}

TEST(Writer, DirectoryWithKcore) {
  TempDir dir;
  std::filesystem::create_directories(dir / "from");
  test::save(dir / "from/kcore", hex("7f454c46"));
  test::save(dir / "from/kallsyms", test::bytes_of("0 T _text\n"));
  auto writer = PerfWriter::create(dir / "rec", {{full_attr(1)}, true, 0});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->add_kcore_dir(dir / "from").ok());
  ASSERT_TRUE((*writer)->add_kcore_dir(dir / "from", "kcore_dir__123").ok());
  write_all(**writer);
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = PerfReader::open(dir / "rec");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->kcore_dirs(), (std::vector<std::string>{dir / "rec/kcore_dir", dir / "rec/kcore_dir__123"}));
  EXPECT_EQ(test::load((*reader)->kcore_dirs()[0] + "/kcore"), hex("7f454c46"));
  EXPECT_EQ(lines_of(**reader).size(), all_payloads().size() + 3);
}

TEST(Edit, UntouchedCopyKeepsEveryRecord) {
  const std::string path = test::corpus("pt-perfdata-skylake/perf.data");
  PTD_NEEDS_CORPUS(path);
  TempDir dir;
  ASSERT_TRUE(edit_perf_data(path, dir / "copy", [](const EditRecord&) { return EditAction{}; }).ok());
  auto before = PerfReader::open(path);
  auto after = PerfReader::open(dir / "copy");
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(lines_of(**after), lines_of(**before));
  EXPECT_EQ((*after)->features().cmdline, (*before)->features().cmdline);
  EXPECT_EQ((*after)->features().pmu_types, (*before)->features().pmu_types);
  EXPECT_EQ((*after)->features().auxtrace_index.size(), 2U);
}

TEST(Edit, DropsInsertsAndReplaces) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "in", {{full_attr(1)}, false, 0});
  ASSERT_TRUE(writer.ok());
  for (uint64_t i = 0; i < 50; ++i) {
    RecordContext context;
    context.sample_id = at(100 + i);
    ASSERT_TRUE((*writer)->add_text_poke({0x1000 + i, hex("90"), hex("cc")}, context).ok());
  }
  AuxtraceRecord auxtrace;
  const auto payload = hex("0000000000000000");
  auxtrace.payload = payload;
  ASSERT_TRUE((*writer)->add_auxtrace(auxtrace).ok());
  ASSERT_TRUE((*writer)->finish().ok());

  int pokes = 0;
  const auto editor = [&pokes](const EditRecord& edit) {
    EditAction action;
    if (std::holds_alternative<TextPokeRecord>(edit.record.payload) && ++pokes % 10 == 0) {
      action.drop = true;
      EXPECT_TRUE(encode_record(LostRecord{1, 1, false}, {edit.record.sample_id, 0, true}, edit.attrs[0], action.before.emplace_back()));
    }
    if (std::holds_alternative<AuxtraceRecord>(edit.record.payload)) {
      action.replace_payload = true;
      action.payload = hex("02820282028202820282028202820282");
    }
    return action;
  };
  ASSERT_TRUE(edit_perf_data(dir / "in", dir / "out", editor).ok());
  auto reader = PerfReader::open(dir / "out");
  ASSERT_TRUE(reader.ok());
  size_t kept = 0, lost = 0, replaced = 0;
  ASSERT_TRUE((*reader)
                  ->read([&](const Record& record) {
                    if (const auto* poke = std::get_if<TextPokeRecord>(&record.payload)) {
                      EXPECT_NE((poke->addr - 0x1000) % 10, 9U);
                      ++kept;
                    }
                    if (std::holds_alternative<LostRecord>(record.payload)) {
                      EXPECT_EQ(record.sample_id.time % 10, 9U);
                      ++lost;
                    }
                    if (const auto* a = std::get_if<AuxtraceRecord>(&record.payload))
                      replaced += a->payload.size() == 16 && a->size_bytes == 16;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(kept, 45U);
  EXPECT_EQ(lost, 5U);
  EXPECT_EQ(replaced, 1U);
}

}  // namespace
}  // namespace ptd::perfio
