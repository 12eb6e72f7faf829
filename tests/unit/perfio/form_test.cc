// The forms of a recording: pipe, directory with data.N, compressed (1 and 2), rejected ones.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "image/base/interrupt.h"
#include "perfio/format/record_encode.h"
#include "perfio/perf_writer.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::at;
using test::full_attr;
using test::hex;
using test::TempDir;

std::vector<std::byte> comm_at(uint64_t time, const std::string& name, int32_t cpu = 0) {
  std::vector<std::byte> record;
  EXPECT_TRUE(encode_record(CommRecord{1, 1, name, false}, {at(time, cpu), 0, true}, full_attr(1), record));
  return record;
}

/// Returns "time:comm" of each COMM, in order of delivery.
std::vector<std::string> comms(PerfReader& reader) {
  std::vector<std::string> out;
  EXPECT_TRUE(reader
                  .read([&out](const Record& record) {
                    if (const auto* comm = std::get_if<CommRecord>(&record.payload))
                      out.push_back(std::to_string(record.sample_id.time) + ":" + comm->comm);
                    return true;
                  })
                  .ok());
  return out;
}

void append(std::vector<std::byte>& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

void append_form_record(std::vector<std::byte>& to, uint32_t type, Bytes body) {
  ByteWriter(to).u32(type).u16(0).u16(static_cast<uint16_t>(8 + body.size())).bytes(body);
}

/// Returns a pipe written by hand after perf.data-file-format.txt, "Pipe-mode data".
std::vector<std::byte> make_pipe() {
  std::vector<std::byte> pipe;
  ByteWriter out(pipe);
  out.u64(kPerfMagic2).u64(16);
  std::vector<std::byte> attr = encode_attr(full_attr(1), 112);
  ByteWriter(attr).u64(1);
  append_form_record(pipe, kRecordHeaderAttr, attr);
  std::vector<std::byte> update;
  ByteWriter(update).u64(2).u64(1).text("my-event", 8);
  append_form_record(pipe, kRecordEventUpdate, update);
  std::vector<std::byte> feature;
  ByteWriter(feature).u64(kFeatureHostname).header_string("piped-host");
  append_form_record(pipe, kRecordHeaderFeature, feature);
  std::vector<std::byte> build_id;
  ByteWriter(build_id).i32(-1).bytes(hex("0102030405060708090a0b0c0d0e0f1011121314")).u32(0).text("/bin/x", 8);
  append_form_record(pipe, kRecordHeaderBuildId, build_id);
  append(pipe, comm_at(20, "b"));
  append(pipe, comm_at(10, "a"));
  std::vector<std::byte> auxtrace;
  ByteWriter(auxtrace).u64(16).u64(0).u64(5).u32(0).i32(-1).i32(0).u32(0);
  append_form_record(pipe, kRecordAuxtrace, auxtrace);
  append(pipe, hex("02820282028202820282028202820282"));
  append(pipe, comm_at(15, "c"));
  return pipe;
}

void expect_pipe(PerfReader& reader) {
  ASSERT_EQ(reader.attrs().size(), 1U);  // known before read()
  EXPECT_EQ(reader.attrs()[0].name, "my-event");
  EXPECT_EQ(comms(reader), (std::vector<std::string>{"10:a", "15:c", "20:b"}));
  EXPECT_EQ(comms(reader).size(), 3U);  // a second reading gives the same
  EXPECT_EQ(reader.features().hostname, "piped-host");
  ASSERT_EQ(reader.features().build_ids.size(), 1U);
  EXPECT_EQ(reader.features().build_ids[0].path, "/bin/x");
  EXPECT_EQ(reader.attrs().size(), 1U);
  EXPECT_TRUE(reader.is_pipe());
  EXPECT_EQ(reader.damage().messages.size(), 0U);
}

TEST(Forms, PipeInAFile) {
  TempDir dir;
  test::save(dir / "pipe", make_pipe());
  auto reader = PerfReader::open(dir / "pipe");
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  expect_pipe(**reader);
}

TEST(Forms, PipeOnStandardInput) {
  TempDir dir;
  test::save(dir / "pipe", make_pipe());
  FILE* source = ::popen(("cat " + (dir / "pipe")).c_str(), "r");
  ASSERT_NE(source, nullptr);
  const int saved = ::dup(STDIN_FILENO);
  ::dup2(::fileno(source), STDIN_FILENO);
  auto reader = PerfReader::open("-");
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::pclose(source);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  expect_pipe(**reader);
}

TEST(Forms, PipeOnAFifoWhoseWriterComesLate) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::vector<std::byte> pipe = make_pipe();
    std::ofstream(dir / "fifo").write(reinterpret_cast<const char*>(pipe.data()), static_cast<std::streamsize>(pipe.size()));
  });
  auto reader = PerfReader::open(dir / "fifo");
  writer.join();
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  expect_pipe(**reader);
}

TEST(Forms, WaitingForTheWriterOfAFifoIsInterrupted) {
  struct Interrupt {};
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  std::atomic<bool> over = false;
  std::thread late([&] {  // so that a wait for a writer ends
    for (int i = 0; i < 500 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const int fd = over ? -1 : ::open((dir / "fifo").c_str(), O_WRONLY | O_NONBLOCK);
    if (fd >= 0) ::close(fd);
  });
  int calls = 0;
  const std::function<void()> stop = [&calls] {
    if (++calls == 3) throw Interrupt();
  };
  const InterruptScope scope(stop);
  EXPECT_THROW((void)PerfReader::open(dir / "fifo"), Interrupt);
  over = true;
  late.join();
}

TEST(Forms, DirectoryWithDataFiles) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "rec", {{full_attr(1)}, true, 0});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->add_raw(comm_at(5, "first")).ok());
  std::vector<std::byte> version;
  ByteWriter(version).u64(1);
  (*writer)->set_feature_bytes(kFeatureDirFormat, version);
  ASSERT_TRUE((*writer)->finish().ok());
  std::vector<std::string> want = {"5:first"};
  std::vector<std::byte> rings[3];
  for (uint64_t i = 0; i < 30000; ++i) {  // the rings progress at different speeds
    const auto ring = static_cast<size_t>(i % 7 == 0 ? 0 : i % 3 == 0 ? 1 : 2);
    append(rings[ring], comm_at(100 + i, std::to_string(i), static_cast<int32_t>(ring)));
    want.push_back(std::to_string(100 + i) + ":" + std::to_string(i));
  }
  for (size_t i = 0; i < 3; ++i) test::save(dir / ("rec/data." + std::to_string(i)), rings[i]);
  ReadLimits limits;
  limits.max_queued_records = 20000;  // fewer than the file has: merging must not queue them all
  auto reader = PerfReader::open(dir / "rec", limits);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->features().dir_version, 1U);
  EXPECT_EQ(comms(**reader), want);
  EXPECT_EQ((*reader)->damage().late_records, 0U);
  EXPECT_EQ((*reader)->damage().messages.size(), 0U);
}

TEST(Forms, DamageNamesTheFileOfADirectory) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "rec", {{full_attr(1)}, true, 0});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->finish().ok());
  for (const char* name : {"rec/data.0", "rec/data.1"}) {
    std::vector<std::byte> ring = comm_at(5, "first");
    append(ring, comm_at(6, "second"));
    ring.resize(ring.size() - 5);
    test::save(dir / name, ring);
  }
  auto reader = PerfReader::open(dir / "rec");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(comms(**reader), (std::vector<std::string>{"5:first", "5:first"}));
  const ReadDamage& damage = (*reader)->damage();
  ASSERT_EQ(damage.cuts.size(), 2U);
  for (const ReadDamage::Cut& cut : damage.cuts) EXPECT_EQ(cut.offset_bytes, comm_at(5, "first").size());
  EXPECT_EQ(damage.cuts[0].file + damage.cuts[1].file, 3U);
  EXPECT_EQ(damage.name_of(1), "data.0");
  ASSERT_EQ(damage.messages.size(), 2U);
  EXPECT_TRUE(damage.messages[0].ends_with(" of data.0")) << damage.messages[0];
}

/// Writes a compressed recording whose COMPRESSED records split the inner records at awkward positions.
std::vector<std::string> write_compressed(const std::string& path, uint32_t type, size_t piece_bytes) {
  std::vector<std::string> want;
  auto writer = PerfWriter::create(path, {{full_attr(1)}, false, 0});
  EXPECT_TRUE(writer.ok());
  ZstdCompressor compressor(3);
  std::vector<std::byte> plain;
  for (uint64_t i = 0; i < 20000; ++i) {
    append(plain, comm_at(100 + i, "c" + std::to_string(i)));
    want.push_back(std::to_string(100 + i) + ":c" + std::to_string(i));
  }
  for (size_t from = 0; from < plain.size(); from += piece_bytes) {
    std::vector<std::byte> compressed;
    EXPECT_TRUE(compressor.add(Bytes(plain).subspan(from, std::min(piece_bytes, plain.size() - from)), compressed));
    std::vector<std::byte> record;
    std::vector<std::byte> body;
    if (type == kRecordCompressed2) ByteWriter(body).u64(compressed.size());
    append(body, compressed);
    if (type == kRecordCompressed2) ByteWriter(body).align(8);
    EXPECT_LT(body.size(), 65000U);
    append_form_record(record, type, body);
    EXPECT_TRUE((*writer)->add_raw(record).ok());
  }
  EXPECT_TRUE((*writer)->finish().ok());
  return want;
}

TEST(Forms, CompressedRecordsStraddle) {
  for (const uint32_t type : {static_cast<uint32_t>(kRecordCompressed), static_cast<uint32_t>(kRecordCompressed2)}) {
    for (const size_t piece : {size_t{997}, size_t{1} << 19}) {
      TempDir dir;
      const auto want = write_compressed(dir / "perf.data", type, piece);
      auto reader = PerfReader::open(dir / "perf.data");
      ASSERT_TRUE(reader.ok());
      EXPECT_EQ(comms(**reader), want) << type << " " << piece;
      EXPECT_EQ((*reader)->damage().messages.size(), 0U);
    }
  }
}

TEST(Forms, DamagedCompressedStreamKeepsItsBeginning) {
  TempDir dir;
  const auto want = write_compressed(dir / "perf.data", kRecordCompressed, 4096);
  auto bytes = test::load(dir / "perf.data");
  const size_t middle = bytes.size() / 2;
  for (size_t i = 0; i < 64; ++i) bytes[middle + i] ^= std::byte{0x5a};
  test::save(dir / "damaged", bytes);
  auto reader = PerfReader::open(dir / "damaged");
  ASSERT_TRUE(reader.ok());
  const auto got = comms(**reader);
  EXPECT_GT(got.size(), want.size() / 4);
  EXPECT_TRUE((*reader)->damage().cut());
  const size_t sure = want.size() / 3;
  ASSERT_GE(got.size(), sure);
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(sure), want.begin()));
}

TEST(Forms, RefusedWithAReason) {
  TempDir dir;
  struct Case {
    const char* name;
    std::vector<std::byte> bytes;
    ErrorKind want;
  };
  std::vector<std::byte> swapped = test::bytes_of("2ELIFREP");
  swapped.resize(104);
  std::vector<std::byte> old = test::bytes_of("PERFFILE");
  old.resize(104);
  std::vector<std::byte> other(200);
  std::vector<std::byte> short_header = test::bytes_of("PERFILE2");
  ByteWriter(short_header).u64(104).u64(0);
  const Case cases[] = {{"swapped", swapped, ErrorKind::unsupported},
                        {"version 1", old, ErrorKind::unsupported},
                        {"zeros", other, ErrorKind::file_format},
                        {"empty", {}, ErrorKind::file_cut},
                        {"cut", short_header, ErrorKind::file_cut}};
  for (const Case& c : cases) {
    test::save(dir / "file", c.bytes);
    auto reader = PerfReader::open(dir / "file");
    ASSERT_FALSE(reader.ok()) << c.name;
    EXPECT_EQ(reader.error().kind(), c.want) << c.name;
    EXPECT_FALSE(reader.error().message.empty());
  }
  EXPECT_EQ(PerfReader::open(dir / "absent").error().kind(), ErrorKind::file_open);
  std::filesystem::create_directories(dir / "empty-directory");
  EXPECT_EQ(PerfReader::open(dir / "empty-directory").error().kind(), ErrorKind::file_format);
}

}  // namespace
}  // namespace ptd::perfio
